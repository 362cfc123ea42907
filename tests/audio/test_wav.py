"""WAV files of every kind of plain samples, whole, cut, forged or with wrong bytes.

Letters: T frames, C channels.
"""

import struct

import numpy as np
import pytest

from onnxgen.audio.reading import read
from onnxgen.errors import AudioError, OnnxgenError
from tests.audio.sounds import (
    EXTENSIBLE,
    FLOAT,
    PCM,
    RATE,
    STEPS,
    chunk,
    fmt,
    integers,
    pcm16,
    riff,
    tone,
    written,
)


@pytest.mark.parametrize("tag", [PCM, EXTENSIBLE])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_integers_of_every_width(width, tag):
    data = riff(fmt(tag, 1, RATE, width), chunk(b"data", integers(STEPS, width)))
    found = read(data)
    assert found.dtype == np.float32
    assert found.tolist() == STEPS  # all of them powers of two: exact


def test_fewer_bits_than_the_bytes_hold_are_the_upper_ones():
    data = riff(fmt(EXTENSIBLE, 1, RATE, 4, bits=24), chunk(b"data", integers(STEPS, 4)))
    assert read(data).tolist() == STEPS


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_floats(dtype):
    values = np.array([-1.5, -1, 0, 0.25, 1, 3])  # beyond full scale is allowed
    data = riff(fmt(FLOAT, 1, RATE, int(dtype[2])), chunk(b"data", values.astype(dtype).tobytes()))
    assert read(data).tolist() == values.tolist()


@pytest.mark.parametrize("channels", [1, 2, 3, 8, 32])
def test_channels_are_averaged(channels):
    rng = np.random.default_rng(channels)
    values = rng.integers(-32768, 32767, (40_000, channels))  # several blocks
    found = read(pcm16(values / 32768, channels))
    np.testing.assert_allclose(found, values.mean(1) / 32768, atol=1e-6)


def test_chunks_of_odd_length_and_unknown_name_are_passed_over():
    data = riff(
        chunk(b"LIST", b"odd"), fmt(PCM, 1, RATE, 2), chunk(b"junk", b""), chunk(b"id3 ", b"x" * 7),
        chunk(b"data", integers(STEPS, 2)), chunk(b"LIST", b"after"),
    )  # fmt: skip
    assert read(data).tolist() == STEPS


@pytest.mark.parametrize("length", [0, 0xFFFFFFFF, 0x7FFFF000, 0x7FFFFFFF])
@pytest.mark.filterwarnings("error")
def test_a_length_that_its_writer_could_not_know_means_to_the_end(length):
    body = integers(STEPS, 2) + b"\1"  # and a part of a sample
    data = riff(fmt(PCM, 1, RATE, 2), chunk(b"data", body, length), length=0xFFFFFFFF)
    assert read(data).tolist()[: len(STEPS)] == STEPS


def test_a_cut_file_gives_what_is_there_with_a_warning():
    data = pcm16(tone(1.0))[:-16_001]  # the last sample is cut in two
    with pytest.warns(UserWarning, match=r"only its first 0\.50 s") as warned:
        found = read(data)
    assert warned[0].filename == __file__
    np.testing.assert_allclose(found, tone(1.0)[: 16_000 - 8_001], atol=1e-4)


@pytest.mark.parametrize("keep", [12, 16, 20, 43])
def test_a_file_cut_before_its_samples_is_an_error(keep):
    with pytest.raises(AudioError, match="ends before its samples begin"):
        read(pcm16(tone())[:keep])


@pytest.mark.filterwarnings("ignore:.*cut off")
def test_no_samples_is_an_error():
    for data in (pcm16([]), pcm16(tone())[:44], {"array": [], "sampling_rate": 8000}):
        with pytest.raises(AudioError, match="holds no samples"):
            read(data)
    for array in (np.zeros(0), np.zeros((0, 2)), np.zeros((5, 0))):
        with pytest.raises(AudioError, match="holds no samples"):
            read(array)


def test_one_sample_is_audio():
    assert read(pcm16([0.5])).tolist() == [0.5]


@pytest.mark.parametrize(
    "chunks",
    [
        [fmt(PCM, 0, RATE, 2)],
        [fmt(PCM, 1, 0, 2)],
        [fmt(PCM, 1, RATE, 0)],
        [fmt(PCM, 1, 3, 2)],
        [fmt(PCM, 1, 2_000_000_000, 2)],
        [chunk(b"fmt ", struct.pack("<HHIIHH", PCM, 2, RATE, 0, 3, 16))],
        [],
        [chunk(b"x", b"")] * 2000,
    ],
)
def test_a_header_without_sense_is_an_error(chunks):
    with pytest.raises(AudioError):
        read(riff(*chunks, chunk(b"data", b"\0" * 400)))


@pytest.mark.filterwarnings("ignore:.*cut off")
@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_a_file_with_wrong_bytes_is_read_or_is_an_error_of_ours(kind):
    data = pcm16(tone()) if kind == "WAV" else written("FLAC", "PCM_16", tone(), RATE)
    rng = np.random.default_rng(0)
    for _ in range(300):
        broken = bytearray(data[: rng.integers(1, len(data))] if rng.random() < 0.2 else data)
        for _ in range(rng.integers(1, 4)):
            broken[rng.integers(0, min(80, len(broken)))] = rng.integers(0, 256)
        try:
            found = read(bytes(broken), max_seconds=60)
        except OnnxgenError:
            continue
        assert np.isfinite(found).all()


def test_a_forged_chunk_length_ends_at_the_end_of_the_file():
    data = riff(chunk(b"LIST", b"", 0xFFFFFFFF), fmt(PCM, 1, RATE, 2))
    with pytest.raises(AudioError, match="ends before its samples"):
        read(data)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39])
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_that_are_not_finite_are_refused(bad, channels):
    array = np.zeros((32_000, channels))
    array[24_000, 0] = bad
    with pytest.raises(AudioError, match=r"NaN or infinity at 1\.500 s"):
        read(array)
    data = riff(fmt(FLOAT, channels, RATE, 8), chunk(b"data", array.astype("<f8").tobytes()))
    with pytest.raises(AudioError, match=r"NaN or infinity at 1\.500 s"):
        read(data)
