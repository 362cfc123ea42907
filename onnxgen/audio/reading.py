"""Reads audio from what a user has: one waveform at one rate, its channels' mean.

Everything is a stream of blocks, so that limits hold before memory is filled, and an hour takes no
more of it than a second.

Letters: T samples in all, t samples of a block, C channels.
"""

import io
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from onnxgen.audio.decoded import Decoded, Floats, as_array, of_array, of_soundfile
from onnxgen.audio.resampling import resampled
from onnxgen.audio.wav import of_wav
from onnxgen.errors import AudioError, InputNotFoundError, OnnxgenError, OptionError

# What a header may say. Beyond these a small file would become a huge waveform.
_SLOWEST, _FASTEST = 1_000, 1_000_000
MAX_SECONDS = 12 * 3600.0  # 2.8 GB at 16 kHz
MAX_BYTES = 8 << 30
_IN_MEMORY = 8 << 20  # bytes of a pipe's content; more of it goes to a temporary file
_PIECE = 1 << 16  # bytes that are read from a pipe at a time
_SOURCES = "a path, bytes, a binary file, an array, or a dict of array and sampling_rate"


def read(
    source: Any,
    rate: int = 16_000,
    *,
    sampling_rate: int | None = None,
    max_seconds: float | None = MAX_SECONDS,
    max_bytes: int | None = MAX_BYTES,
) -> Floats:
    """The waveform (T,) of ``source``, at ``rate`` samples a second; T is never 0.

    Args:
        source: a path, the bytes of a file, a binary file object (a pipe too), an array (T,) or
            (T,C) or (C,T), or a dict with ``array`` or ``raw`` and ``sampling_rate`` as the
            pipelines of transformers take it. Of an array with two axes the shorter one holds the
            channels. A file is read from where it stands, and not closed.
        rate: what the model wants.
        sampling_rate: the rate of an array; by default it has ``rate`` already.
        max_seconds: the longest waveform that is read; None for any. A small file can hold a long
            one: silence in FLAC is a thousandth of its samples.
        max_bytes: the largest file or array that is read; None for any.

    A file that is cut off gives what is there, with a warning.

    Raises:
        AudioError: no audio, a broken file, no samples, NaN or infinity, or over a limit.
        InputNotFoundError: there is no such file.
        MissingPackageError: the format or the rate needs the extra ``audio``.
        OptionError: a limit or a rate makes no sense.
    """
    data = bytearray()  # grows in place: the waveform is not held twice
    for block in blocks(
        source, rate, sampling_rate=sampling_rate, max_seconds=max_seconds, max_bytes=max_bytes
    ):
        data.extend(block.data.cast("B"))
    return np.frombuffer(data, np.float32)


def blocks(
    source: Any,
    rate: int = 16_000,
    *,
    sampling_rate: int | None = None,
    max_seconds: float | None = None,
    max_bytes: int | None = None,
) -> Iterator[Floats]:
    """Likewise, as blocks (t,), none of them empty. What is wrong with the source comes late."""
    _check_rate("rate", rate)
    _check_limit("max_seconds", max_seconds)
    _check_limit("max_bytes", max_bytes)
    if isinstance(source, Mapping):
        source, sampling_rate = _of_mapping(source, sampling_rate)
    if sampling_rate is not None:
        _check_rate("sampling_rate", sampling_rate)
        if not _is_array(source):
            raise OptionError(
                "sampling_rate is given for a file, which has its own", do="leave it out"
            )
    return _blocks(source, rate, sampling_rate or rate, max_seconds, max_bytes)


def _blocks(
    source: Any, rate: int, own_rate: int, max_seconds: float | None, max_bytes: int | None
) -> Iterator[Floats]:
    name = _name(source)
    with _decoded(source, name, own_rate, max_bytes) as audio:
        if not _SLOWEST <= audio.rate <= _FASTEST:
            raise AudioError(
                f"{name} has {audio.rate} samples a second", wanted=f"{_SLOWEST} to {_FASTEST}"
            )
        waveform = _within(_mono(audio, name), audio.rate, max_seconds, name)
        empty = True
        for block in resampled(waveform, audio.rate, rate):
            if len(block):
                empty = False
                yield block
        if empty:
            raise AudioError(f"{name} holds no samples", wanted="at least one")


@contextmanager
def _decoded(source: Any, name: str, own_rate: int, max_bytes: int | None) -> Iterator[Decoded]:
    """The waveform of any source, open as long as it is read."""
    try:
        if _is_array(source):
            array = as_array(source)
            _check_size(array.nbytes, max_bytes, name)
            yield of_array(array, own_rate)
            return
        with _opened(source, name, max_bytes) as file:
            size = file.seek(0, io.SEEK_END)
            _check_size(size, max_bytes, name)
            if not size:
                raise AudioError(f"{name} is empty", wanted="a file of audio")
            file.seek(0)
            audio = of_wav(file, size, name)
            if audio is None:
                file.seek(0)
                audio = of_soundfile(file, name)
            yield audio
    except OnnxgenError:
        raise
    except FileNotFoundError as error:
        raise InputNotFoundError(f"there is no file {name}") from error
    except OSError as error:
        raise AudioError(f"{name} cannot be read ({error.strerror or error})") from error
    except Warning:  # one that the caller made an error
        raise
    except Exception as error:  # whatever a foreign file or array raises
        raise AudioError(f"{name} cannot be read ({type(error).__name__})") from error


@contextmanager
def _opened(source: Any, name: str, max_bytes: int | None) -> Iterator[BinaryIO]:
    """A file that can seek and stands at its start."""
    with ExitStack() as stack:
        if isinstance(source, str | os.PathLike):
            if "://" in name:
                raise AudioError(f"{name} is an address", wanted=_SOURCES, do="download it first")
            if "\0" in name:
                raise InputNotFoundError(f"there is no file {name!r}")
            file = cast(BinaryIO, stack.enter_context(Path(name).open("rb")))
        elif isinstance(source, bytes | bytearray | memoryview):
            file = io.BytesIO(source)
        elif hasattr(source, "read"):
            file = source
        else:
            raise AudioError(f"audio is given as {type(source).__name__}", wanted=_SOURCES)
        if not _at_start(file, name):
            file = stack.enter_context(_copied(file, name, max_bytes))
        yield file


def _at_start(file: Any, name: str) -> bool:
    """Whether all of ``file`` is to be read and it can go back: a pipe cannot."""
    if isinstance(file, io.TextIOBase):
        raise AudioError(f"{name} is open as text", do="open it with 'rb'; stdin: sys.stdin.buffer")
    try:
        return bool(file.seekable()) and file.tell() == 0
    except AttributeError:
        return False
    except ValueError as error:  # it is closed
        raise AudioError(f"{name} cannot be read ({error})") from error


@contextmanager
def _copied(file: Any, name: str, max_bytes: int | None) -> Iterator[BinaryIO]:
    """The rest of ``file`` as a temporary one; over the limit no more of it is read."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as copy:
        piece: Any
        while (piece := file.read(_PIECE)) != b"":
            if not isinstance(piece, bytes | bytearray):  # None: it would have to be waited for
                raise AudioError(f"{name} gives {type(piece).__name__}", wanted="bytes")
            copy.write(piece)
            _check_size(copy.tell(), max_bytes, name)
        yield cast(BinaryIO, copy)


def _mono(audio: Decoded, name: str) -> Iterator[Floats]:
    """The mean (t,) of the channels of each block (t,C), made sure to be finite."""
    ones = np.ones(audio.channels, np.float32)  # (C,); NumPy's mean takes 20 times as long
    at = 0
    for block in audio.blocks:
        mono = block[:, 0] if audio.channels == 1 else block @ ones / audio.channels
        finite = np.isfinite(mono)
        if not finite.all():
            seconds = (at + int(finite.argmin())) / audio.rate
            raise AudioError(f"{name} holds NaN or infinity at {seconds:.3f} s", do=_FINITE)
        at += len(mono)
        yield np.ascontiguousarray(mono)


_FINITE = "look for what made it; where such samples mean silence, set them to 0"


def _within(
    waveform: Iterable[Floats], rate: int, max_seconds: float | None, name: str
) -> Iterator[Floats]:
    """The same blocks (t,), until they are longer than ``max_seconds``."""
    count = 0
    for block in waveform:
        count += len(block)
        if max_seconds is not None and count > max_seconds * rate:
            raise AudioError(
                f"{name} is longer than {max_seconds:g} s",
                wanted=f"audio of {max_seconds:g} s at most",
                do="cut it into parts, or raise max_seconds",
            )
        yield block


def _of_mapping(source: Mapping[str, Any], sampling_rate: int | None) -> tuple[Any, int]:
    """The array and the rate in a dict. Its ``path``, which data sets add, is not needed."""
    for key in source:
        if key not in ("array", "raw", "sampling_rate", "path"):
            raise OptionError.unknown(str(key), ("array", "raw", "sampling_rate"), "audio")
    arrays = [source[key] for key in ("raw", "array") if source.get(key) is not None]
    if len(arrays) != 1 or source.get("sampling_rate") is None or sampling_rate is not None:
        raise AudioError(
            f"audio is given as a dict of {', '.join(map(repr, source)) or 'nothing'}"
            + (" and a sampling_rate beside it" if sampling_rate is not None else ""),
            wanted="array (or raw) and sampling_rate in it",
        )
    if not _is_array(arrays[0]):
        raise AudioError(f"the array is of the type {type(arrays[0]).__name__}", wanted="an array")
    return arrays[0], source["sampling_rate"]


def _is_array(source: Any) -> bool:
    if isinstance(source, list | tuple):
        return True
    return hasattr(source, "__array__") and not isinstance(source, str | bytes)  # numpy has both


def _name(source: Any) -> str:
    """What messages call the source."""
    if isinstance(source, str | os.PathLike):
        return os.fsdecode(source)
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else "the audio"


def _check_rate(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise OptionError(f"{name} is {value!r}", wanted="a whole number of samples a second")
    if not _SLOWEST <= value <= _FASTEST:
        raise OptionError(f"{name} is {value!r}", wanted=f"{_SLOWEST} to {_FASTEST}")


def _check_limit(name: str, value: Any) -> None:
    real = isinstance(value, int | float | np.integer | np.floating) and value is not True
    if value is not None and (not real or math.isnan(value) or value <= 0):
        raise OptionError(f"{name} is {value!r}", wanted="a number above 0, or None")


def _check_size(size: int, max_bytes: int | None, name: str) -> None:
    if max_bytes is not None and size > max_bytes:
        raise AudioError(
            f"{name} has more than {max_bytes} bytes",
            wanted=f"{max_bytes} bytes at most",
            do="cut it into parts, or raise max_bytes",
        )
