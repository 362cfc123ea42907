"""Tiny Whispers and Moonshines give transformers' tokens, segments and times of words."""

import json
from functools import cache

import numpy as np
import pytest

import onnxgen
from scripts.oracle.speech_audio import waveform
from tests.fixture_models import FIXTURES

FOLDERS = sorted(
    path.parent
    for path in (FIXTURES / "models").glob("*/expected.json")
    if json.loads(path.read_text()).get("task") == "automatic-speech-recognition"
)
EXPECTED = {folder.name: json.loads((folder / "expected.json").read_text()) for folder in FOLDERS}
CASES = [(name, case) for name, told in EXPECTED.items() for case in told["cases"]]
every_case = pytest.mark.parametrize(
    ("name", "case"), CASES, ids=[f"{name}-{case['name']}" for name, case in CASES]
)
# Under transformers' names, where onnxgen has its own.
NAMES = {"prompt": "initial_prompt"}


@cache
def load(name):
    return onnxgen.load(FIXTURES / "models" / name)


@cache
def clip(name, audio):
    return waveform(EXPECTED[name]["audio"][audio])


def keywords(arguments):
    own = {NAMES.get(key, key): value for key, value in arguments.items()}
    if own.get("max_length") == "seconds":  # the rule of Moonshine's card, which is the default
        del own["max_length"]
    if own.pop("return_token_timestamps", False):
        own["return_timestamps"] = "word"
    if isinstance(own.get("temperature"), list):
        own["temperature"] = tuple(own["temperature"])
    if "seed" in own:
        own["rng"] = "torch"
    return own


def answers(name, case):
    clips = [clip(name, audio) for audio in case["audio"]]
    found = load(name).generate(clips, **keywords(case["arguments"]))
    return list(zip(found, case.get("rows") or [case], strict=True))


def tokens_of(transcript):
    return [token for segment in transcript.segments for token in segment.tokens]


@every_case
def test_as_transformers_generates(name, case):
    for found, told in answers(name, case):
        assert tokens_of(found) == told["tokens"]
        assert found.text == told["text"]
        for segment, expected in zip(found.segments, told.get("segments", ()), strict=False):
            assert list(segment.tokens) == expected["tokens"]
            assert segment.start == pytest.approx(expected["start"], abs=1e-6)
            assert segment.end == pytest.approx(expected["end"], abs=1e-6)
        if "segments" in told:
            assert len(found.segments) == len(told["segments"])
        if "words" in told:
            assert [word.text for word in found.words] == [w["text"] for w in told["words"]]
            said = np.maximum.accumulate([w[at] for w in told["words"] for at in ("start", "end")])
            times = [time for word in found.words for time in (word.start, word.end)]
            assert times == pytest.approx(np.minimum(said, found.duration).tolist(), abs=0.0201)


@pytest.mark.parametrize("name", [n for n in EXPECTED if "languages" in EXPECTED[n]])
def test_languages_are_detected(name):
    for audio, language in EXPECTED[name]["languages"].items():
        found = load(name).generate(clip(name, audio), return_timestamps=True, max_new_tokens=2)
        assert found.language == (language["language"] if isinstance(language, dict) else language)


@pytest.mark.parametrize("name", EXPECTED)
def test_several_recordings_are_each_as_if_alone(name):
    case = next(c for c in EXPECTED[name]["cases"] if len(c["audio"]) == 1)
    clips = [clip(name, audio) for audio in EXPECTED[name]["audio"]][:4]
    options = keywords(case["arguments"])
    options.pop("return_timestamps", None)
    together = load(name).generate(clips, **options)
    assert [tokens_of(one) for one in together] == [
        tokens_of(load(name).generate(one, **options)) for one in clips
    ]
