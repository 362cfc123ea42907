"""Tiny Whispers and Moonshines give transformers' tokens, segments and times of words."""

import json
from functools import cache

import pytest

import onnxgen
from onnxgen.audio.transcript import Segment, SpeechTokens
from onnxgen.audio.words import with_words
from scripts.oracle.speech_audio import waveform
from tests.fixture_models import FIXTURES

FOLDERS = sorted(
    path.parent
    for path in (FIXTURES / "models").glob("*/expected.json")
    if json.loads(path.read_text()).get("task") == "automatic-speech-recognition"
)
EXPECTED = {folder.name: json.loads((folder / "expected.json").read_text()) for folder in FOLDERS}
CASES = [
    (name, case)
    for name, told in EXPECTED.items()
    for case in told["cases"]
    # onnxgen's "word" asks for times of segments as well, as the pipeline does.
    if case["arguments"].get("return_token_timestamps", False)
    <= case["arguments"].get("return_timestamps", False)
]


def leaks(case):
    """Whether transformers lets items of a batch change each other.

    Prompts of what was said before are padded to the longest, which shifts positions; and times of
    words are sought in the padding behind a shorter answer, too.
    """
    telling = {"condition_on_prev_tokens", "return_token_timestamps"}
    return len(case["audio"]) > 1 and bool(telling & case["arguments"].keys())


def cases(found):
    ids = [f"{name}-{case['name']}" for name, case in found]
    return pytest.mark.parametrize(("name", "case"), found, ids=ids)


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


def compare(found, told, speech):
    assert tokens_of(found) == told["tokens"]
    assert found.text == told["text"]
    if "segments" not in told:
        return
    assert len(found.segments) == len(told["segments"])
    said = 0.0
    for segment, expected in zip(found.segments, told["segments"], strict=True):
        assert list(segment.tokens) == expected["tokens"]
        # Text before the first timestamp: transformers' begins before its window.
        begin = max(expected["start"], (segment.seek or 0) / 100)
        assert segment.start == pytest.approx(begin, abs=1e-6)
        assert segment.end == pytest.approx(expected["end"], abs=1e-6)
        if "token_timestamps" not in expected:
            continue
        plain = Segment(expected["start"], expected["end"], "", tuple(expected["tokens"]))
        right = with_words(plain, expected["token_timestamps"], speech, found.language).words
        assert [word.text for word in segment.words] == [word.text for word in right]
        for word, other in zip(segment.words, right, strict=True):
            # Where a window begins before the last word has ended, transformers' times go back.
            start = min(max(said, other.start), max(found.duration, said))
            said = min(max(start, other.end), max(found.duration, said))
            assert (word.start, word.end) == pytest.approx((start, said), abs=0.0201)


def speech_of(model):
    begin = model.defaults.get("no_timestamps_token_id", model.model.vocab_size) + 1
    end = model.defaults["eos_token_id"]
    return SpeechTokens(end, begin, model.tokenizer.decode)


@cases([(name, case) for name, case in CASES if not leaks(case)])
def test_as_transformers_generates(name, case):  # known problems A5, A7, A12, A14
    for found, told in answers(name, case):
        compare(found, told, speech_of(load(name)))


@cases([(name, case) for name, case in CASES if leaks(case)])
def test_a_batch_where_transformers_leaks_equals_single_runs(name, case):
    options = keywords(case["arguments"])
    for audio, (found, _) in zip(case["audio"], answers(name, case), strict=True):
        alone = load(name).generate(clip(name, audio), **options)
        assert (found.segments, found.text) == (alone.segments, alone.text)


@pytest.mark.parametrize("name", [n for n in EXPECTED if "languages" in EXPECTED[n]])
def test_languages_are_detected(name):  # known problem A11
    for audio, language in EXPECTED[name]["languages"].items():
        found = load(name).generate(clip(name, audio), return_timestamps=True, max_new_tokens=2)
        assert f"<|{found.language}|>" == language["language"]


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
