"""Speculative decoding of real graphs: the tokens are those of plain decoding, with fewer runs."""

import pytest

import onnxgen
from onnxgen.tasks.cache import Cache
from tests.fixture_models import FIXTURES

MODELS = FIXTURES / "models"
LLAMA = MODELS / "llama"
PROMPT = [5, 9, 12, 40, 41, 42, 43, 5, 9, 12, 40, 41]
# Each cache mode, one that appends (rewinding copies), one rewritten, pairs aside.
FOLDERS = ["llama", "genai-llama", "gpt2", "mistral", "llama-nocache"]
SETTINGS = {
    "greedy": {},
    "sampled": {"do_sample": True, "seed": 3, "temperature": 0.8, "top_k": 20},
    "torch's draws": {"do_sample": True, "seed": 3, "rng": "torch"},
    "processors": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "min_new_tokens": 10},
}


def load(name, **options):
    return onnxgen.load(MODELS / name, threads=1, **options)


@pytest.fixture(scope="module", params=FOLDERS)
def model(request):
    return load(request.param)


@pytest.mark.parametrize("name", SETTINGS)
def test_tokens_are_those_of_plain_decoding(model, name):  # known problems C23, C24
    settings = {"max_new_tokens": 24, "logprobs": True, **SETTINGS[name]}
    plain = model.generate(PROMPT, **settings)
    looked = model.generate(PROMPT, prompt_lookup_num_tokens=4, **settings)
    assert looked.tokens == plain.tokens
    assert looked.finish_reason == plain.finish_reason
    assert looked.token_logprobs == pytest.approx(plain.token_logprobs, abs=1e-4)
    assert plain.speculation is None
    assert looked.speculation.steps <= len(plain.tokens)


@pytest.mark.parametrize("name", SETTINGS)
def test_right_guesses_save_runs(model, name):
    settings = {"max_new_tokens": 24, "eos_token_id": None, **SETTINGS[name]}
    plain = model.generate(PROMPT, **settings)

    def known(ids):
        return plain.tokens[len(ids) - len(PROMPT) :]

    found = model.generate(PROMPT, proposer=known, **settings)
    assert found.tokens == plain.tokens
    assert found.speculation.accepted == found.speculation.proposed > 0
    assert found.speculation.steps < len(plain.tokens) / 2


def test_wrong_guesses_change_nothing(model):
    plain = model.generate(PROMPT, max_new_tokens=16)
    wrong = model.generate(PROMPT, max_new_tokens=16, proposer=lambda ids: [7] * 5)
    assert wrong.tokens == plain.tokens


@pytest.mark.parametrize("name", ["greedy", "sampled"])
def test_an_assistant_that_is_the_model_itself(name):
    model = load("llama")
    settings = {"max_new_tokens": 24, "eos_token_id": None, **SETTINGS[name]}
    plain = model.generate(PROMPT, **settings)
    helped = model.generate(PROMPT, assistant_model=load("llama"), **settings)
    assert helped.tokens == plain.tokens
    assert helped.speculation.acceptance > 0.9
    assert helped.speculation.steps < len(plain.tokens)


def test_a_stream_and_a_kept_cache():
    model, cache = load("llama"), Cache()
    plain = model.generate(PROMPT, max_new_tokens=12)
    pieces = list(model.stream(PROMPT, max_new_tokens=12, prompt_lookup_num_tokens=3, cache=cache))
    assert tuple(piece.token for piece in pieces) == plain.tokens
    longer = [*PROMPT, *plain.tokens, 8]
    after = model.generate(longer, max_new_tokens=6, cache=cache)
    assert after.tokens == model.generate(longer, max_new_tokens=6).tokens


WRONG = {
    "two prompts": ([PROMPT, PROMPT], {"prompt_lookup_num_tokens": 3}, "several rows"),
    "beams": (PROMPT, {"prompt_lookup_num_tokens": 3, "num_beams": 2}, "beams"),
    "guidance": (PROMPT, {"prompt_lookup_num_tokens": 3, "guidance_scale": 2.0}, "guidance"),
    "zero": (PROMPT, {"prompt_lookup_num_tokens": 0}, "prompt_lookup_num_tokens"),
    "n-grams alone": (PROMPT, {"max_matching_ngram_size": 2}, "give both"),
    "two who guess": (
        PROMPT, {"prompt_lookup_num_tokens": 3, "proposer": lambda ids: []}, "several who guess"
    ),
    "no function": (PROMPT, {"proposer": 3}, "proposer is or holds a int"),
    "no assistant": (PROMPT, {"assistant_model": "llama"}, "assistant_model is a str"),
    "no ids": (PROMPT, {"proposer": lambda ids: ["a"]}, "a proposer gave"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input(name):
    prompt, given, words = WRONG[name]
    with pytest.raises(onnxgen.OnnxgenError, match=words):
        load("llama").generate(prompt, max_new_tokens=6, **given)


def test_an_assistant_with_other_tokens():
    with pytest.raises(onnxgen.OnnxgenError, match="other tokens"):
        load("llama").generate(PROMPT, assistant_model=load("smolvlm"))
