"""Every option with values that make no sense: an error of ours, or an answer; never a crash.

Ids are held against the width of the logits: NumPy takes -1 for the last one, silently.
"""

import math
import warnings

import numpy as np
import pytest

from onnxgen.errors import CapacityError, LogitsError, OnnxgenError, OptionError, OutOfMemoryError
from onnxgen.generation.config import FLAGS, MOST_ID, OPTIONS
from scripts.stress_jobs import model, tokens

PROMPT = [5, 6, 7]
V = 288  # llama's
NUMBERS = [
    math.nan, math.inf, -math.inf, -1, -0.5, 0, 0.5, 1, 10**6, 2**31, 2**63, 2**64, 10**30,
    -(10**30), 1e38, 1e300, "1", "", True, [], {}, [1], (1, 2), b"1", np.float32("nan"), object(),
]  # fmt: skip
WAYS = ({"do_sample": False}, {"do_sample": True, "seed": 1}, {"num_beams": 2})
IDS = {
    "eos_token_id": [lambda i: i, lambda i: [3, i]],
    "suppress_tokens": [lambda i: [i], lambda i: [3, i]],
    "begin_suppress_tokens": [lambda i: [i]],
    "forced_bos_token_id": [lambda i: i],
    "forced_eos_token_id": [lambda i: i, lambda i: [3, i]],
    "bad_words_ids": [lambda i: [[i]], lambda i: [[3, i]], lambda i: [[i, 3]]],
    "logit_bias": [lambda i: {i: 1.0}],
    "sequence_bias": [lambda i: {(i,): 1.0}, lambda i: {(3, i): 1.0}, lambda i: [[[i], 1.0]]],
    "prefix_allowed_tokens_fn": [lambda i: lambda row, ids: [3, i]],
    "negative_prompt_ids": [lambda i: [[i]], lambda i: [[3, i]]],
    "proposer": [lambda i: lambda ids: [i]],
}
# What is looked at where tokens are drawn alone, as in transformers.
CHANCE = {
    "temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "seed",
    "seeds", "rng",
}  # fmt: skip
# A list of stop ids may name some that the model cannot choose: files of fine-tuned models do.
BEYOND = {"eos_token_id"}


@pytest.fixture(scope="module")
def llama():
    own = model("llama")
    assert own.model.vocab_size == V
    return own


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_any_value_of_any_option_ends_in_an_answer_or_an_error_of_ours(name, llama):
    for way in WAYS:
        for value in NUMBERS:
            options = {"max_new_tokens": 2, **way, name: value}
            if name in ("max_length", "min_length") and value == 10**6:
                options.pop("max_new_tokens")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    answer = llama.generate(PROMPT, **options)
                except OnnxgenError:
                    continue
                except Exception as error:
                    raise AssertionError(f"{options}: {type(error).__name__}: {error}") from error
            assert all(0 <= i < V for row in tokens(answer) for i in row)
            assert name not in FLAGS or value is True, options
            acts = name not in CHANCE or ("do_sample" in way and way["do_sample"])
            real = isinstance(value, float | np.floating)
            assert not (acts and real and math.isnan(value)), options


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("wrong", [-1, -V, V, V + 1, 2**31, 2**63, 10**30, 1.5, "3", None], ids=str)
def test_ids_outside_of_the_logits_are_refused(name, wrong, llama):
    more = {"guidance_scale": 1.5} if name == "negative_prompt_ids" else {}
    for make in IDS[name]:
        options = {"max_new_tokens": 8, "eos_token_id": None, **more, name: make(wrong)}
        off = wrong is None and (name == "eos_token_id" or make(wrong) is None)
        if off or (name in BEYOND and isinstance(wrong, int) and V <= wrong < MOST_ID):
            llama.generate(PROMPT, **options)
            continue
        with pytest.raises(OptionError):
            llama.generate(PROMPT, **options)


@pytest.mark.parametrize(
    "wrong", [[-1], [5, V], [10**30], [5, 2**63], [-V, 5], [1.5], [None]], ids=str
)
def test_prompt_ids_are_held_against_the_logits(wrong, llama):
    for prompt in (wrong, [[5, 6], wrong]):
        with pytest.raises(OptionError):
            llama.generate(prompt, max_new_tokens=2)
    with pytest.raises(OptionError):
        llama.score([5, 6], wrong)


@pytest.mark.parametrize("name", ["llama", "genai-llama", "gemma3_text"])
def test_prompts_at_one_under_and_one_over_the_context(name):
    own = model(name)
    bound = own.capacity
    options = {"eos_token_id": None, "max_new_tokens": 5}
    # A row's last token is returned and never fed, so a full context still gives one.
    for length, count in ((bound - 1, 2), (bound, 1)):
        answer = own.generate([5] * length, **options)
        assert (len(answer.tokens), answer.finish_reason) == (count, "length")
    with pytest.raises(CapacityError, match=str(bound)):
        own.generate([5] * (bound + 1), **options)
    for nothing in (0, -1):
        with pytest.raises(OptionError, match="max_new_tokens"):
            own.generate([5], max_new_tokens=nothing)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_one_row_of_logits_that_make_no_sense_is_named(bad, way, llama, monkeypatch):
    """NaN and infinity, as halves overflow; all of a row banned. In the second row, second step."""
    from onnxgen.runtime.decoder import Decoder

    step, calls = Decoder.step, []

    def broken(self, rows, lengths):
        logits = np.array(step(self, rows, lengths))
        calls.append(len(logits))
        if len(calls) == 2:
            beams = way.get("num_beams", 1)
            if math.isinf(bad) and bad < 0:
                logits[beams : 2 * beams] = bad
            else:
                logits[beams : 2 * beams, 7] = bad
        return logits

    options = {"max_new_tokens": 4, "eos_token_id": None, **way}
    whole = tokens(llama.generate([PROMPT, [8, 9]], **options))
    with monkeypatch.context() as patch:
        patch.setattr(Decoder, "step", broken)
        with pytest.raises(LogitsError, match=r"row 1 .*step 2"):
            llama.generate([PROMPT, [8, 9]], **options)
    assert tokens(llama.generate([PROMPT, [8, 9]], **options)) == whole


def test_a_length_beyond_any_memory_is_refused_where_nothing_bounds_it():
    own = model("bloom")
    for name in ("max_new_tokens", "max_length"):
        for value in (2**31, 2**63, 10**30):
            with pytest.raises(OutOfMemoryError):
                own.generate(PROMPT, **{name: value})
