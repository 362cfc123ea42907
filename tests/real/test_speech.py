"""Whisper on real speech: tokens, segments and words of transformers in float32.

What transformers says is in ``fixtures/real``, written by ``scripts/real_speech_expectations.py``.
"""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import onnxgen
from onnxgen.audio.reading import read
from tests.fixture_models import FIXTURES

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
RATE = 16_000
EXPECTED = {
    path.stem: json.loads(path.read_text()) for path in (FIXTURES / "real").glob("whisper-*.json")
}
# Under transformers' names, where onnxgen has its own.
NAMES = {"prompt": "initial_prompt"}


def cases(kind):
    return pytest.mark.parametrize(
        ("name", "case"),
        [
            pytest.param(
                name,
                case,
                id=f"{name}-{'+'.join(case['audio'])}-{_short(case['arguments'])}",
                marks=[pytest.mark.long] if _is_long(name, case) else [],
            )
            for name, told in EXPECTED.items()
            for case in told[kind]
        ],
    )


def _is_long(name, case):
    """Minutes of speech, but for the plain call of the smaller model."""
    plain = case["audio"] == ["minutes"] and case["arguments"] == {"return_timestamps": True}
    return "minutes" in case["audio"] and not (plain and name != "whisper-base")


def _short(arguments):
    return ",".join(f"{key[:9]}={value}" for key, value in arguments.items()) or "plain"


@cache
def load(folder):
    return onnxgen.load(folder, task="speech-to-text")


@pytest.fixture(scope="session")
def clip(real_models):
    """Makes a clip as the expectations describe it: parts of files, and silence."""

    @cache
    def samples(name):
        return read(real_models / name)

    def make(parts):
        pieces = []
        for part in parts:
            if isinstance(part, float):
                pieces.append(np.zeros(round(part * RATE), np.float32))
                continue
            name, start, end = part
            stop = None if end is None else round(end * RATE)
            pieces.append(samples(name)[round(start * RATE) : stop])
        return np.concatenate(pieces)

    return make


def keywords(arguments):
    """The arguments of ``generate`` in transformers as onnxgen's."""
    own = {NAMES.get(key, key): value for key, value in arguments.items()}
    if own.pop("return_token_timestamps", False):
        own["return_timestamps"] = "word"
    if isinstance(own.get("temperature"), list):
        own["temperature"] = tuple(own["temperature"])
    if "seed" in own:
        own["rng"] = "torch"
    return own


def compare(found, told):
    tokens = [token for segment in found.segments for token in segment.tokens]
    assert tokens == told["tokens"]
    assert found.text == told["text"]
    for segment, expected in zip(found.segments, told["segments"], strict=True):
        assert list(segment.tokens) == expected["tokens"]
        assert segment.start == pytest.approx(expected["start"], abs=1e-6)
        assert segment.end == pytest.approx(expected["end"], abs=1e-6)
    if "words" in told:
        assert [word.text for word in found.words] == [w["text"] for w in told["words"]]
        times = [time for word in found.words for time in (word.start, word.end)]
        # Where a window begins before the last word has ended, transformers' times go back.
        said = np.maximum.accumulate([w[at] for w in told["words"] for at in ("start", "end")])
        assert times == pytest.approx(np.minimum(said, found.duration).tolist(), abs=0.0201)
        assert times == sorted(times)
        assert times[-1] <= found.duration


def model_of(name, case, real_models):
    words = case["arguments"].get("return_token_timestamps") or (
        case["arguments"].get("return_timestamps") == "word"
    )
    return load(Path(real_models) / (f"{name}-timestamped" if words else name))


@cases("cases")
def test_as_transformers_generates(name, case, clip, real_models):
    clips = [clip(EXPECTED[name]["clips"][audio]) for audio in case["audio"]]
    model = model_of(name, case, real_models)
    options = keywords(case["arguments"])
    if len(clips) > 1:
        for found, told in zip(model.generate(clips, **options), case["rows"], strict=True):
            compare(found, told)
        return
    compare(model.generate(clips[0], **options), case)


@cases("pipeline")
def test_as_the_pipeline_merges(name, case, clip, real_models):
    model = model_of(name, case, real_models)
    found = model.generate(clip(EXPECTED[name]["clips"][case["audio"][0]]), **case["arguments"])
    assert found.text == case["text"]
    if not case["chunks"]:
        return
    words = case["arguments"].get("return_timestamps") == "word"
    got = found.words if words else found.segments
    assert [one.text for one in got] == [one["text"] for one in case["chunks"]]
    for one, told in zip(got, case["chunks"], strict=True):
        assert (one.start, one.end) == pytest.approx((told["start"], told["end"]), abs=0.0201)


@pytest.mark.parametrize(
    ("name", "audio"),
    [(name, audio) for name, told in EXPECTED.items() for audio in told.get("languages", {})],
)
def test_the_language_is_detected(name, audio, clip, real_models):
    expected = EXPECTED[name]["languages"][audio]["language"]
    parts = EXPECTED[name]["clips"].get(audio)
    if parts is None:  # no case of the file is about this clip yet
        parts = next(t["clips"][audio] for t in EXPECTED.values() if audio in t["clips"])
    found = load(real_models / name).generate(clip(parts), max_new_tokens=1)
    assert f"<|{found.language}|>" == expected
    assert 0.5 < found.language_probability <= 1
