"""Audio of every kind comes out as one waveform; what is none ends in an error that says why.

Letters: T frames, C channels.
"""

import io
import os
import subprocess
import sys
import threading
import tracemalloc

import numpy as np
import psutil
import pytest

from onnxgen.audio.reading import blocks, read
from onnxgen.errors import AudioError, InputNotFoundError, MissingPackageError, OptionError
from tests.audio.sounds import RATE, STEPS, integers, pcm16, tone, written

# What is no audio, or is not there.


@pytest.mark.parametrize("content", [b"", b"no audio, only words\n" * 200, b"\xff\xd8" * 900])
def test_a_file_that_is_no_audio(tmp_path, content):
    path = tmp_path / "speech.wav"
    path.write_bytes(content)
    message = "is empty" if not content else "is no audio that can be read"
    with pytest.raises(AudioError, match=rf"speech\.wav {message}"):
        read(path)


def test_a_file_named_raw_has_no_header_to_read(tmp_path):
    path = tmp_path / "speech.raw"
    path.write_bytes(integers(STEPS, 2) * 100)
    with pytest.raises(AudioError, match="is no audio that can be read"):
        read(path)


def test_a_file_that_is_not_there(tmp_path):
    for name in ("none.wav", "no\0name.wav"):
        with pytest.raises(InputNotFoundError, match="there is no file"):
            read(str(tmp_path / name))
    assert issubclass(InputNotFoundError, FileNotFoundError)


def test_a_folder(tmp_path):
    with pytest.raises(AudioError, match="cannot be read"):
        read(tmp_path)


def test_an_address():
    with pytest.raises(AudioError, match="download it first"):
        read("https://example.org/speech.wav")


@pytest.mark.parametrize("source", [None, 3, 0.5, object(), {1, 2}])
def test_a_source_of_an_unknown_type(source):
    with pytest.raises(AudioError, match=f"given as {type(source).__name__}"):
        read(source)


def test_text_files_and_closed_files(tmp_path):
    path = tmp_path / "a.wav"
    path.write_bytes(pcm16(tone()))
    with path.open(encoding="latin-1") as file, pytest.raises(AudioError, match="open as text"):
        read(file)
    with path.open("rb") as file:
        pass
    with pytest.raises(AudioError, match="closed file"):
        read(file)

    class Words:
        def read(self, _size):
            return "words"

    with pytest.raises(AudioError, match="gives str"):
        read(Words())


# The ways to give audio.


def test_every_way_to_give_a_file_gives_the_same(tmp_path):
    data = pcm16(tone())
    path = tmp_path / "a.wav"
    path.write_bytes(data)
    expected = read(data)
    np.testing.assert_allclose(expected, tone(), atol=2e-5)
    with path.open("rb") as file:
        assert (read(file) == expected).all()
        assert not file.closed
    for source in (path, str(path), bytearray(data), memoryview(data), io.BytesIO(data)):
        assert (read(source) == expected).all()


def test_a_file_is_read_from_where_it_stands():
    file = io.BytesIO(b"before" + pcm16(tone()))
    file.seek(6)
    assert (read(file) == read(pcm16(tone()))).all()


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_a_pipe(kind):
    soundfile = pytest.importorskip("soundfile")
    data = io.BytesIO()
    soundfile.write(data, tone(3.0), RATE, format=kind)
    source, sink = os.pipe()

    def write():
        with os.fdopen(sink, "wb") as out:
            out.write(data.getvalue())

    thread = threading.Thread(target=write)
    thread.start()
    with os.fdopen(source, "rb", buffering=0) as pipe:  # reads come short
        found = read(pipe)
    thread.join()
    np.testing.assert_allclose(found, tone(3.0), atol=1e-4)


ARRAYS = {
    "float64": np.array(STEPS),
    "float32": np.array(STEPS, np.float32),
    "float16": np.array(STEPS, np.float16),
    "int8": np.array([round(x * 128) for x in STEPS], np.int8),
    "uint8": np.array([round(x * 128) + 128 for x in STEPS], np.uint8),
    "int16": np.array([round(x * 2**15) for x in STEPS], np.int16),
    "big-endian": np.array([round(x * 2**15) for x in STEPS], ">i2"),
    "int32": np.array([round(x * 2**31) for x in STEPS], np.int32),
    "list": STEPS,
    "column": np.array(STEPS)[:, None],
    "row": np.array(STEPS)[None],
    "columns": np.array([STEPS, STEPS]).T,
    "rows": np.array([STEPS, STEPS, STEPS]),
    "strided": np.repeat(STEPS, 2)[::2],
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name):
    assert read(ARRAYS[name]).tolist() == STEPS
    given = {"array": ARRAYS[name], "sampling_rate": RATE, "path": None}
    assert read(given).tolist() == STEPS
    assert list(given) == ["array", "sampling_rate", "path"]
    assert read({"raw": ARRAYS[name], "sampling_rate": RATE}).tolist() == STEPS


def test_the_shorter_axis_holds_the_channels():
    array = np.array([[0.0, 0.5, 1.0], [1.0, 0.5, 0.5]])
    assert read(array).tolist() == read(array.T).tolist() == [0.5, 0.5, 0.75]
    with pytest.raises(AudioError, match="either axis"):
        read(array[:, :2])


@pytest.mark.parametrize(
    "array",
    [
        np.array([1, 2, 3]), np.array([True, False]), np.array([1j]), np.array(["a"]),
        np.array([None]), [1, 2, 3], [[1.0], [2.0, 3.0]], np.zeros((2, 3, 4)), np.float32(1),
        np.array([1, 2], np.uint16),
    ],
)  # fmt: skip
def test_arrays_without_a_clear_meaning_are_refused(array):
    with pytest.raises(AudioError):
        read(array)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"array": [0.0]},
        {"sampling_rate": RATE},
        {"array": [0.0], "raw": [0.0], "sampling_rate": RATE},
        {"array": [0.0], "sampling_rate": "fast"},
        {"array": [0.0], "sampling_rate": 3},
        {"array": [0.0], "sampling_rate": None},
        {"array": "speech.wav", "sampling_rate": RATE},
        {"array": [0.0], "sampling_rate": RATE, "samplingrate": RATE},
    ],
)
def test_dicts_without_a_clear_meaning_are_refused(given):
    with pytest.raises((AudioError, OptionError)):
        read(given)


def test_an_array_is_never_changed():
    array = np.array(STEPS, np.float32)
    read(array)[:] = 9
    assert array.tolist() == STEPS


# Rates.


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000, 96_000, 192_000])
def test_other_rates_become_the_one_asked_for(rate):
    found = read(pcm16(tone(1.0, rate), rate=rate))
    assert abs(len(found) - RATE) <= 1
    inner = slice(400, 15_600)  # the filter needs a few samples at the ends
    np.testing.assert_allclose(found[inner], tone(1.0)[inner], atol=1e-3)


def test_an_array_of_another_rate():
    found = read(tone(1.0, 48_000), sampling_rate=48_000)
    np.testing.assert_allclose(found[400:15_600], tone(1.0)[400:15_600], atol=1e-3)
    assert len(read(tone(1.0, 24_000), 24_000)) == 24_000  # an array has the model's rate


def test_nothing_above_half_the_new_rate_is_left():
    high = tone(1.0, 48_000, hertz=11_000)
    assert np.abs(read(high, sampling_rate=48_000)[400:15_600]).max() < 1e-3


def test_a_waveform_does_not_depend_on_its_blocks():
    soxr = pytest.importorskip("soxr")
    array = np.random.default_rng(0).normal(0, 0.1, 300_000).astype(np.float32)
    expected = soxr.resample(array, 44_100, RATE)
    np.testing.assert_array_equal(read(array, sampling_rate=44_100), expected)


# Options.


def test_seconds_are_limited():
    data = pcm16(tone(2.0, 8_000), rate=8_000)
    assert len(read(data, max_seconds=2)) == 2 * RATE
    for source in (data, {"array": tone(2.0, 8_000), "sampling_rate": 8_000}):
        with pytest.raises(AudioError, match=r"longer than 1\.9 s"):
            read(source, max_seconds=1.9)


def test_bytes_are_limited(tmp_path):
    data = pcm16(tone())
    path = tmp_path / "a.wav"
    path.write_bytes(data)
    assert len(read(path, max_bytes=len(data))) == 8_000
    for source in (path, data, io.BytesIO(data), tone()):
        with pytest.raises(AudioError, match=r"more than 16043 bytes"):
            read(source, max_bytes=len(data) - 1)


def test_no_more_of_a_pipe_is_read_than_the_limit():
    class Endless:
        given = 0

        def read(self, size):
            self.given += size
            return b"\0" * size

    pipe = Endless()
    with pytest.raises(AudioError, match="more than 1000000 bytes"):
        read(pipe, max_bytes=1_000_000)
    assert pipe.given < 3_000_000


@pytest.mark.parametrize(
    "options",
    [
        {"rate": 0}, {"rate": 16_000.0}, {"rate": True}, {"rate": 10**9}, {"max_seconds": 0},
        {"max_seconds": float("nan")}, {"max_seconds": "1"}, {"max_bytes": -1},
        {"sampling_rate": 8_000}, {"sampling_rate": 0},
    ],
)  # fmt: skip
def test_options_without_sense_are_refused(options):
    with pytest.raises(OptionError):
        read(pcm16(tone()), **options)


# Formats of libsndfile, and its absence.


FORMATS = [
    ("FLAC", "PCM_16"), ("FLAC", "PCM_24"), ("OGG", "VORBIS"), ("OGG", "OPUS"),
    ("MP3", "MPEG_LAYER_III"), ("WAV", "ULAW"), ("WAV", "MS_ADPCM"), ("WAVEX", "FLOAT"),
    ("RF64", "PCM_16"), ("W64", "PCM_24"), ("AIFF", "PCM_16"), ("AU", "PCM_16"), ("CAF", "ALAC_16"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "subtype"), FORMATS)
def test_other_formats(kind, subtype):
    both = np.stack([tone(1.0, 48_000), np.zeros(48_000)], 1)  # (T,C)
    found = read(written(kind, subtype, both))
    assert abs(len(found) - RATE) <= 700  # MP3 fills up its frames
    spectrum = np.abs(np.fft.rfft(found * np.hanning(len(found))))
    assert abs(np.argmax(spectrum) * RATE / len(found) - 440) < 2
    assert abs(np.abs(found[4_000:12_000]).max() - 0.25) < 0.02


def test_a_wav_reads_as_soundfile_reads_it():
    soundfile = pytest.importorskip("soundfile")
    rng = np.random.default_rng(1)
    for subtype in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"):
        for kind in ("WAV", "WAVEX"):
            data = written(kind, subtype, rng.uniform(-1, 1, (50_000, 2)), RATE)
            expected, _ = soundfile.read(io.BytesIO(data), dtype="float32")
            np.testing.assert_allclose(read(data), expected.mean(1), atol=1e-7)


def test_a_cut_flac_gives_what_is_there_with_a_warning():
    data = written("FLAC", "PCM_16", np.random.default_rng(0).uniform(-0.5, 0.5, 200_000), RATE)
    with pytest.warns(UserWarning, match="cut off or broken"):
        found = read(data[: len(data) // 2])
    whole = read(data)
    assert 60_000 < len(found) < 110_000
    np.testing.assert_array_equal(found, whole[: len(found)])


def test_a_small_file_that_is_a_long_waveform_stops_at_the_limit():
    data = written("FLAC", "PCM_16", np.zeros(16_000 * 600), RATE)
    assert len(data) < 100_000
    tracemalloc.start()
    with pytest.raises(AudioError, match="longer than 10 s"):
        read(data, max_seconds=10)
    assert tracemalloc.get_traced_memory()[1] < 3_000_000
    tracemalloc.stop()


def test_without_the_extra_plain_wav_is_read_and_all_else_says_what_to_install(monkeypatch):
    flac = written("FLAC", "PCM_16", tone(), RATE)
    for name in ("soundfile", "soxr"):
        monkeypatch.setitem(sys.modules, name, None)
    assert len(read(pcm16(tone()))) == 8_000
    for source in (flac, pcm16(tone(), rate=8_000)):
        with pytest.raises(MissingPackageError, match=r"onnxgen\[audio\]"):
            read(source)


# Streams.


def test_blocks_make_the_waveform():
    data = pcm16(tone(3.0, 48_000), rate=48_000)
    parts = list(blocks(data))
    assert len(parts) > 3
    assert all(len(part) and part.dtype == np.float32 for part in parts)
    np.testing.assert_array_equal(np.concatenate(parts), read(data))


def test_an_hour_takes_no_more_memory_than_a_minute(tmp_path):
    path = tmp_path / "long.wav"

    def peak(minutes):
        with path.open("wb") as out:
            out.write(pcm16([], 1, 8_000)[:40] + b"\xff\xff\xff\xff")
            out.truncate(44 + minutes * 60 * 8_000 * 2)
        tracemalloc.start()
        count = sum(map(len, blocks(path)))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count == minutes * 60 * RATE
        return most

    assert peak(60) < peak(1) + 100_000


def test_a_waveform_is_not_held_twice(tmp_path):
    path = tmp_path / "long.wav"
    path.write_bytes(pcm16(np.zeros(RATE * 300)))
    tracemalloc.start()
    samples = read(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1.3 * samples.nbytes


def test_the_file_is_closed_when_blocks_are_left_behind(tmp_path):
    path = tmp_path / "a.wav"
    path.write_bytes(pcm16(tone(5.0)))
    stream = blocks(path)
    next(stream)
    assert str(path) in {file.path for file in psutil.Process().open_files()}
    stream.close()
    assert str(path) not in {file.path for file in psutil.Process().open_files()}


def test_reading_imports_the_extras_only_when_they_are_needed():
    code = (
        "import sys, onnxgen.audio.reading, onnxgen.audio.features; "
        "print([m for m in ('soundfile', 'soxr', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
