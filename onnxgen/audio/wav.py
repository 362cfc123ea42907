"""WAV files of plain samples, read without a library: integers of 8 to 32 bits, and floats.

A WAV file is a row of chunks, each with four letters, a length and as many bytes, filled up to an
even number. Letters: t frames of a block, C channels.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from onnxgen.audio.decoded import CONVERT, Decoded, Floats, frames_of_block, scaled, warn_cut
from onnxgen.errors import AudioError

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
# A writer that cannot go back leaves a length of its own choice: none, all bits, or nearly 2 GB.
_OPEN_LENGTHS = (0, 0xFFFFFFFF)
_NEARLY_2_GB = 0x7FFF0000
_MOST_CHUNKS = 1_000  # before the samples; a file of nothing else would take hours


@dataclass(frozen=True, slots=True)
class _Form:
    """How samples are stored: ``kind`` u, i or f, in ``width`` bytes each."""

    kind: str
    width: int
    channels: int
    rate: int

    def decode(self, raw: bytes) -> Floats:
        """The samples (t,C) in ``raw``."""
        values: NDArray[np.generic]
        if self.width == 3:  # no such type: in the upper three bytes of four
            wide = np.zeros((len(raw) // 3, 4), np.uint8)
            wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
            values = wide.view("<i4")
        else:
            values = np.frombuffer(raw, f"<{self.kind}{self.width}")
        return scaled(values.reshape(-1, self.channels))


def of_wav(file: BinaryIO, size: int, name: str) -> Decoded | None:
    """The waveform of ``file``, ``size`` bytes long; None where it is no WAV of plain samples.

    Where the file ends before its samples should, what is there is read, with a warning.
    """
    head = file.read(12)
    if head[:4] != b"RIFF" or head[8:] != b"WAVE":
        return None
    described, form = False, None
    for _ in range(_MOST_CHUNKS):
        head = file.read(8)
        if len(head) < 8:
            raise AudioError(f"{name} ends before its samples begin", do=CONVERT)
        chunk, length = struct.unpack("<4sI", head)
        if chunk == b"data":
            break
        body = file.tell()
        if chunk == b"fmt ":
            described, form = True, _form(file.read(min(length, 40)), name)
        file.seek(body + length + length % 2)
    else:
        raise AudioError(f"{name} has {_MOST_CHUNKS} chunks and no samples in them", do=CONVERT)
    if not described:
        raise AudioError(f"{name} does not say how its samples are stored", do=CONVERT)
    if form is None:
        return None
    return Decoded(form.rate, form.channels, _blocks(file, form, length, size - file.tell(), name))


def _form(body: bytes, name: str) -> _Form | None:
    """What a ``fmt`` chunk says; None for samples that are compressed or of a rare size."""
    if len(body) < 16:
        raise AudioError(f"{name} ends before its samples begin", do=CONVERT)
    tag, channels, rate, _, frame = struct.unpack_from("<HHIIH", body)
    if tag == _EXTENSIBLE and len(body) >= 26:
        (tag,) = struct.unpack_from("<H", body, 24)  # the sub-format begins with the real one
    if tag not in (_PCM, _FLOAT):
        return None
    if not channels or not rate or not frame or frame % channels:
        raise AudioError(
            f"{name} says it has {channels} channels in frames of {frame} bytes at {rate} Hz",
            do=CONVERT,
        )
    width = frame // channels  # fewer bits than it holds are its upper ones, so it alone decides
    if tag == _PCM and width <= 4:
        return _Form("u" if width == 1 else "i", width, channels, rate)
    if tag == _FLOAT and width in (4, 8):
        return _Form("f", width, channels, rate)
    return None


def _blocks(file: BinaryIO, form: _Form, length: int, rest: int, name: str) -> Iterator[Floats]:
    """The samples, (t,C) each, in ``length`` bytes as the file says, of ``rest`` that it has."""
    frame = form.width * form.channels
    left = rest if length in _OPEN_LENGTHS else min(length, rest)
    frames = left // frame
    step, got = frames_of_block(form.channels), 0
    while got < frames and (raw := file.read(min(step, frames - got) * frame)):
        block = form.decode(raw[: len(raw) // frame * frame])
        got += len(block)
        if len(block):
            yield block
    if got < length // frame and length < _NEARLY_2_GB:
        warn_cut(name, got / form.rate)
