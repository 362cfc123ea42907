"""Sounds for the tests here, and WAV files put together byte by byte.

Letters: T frames, C channels.
"""

import io
import struct
import wave

import numpy as np
import pytest

RATE = 16_000
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
# One value of each kind of place: the ends, zero, next to zero.
STEPS = [-1.0, -0.5, -1 / 128, 0.0, 1 / 128, 0.5, 127 / 128]


def tone(seconds=0.5, rate=RATE, hertz=440.0):
    """(T,) float64"""
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def chunk(name, body, length=None):
    """A chunk that claims ``length`` bytes, with the byte that makes it even."""
    size = len(body) if length is None else length
    return name + struct.pack("<I", size) + body + b"\0" * (len(body) % 2)


def fmt(tag, channels, rate, width, *, bits=None):
    bits = bits or 8 * width
    head = struct.pack("<HHIIHH", tag, channels, rate, rate * channels * width, channels * width, 8)
    if tag != EXTENSIBLE:
        return chunk(b"fmt ", head[:-2] + struct.pack("<H", bits))
    guid = struct.pack("<H", PCM) + bytes.fromhex("000000001000800000aa00389b71")
    return chunk(b"fmt ", head[:-2] + struct.pack("<HHHI", 8 * width, 22, bits, 0) + guid)


def riff(*chunks, length=None):
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body) if length is None else length) + body


def pcm16(samples, channels=1, rate=RATE):
    """A file of the standard library's, of ``samples`` (T,) or (T,C)."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(np.round(np.asarray(samples) * 32768).astype("<i2").tobytes())
    return file.getvalue()


def integers(values, width):
    """Little-endian integers of ``width`` bytes; those of one byte are unsigned."""
    scaled = [round(value * 2 ** (8 * width - 1)) for value in values]
    if width == 1:
        return bytes(value + 128 for value in scaled)
    return b"".join(value.to_bytes(width, "little", signed=True) for value in scaled)


def written(kind, subtype, samples, rate=48_000):
    """A file that soundfile writes, of ``samples`` (T,) or (T,C)."""
    soundfile = pytest.importorskip("soundfile")
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()
