"""Audio as blocks of samples, whatever it was stored in: arrays, and the formats of libsndfile.

Letters: T frames in all, t frames of a block, C channels. A frame is a sample of each channel, at
one moment.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from onnxgen.errors import AudioError, MissingPackageError

Floats = NDArray[np.float32]

_SAMPLES = 1 << 14  # of a block, over all channels; small enough for a processor's cache
CONVERT = "convert it, for example: ffmpeg -i IN -ac 1 -ar 16000 OUT.wav"


@dataclass(frozen=True, slots=True)
class Decoded:
    """A waveform that is decoded as it is read.

    Attributes:
        rate: frames a second.
        channels: C.
        blocks: (t,C) each, not empty; full scale is from -1 to 1.
    """

    rate: int
    channels: int
    blocks: Iterator[Floats]


def frames_of_block(channels: int) -> int:
    """How many frames are decoded at a time."""
    return max(1, _SAMPLES // channels)


def as_array(values: Any) -> NDArray[Any]:
    """``values`` as the array that ``of_array`` takes; AudioError where they make none."""
    try:
        array = np.asarray(values)
    except Exception as error:  # ragged lists, tensors on a device, whatever __array__ raises
        name = type(error).__name__
        raise AudioError(f"the samples make no array ({name})", wanted=_ARRAYS) from error
    if array.ndim not in (1, 2):
        raise AudioError(f"the samples have the shape {array.shape}", wanted=_ARRAYS)
    if array.dtype.kind != "f" and array.dtype.newbyteorder("=") not in _INTEGERS:
        raise AudioError(
            f"samples of the type {array.dtype} have no known scale",
            wanted="floats from -1 to 1, or int16, int32, int8, uint8",
            do="scale them to float32",
        )
    return array


def of_array(array: NDArray[Any], rate: int) -> Decoded:
    """The waveform in ``array``, (T,) or (T,C) or (C,T): the shorter axis holds the channels.

    Floats are taken as they are; integers of 8, 16 or 32 bits are scaled from their full range.
    """
    if not array.size:
        array = array.reshape(0, 1)
    elif array.ndim == 1:
        array = array[:, None]  # (T,) to (T,1)
    elif len(array) < array.shape[1]:
        array = array.T  # (C,T) to (T,C)
    elif len(array) == array.shape[1] > 1:
        raise AudioError(
            f"samples of the shape {array.shape}: either axis may hold the channels",
            wanted=_ARRAYS,
            do="give the mean of the channels, (T,)",
        )
    step = frames_of_block(array.shape[1])
    blocks = (scaled(array[at : at + step]) for at in range(0, len(array), step))
    return Decoded(rate, array.shape[1], blocks)


_ARRAYS = "an array (T,), or (T,C) or (C,T) with more frames than channels"
_INTEGERS = (np.int16, np.int32, np.int8, np.uint8)


def scaled(samples: NDArray[Any]) -> Floats:
    """``samples`` of any shape as float32: integers from their full range to [-1,1)."""
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes inf, which is refused later
        floats = samples.astype(np.float32)
    if samples.dtype == np.uint8:
        floats -= 128  # 8-bit samples are unsigned, with their zero in the middle
    if samples.dtype.kind != "f":
        floats *= np.float32(2.0 ** (1 - 8 * samples.dtype.itemsize))
    return floats


def of_soundfile(file: BinaryIO, name: str) -> Decoded:
    """The waveform of ``file`` in any format that the installed libsndfile knows.

    Raises:
        AudioError: it knows none like this, or not one block can be decoded.
        MissingPackageError: soundfile is not installed.
    """
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: it is, without the library that it calls
        raise MissingPackageError(
            f"{name} is no WAV file of plain samples; reading other formats needs soundfile",
            wanted="a WAV file, or the package soundfile",
            do="pip install 'onnxgen[audio]', or " + CONVERT,
        ) from error
    try:
        sound = soundfile.SoundFile(file)
    except (RuntimeError, TypeError) as error:  # TypeError: of a file that is named .raw
        raise AudioError(
            f"{name} is no audio that can be read",
            wanted="WAV, FLAC, OGG, MP3 or another format that libsndfile knows",
            do=CONVERT,
        ) from error
    return Decoded(sound.samplerate, sound.channels, _soundfile_blocks(sound, name))


def _soundfile_blocks(sound: Any, name: str) -> Iterator[Floats]:
    # The length of an MP3 file without an index is a guess.
    wanted = 0 if sound.format == "MP3" else sound.frames
    step, got = frames_of_block(sound.channels), 0
    with sound:
        while True:
            try:
                block = sound.read(step, dtype="float32", always_2d=True)
            except RuntimeError as error:
                if not got:
                    raise AudioError(f"{name} is broken: {error}", do=CONVERT) from error
                wanted, block = max(wanted, got + 1), ()
            if not len(block):
                break
            got += len(block)
            yield block
    if got < wanted:
        warn_cut(name, got / sound.samplerate)


def warn_cut(name: str, seconds: float) -> None:
    """Says that a file ended early. What there is of it is audio all the same."""
    warnings.warn(
        f"{name} is cut off or broken: only its first {seconds:.2f} s are there",
        stacklevel=8,  # who calls read: the generators in between stand on the stack as well
    )
