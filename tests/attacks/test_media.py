"""Each hostile recording and image ends as its line in cases.json says, however it is given."""

import io
import json
import os
import threading
import time
import tracemalloc
import warnings

import numpy as np
import pytest
from PIL import Image

import onnxgen
from onnxgen import errors
from onnxgen.audio.reading import read
from onnxgen.errors import AudioError, ImageError, OnnxgenError
from onnxgen.vision.loading import load
from scripts.attacks.media import BUILT, WORDS, build, frames
from tests.cli.running import run, start
from tests.fixture_models import FIXTURES

PLACE = FIXTURES / "attacks" / "media"
CASES = {case["name"]: case for case in json.loads((PLACE / "cases.json").read_text())}
AUDIO = [name for name in CASES if name.endswith((".wav", ".flac", ".ogg"))]
IMAGES = [name for name in CASES if name not in AUDIO]
MODELS = FIXTURES / "models"
SECRET = "xyzzy"
SHORT = ("one-sample.wav", "rate-192000.wav", "channels-32.wav")
ENDS = 10  # seconds


@pytest.fixture(autouse=True)
def _cut_files_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def content(name: str) -> bytes:
    return build(name) if name in BUILT else (PLACE / name).read_bytes()


class Piped:
    """The reading end of a pipe that another thread fills; reads come short."""

    def __init__(self, data: bytes) -> None:
        source, sink = os.pipe()
        self.file = os.fdopen(source, "rb", buffering=0)
        self.thread = threading.Thread(target=self._fill, args=(sink, data), daemon=True)
        self.thread.start()

    def _fill(self, sink: int, data: bytes) -> None:
        try:
            with os.fdopen(sink, "wb") as out:
                out.write(data)
        except BrokenPipeError:  # enough was read to refuse it
            pass

    def __enter__(self):
        return self.file

    def __exit__(self, *_):
        self.file.close()
        self.thread.join()


def ends(take, name, tmp_path) -> None:
    """``take`` ends as the case says with a path, bytes, a file and a pipe."""
    data, must = content(name), CASES[name]["must"]
    path = tmp_path / name
    path.write_bytes(data)
    with Piped(data) as pipe, path.open("rb") as file:
        for source in (path, str(path), data, bytearray(data), io.BytesIO(data), file, pipe):
            began = time.monotonic()
            if must == "loads":
                take(source)
            else:
                with pytest.raises(getattr(errors, must)) as caught:
                    take(source)
                assert SECRET not in str(caught.value)
            assert time.monotonic() - began < ENDS


@pytest.mark.parametrize("name", AUDIO)
def test_a_recording(name, tmp_path):
    def take(source):
        found = read(source, max_seconds=10)
        assert found.dtype == np.float32
        assert len(found)
        assert np.isfinite(found).all()

    ends(take, name, tmp_path)


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_an_image(name, tmp_path):
    def take(source):
        found = load(source)
        assert found.mode == "RGB"
        assert found.size == {
            "one-pixel.png": (1, 1), "turned.jpg": (12, 16), "animated.gif": (2, 2),
        }.get(name, (16, 12))  # fmt: skip

    ends(take, name, tmp_path)
    if CASES[name]["must"] == "ImageError":  # the caller's Pillow image is no way around
        try:
            image = Image.open(io.BytesIO(content(name)), formats=["PNG", "JPEG", "GIF"])
        except Exception:
            return
        with pytest.raises(ImageError):
            load(image)


@pytest.mark.parametrize(
    ("model", "names"),
    [("whisper", AUDIO), ("moonshine", AUDIO), ("vit-gpt2", IMAGES)],
)
def test_a_models_own_call(model, names):
    """Whatever refuses a file alone refuses it there; the next request is answered."""
    loaded = onnxgen.load(MODELS / model)
    options = {"max_new_tokens": 2} | ({} if names is IMAGES else {"max_seconds": 10})
    for name in names:
        data = content(name)
        if CASES[name]["must"] == "loads":
            if name in SHORT and model == "moonshine":  # its filters are longer
                with pytest.raises(AudioError, match="too short for the model"):
                    loaded.generate(data, **options)
            else:
                loaded.generate(data, **options)
        else:
            with pytest.raises(getattr(errors, CASES[name]["must"])):
                loaded.generate(data, **options)


@pytest.mark.parametrize(
    ("command", "model", "name"),
    [
        ("transcribe", "whisper", "text.wav"),
        ("transcribe", "whisper", "nan.wav"),
        ("transcribe", "whisper", "no-samples.wav"),
        ("caption", "vit-gpt2", "text.png"),
        ("caption", "vit-gpt2", "header.png"),
    ],
)
def test_the_command_line(command, model, name):
    told = [run(command, str(MODELS / model), str(PLACE / name))]
    process = start(command, str(MODELS / model), "-")
    out, err = process.communicate(content(name), timeout=60)
    told.append((process.returncode, out.decode(), err.decode()))
    for code, _, said in told:
        assert code == 1
        assert "wanted" in said or "to do" in said
        assert "Traceback" not in said
        assert SECRET not in said


def test_limits_hold_while_a_pipe_is_read():
    class Endless(io.RawIOBase):
        given = 0

        def readinto(self, buffer):
            self.given += len(buffer)
            buffer[:] = bytes(len(buffer))
            return len(buffer)

        def readable(self):
            return True

    pipe = Endless()
    with pytest.raises(AudioError, match="more than 1000000 bytes"):
        read(pipe, max_bytes=1_000_000)
    assert pipe.given < 2_000_000
    pipe = Endless()
    with pytest.raises(ImageError, match="more than"):
        load(pipe, max_pixels=100_000)
    assert pipe.given < 4_000_000


def test_silence_is_not_unpacked_beyond_the_limit():
    tracemalloc.start()
    with pytest.raises(AudioError, match="longer than 10 s"):
        read(content("silence.flac"), max_seconds=10)
    assert tracemalloc.get_traced_memory()[1] < 3_000_000
    tracemalloc.stop()


class Bad:
    """What raises at every turn, and gives nothing that is wanted."""

    def __init__(self, given: object) -> None:
        self.given = given

    def read(self, _size: int = -1) -> object:
        if isinstance(self.given, BaseException):
            raise self.given
        return self.given

    def seekable(self) -> bool:
        return True

    def seek(self, *_: int) -> int:
        return 100

    def tell(self) -> int:
        return 0


class BadArray:
    shape = dtype = None

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise self.error


RAISED = [ValueError("a"), KeyError("a"), RuntimeError("a"), AttributeError("a"), MemoryError()]
RAISED += [ZeroDivisionError(), OverflowError(), StopIteration(), OSError("a"), RecursionError()]


@pytest.mark.parametrize("take", [read, load])
def test_what_foreign_objects_raise_is_ours(take):
    for error in RAISED:
        for source in (Bad(error), BadArray(error)):
            with pytest.raises(OnnxgenError):
                take(source)
    for given in (None, "text", 5, [b"a"], WORDS.decode()):
        with pytest.raises(OnnxgenError):
            take(Bad(given))


def deep(depth: int) -> list:
    found: list = [0.5]
    for _ in range(depth):
        found = [found]
    return found


ITSELF: list = []
ITSELF.append(ITSELF)
ARRAYS = [
    deep(100), deep(5000), ITSELF, [10**400], [[0.5], 0.5], [None], ["a"], [b"a"], [{}], [1j],
    np.zeros((0, 4)), np.zeros(3, "M8[s]"), np.zeros(3, object), np.zeros(3, "V4"),
    np.zeros(3, "U1"), np.zeros((1,) * 20), np.full(9, np.nan), np.full(9, np.inf), np.array(0.5),
    np.full((9, 2), np.float64(1e300)), {"array": ITSELF, "sampling_rate": 16_000},
]  # fmt: skip


@pytest.mark.parametrize("array", ARRAYS, ids=range(len(ARRAYS)))
def test_arrays_that_are_no_media(array):
    for take in (read, load):
        with pytest.raises(OnnxgenError):
            take(array)


def fuzz(take, seeds, count: int) -> None:
    """Changed, cut and spliced files load, or are one of our errors."""
    rng = np.random.default_rng(0)
    for turn in range(count):
        data = bytearray(seeds[turn % len(seeds)])
        for _ in range(rng.integers(1, 8)):
            data[rng.integers(len(data))] = rng.choice([0, 255, 127, 128, rng.integers(256)])
        if rng.random() < 0.3:
            del data[rng.integers(len(data)) :]
        if rng.random() < 0.2:
            at = rng.integers(len(data) + 1)
            data[at:at] = rng.bytes(rng.integers(1, 40))
        try:
            take(bytes(data))
        except OnnxgenError:
            continue


MUTANTS = int(os.environ.get("ONNXGEN_MUTANTS", "150"))
SEEDS = ("length-more.wav", "channels-32.wav", "flac.wav", "infinity.wav", "rate-192000.wav")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_mutants_load_or_are_our_errors():
    fuzz(lambda data: read(data, max_seconds=100), [content(name) for name in SEEDS], MUTANTS)
    images = [content(name) for name in IMAGES if CASES[name]["must"] == "loads"]
    images = [data if len(data) < 50_000 else frames(3) for data in images]
    fuzz(lambda data: load(data, max_pixels=100_000), images, MUTANTS)
