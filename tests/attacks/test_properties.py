"""What holds for any text, any ids, any options and any batch, tried with what hypothesis draws.

The examples are the same in each run and few; ONNXGEN_EXAMPLES=5000 in the environment draws so
many, other ones each time.
"""

import os
from contextlib import suppress
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onnxgen
from onnxgen.errors import OnnxgenError, OptionError, TokenizerError
from onnxgen.generation.config import GenerationConfig
from onnxgen.text.stream import TextStream
from tests.fixture_models import FIXTURES, MODES, FixtureModel
from tests.text.goldens import TOKENIZERS, load

MANY = int(os.environ.get("ONNXGEN_EXAMPLES", "0"))


def bounded(examples: int) -> settings:
    return settings(
        max_examples=MANY or examples,
        derandomize=not MANY,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


# Text.

AWKWARD = [
    "👩‍👩‍👧‍👦",
    "👍🏽",
    "🇫🇷",
    "東京",
    "한국어",
    "é",
    "e\u0301",
    "\u200d",
    "\ufeff",
    "\0",
    "\r\n",
    "ﷺ",
    " ",
]
STOPS = st.lists(
    st.text(min_size=1, max_size=6) | st.sampled_from(["</s>", "a", "aa", "\ud800"]), max_size=9
)
TEXT = st.lists(st.sampled_from(AWKWARD) | st.text(max_size=4), max_size=6).map("".join)
IDS = st.lists(st.integers(0, 300) | st.integers(0, 2**32 - 1), max_size=12)


def streamed(tokenizer, ids, skip):
    stream = TextStream(tokenizer, skip_special_tokens=skip)
    return "".join([*map(stream.push, ids), stream.finish()])


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=TEXT, ids=IDS, skip=st.booleans())
@bounded(15)
def test_streamed_pieces_are_the_whole(name, text, ids, skip):
    tokenizer = load(name)
    for some in (ids, tokenizer.encode(text)):
        assert streamed(tokenizer, some, skip) == tokenizer.decode(some, skip_special_tokens=skip)


@pytest.mark.parametrize("name", ["gpt2", "llama3"])  # bytes, and nothing is normalized
@given(text=TEXT)
@bounded(25)
def test_text_of_bytes_comes_back(name, text):
    tokenizer = load(name)
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert streamed(tokenizer, ids, skip=False) == text


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.binary(max_size=30))
@bounded(10)
def test_what_is_no_unicode_is_refused(name, data):
    text = data.decode("utf-8", errors="surrogateescape")
    try:
        data.decode()
    except UnicodeDecodeError:
        with pytest.raises(TokenizerError):
            load(name).encode(text)
    else:
        load(name).encode(text)


# Options.

NUMBERS = (
    st.sampled_from([0, 1, -1, 2, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.5, 1e-320, 1e300])
    | st.sampled_from([float("nan"), float("inf"), -float("inf"), True, False])
    | st.integers(-5, 200)
    | st.floats()
)
PLAIN = NUMBERS | st.none() | st.text(max_size=5) | st.binary(max_size=3)
ODD = st.sampled_from(
    [
        np.int64(3),
        np.float32(0.5),
        np.zeros(3),
        np.array([1, 2]),
        np.array(5),
        object(),
        len,
        {1},
        1j,
    ]
)
VALUE = st.recursive(
    PLAIN | ODD,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(PLAIN, inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=6,
)
FUNCTIONS = (
    *("logits_processor", "stopping_criteria", "prefix_allowed_tokens_fn", "cache", "proposer"),
    *("negative_prompt_ids", "assistant_model", "generation_config", "config"),
)
NAMES = [*(field.name for field in fields(GenerationConfig)), *FUNCTIONS]
OPTIONS = st.dictionaries(st.sampled_from(NAMES), VALUE, min_size=1, max_size=3)
LLAMA = FixtureModel(FIXTURES / "models/llama")


@pytest.fixture(scope="module")
def llama():
    return onnxgen.load(LLAMA.folder)


@pytest.mark.filterwarnings("ignore::UserWarning")
@given(options=OPTIONS, many=st.booleans())
@bounded(400)
def test_any_options_work_or_are_our_error(llama, options, many):
    prompt = LLAMA.prompts[:2] if many else LLAMA.prompts[0]
    with suppress(OnnxgenError):
        llama.generate(prompt, **{"max_new_tokens": 2} | options)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", NAMES)
@given(value=VALUE)
@bounded(12)
def test_any_value_of_an_option_works_or_is_our_error(llama, name, value):
    with suppress(OnnxgenError):
        llama.generate(LLAMA.prompts[0], **{"max_new_tokens": 2, name: value})


@given(stops=STOPS, most=st.sampled_from([1, 200]))
@bounded(40)
def test_stop_strings_of_any_kind_and_number(stops, most):
    """Overlapping ones, hundreds of them, that of the end token; an empty one is refused."""
    model = loaded("append")
    prompt, options = LLAMA.prompts[0], {"max_new_tokens": 6, "eos_token_id": None}
    free = list(model.generate(prompt, **options).tokens)
    if not stops:
        for wrong in (stops, "", [""], ["a", ""]):
            with pytest.raises(OptionError):
                model.generate(prompt, stop_strings=wrong, **options)
        return
    found = list(model.generate(prompt, stop_strings=stops * most, **options).tokens)
    assert found == free[: len(found)]
    assert found == list(model.generate(prompt, stop_strings=stops[::-1], **options).tokens)


PROMPT = st.recursive(
    PLAIN | ODD | st.lists(st.integers(0, 127), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.fixed_dictionaries({"role": inner, "content": inner})
        | st.fixed_dictionaries({"role": st.just("user"), "content": inner}).map(lambda m: [m])
    ),
    max_leaves=5,
)


@given(prompt=PROMPT)
@bounded(150)
def test_any_prompt_works_or_is_our_error(llama, prompt):
    with suppress(OnnxgenError):
        llama.generate(prompt, max_new_tokens=1)


# Batches.


@pytest.mark.parametrize("mode", MODES)
@given(data=st.data())
@bounded(8)
def test_ragged_batches_equal_single_runs(mode, data):
    model = loaded(mode)
    vocab = model.model.vocab_size if hasattr(model.model, "vocab_size") else 64
    row = st.lists(st.integers(0, min(vocab, 64) - 1), min_size=1, max_size=30)
    prompts = data.draw(st.lists(row, min_size=2, max_size=5))
    options = {"max_new_tokens": data.draw(st.integers(1, 6)), "eos_token_id": None}
    together = model.generate(prompts, **options)
    alone = [model.generate([prompt], **options)[0] for prompt in prompts]
    assert [list(one.tokens) for one in together] == [list(one.tokens) for one in alone]


_LOADED: dict = {}


def loaded(mode):
    if mode not in _LOADED:
        _LOADED[mode] = onnxgen.load(FIXTURES / MODES[mode])
    return _LOADED[mode]
