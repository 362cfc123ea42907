"""Tokens chosen by a graph are those that NumPy chooses, through the whole of a generation."""

import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import onnx
import pytest

import onnxgen
from onnxgen.errors import LogitsError, OnnxgenError, OptionError
from onnxgen.tasks import selecting
from tests.fixture_models import FIXTURES
from tests.tasks.random_options import random_options

# A graph of each kind that keeps its logits in another way.
FOLDERS = {
    "in place": "handmade/gqa_values",
    "in place, equal lengths": "handmade/gqa_mask_length",
    "append": "handmade/concat_positions",
    "grow": "handmade/concat_alibi",
    "no cache": "handmade/no_cache",
    "half precision": "handmade/fp16",
    "pruned logits": "handmade/pruned_logits",
    "flat logits": "handmade/rank2_logits",
    "un-merged pair": "models/llama-pair",
}
PROMPTS = [[15, 17, 87, 34, 25], [64], [29, 87, 76, 87, 95, 7, 13, 83]]
CONFIGS = {
    "greedy": {},
    "logprobs": {"logprobs": True, "top_logprobs": 3},
    "penalties": {"repetition_penalty": 1.7, "logit_bias": {5: 3.0}, "suppress_tokens": [8, 9]},
    "ends": {"min_new_tokens": 3, "eos_token_id": list(range(0, 97, 5)), "forced_eos_token_id": 4},
    "sampling": {"do_sample": True, "top_k": 0, "seed": 3},
    "sampling as torch": {"do_sample": True, "top_k": 0, "seed": 3, "rng": "torch"},
    "few as torch": {"do_sample": True, "top_k": 9, "seed": 3, "rng": "torch"},
    "warpers": {
        "do_sample": True, "temperature": 1.4, "top_k": 20, "top_p": 0.9, "min_p": 0.01,
        "seeds": [1, 2, 3], "num_return_sequences": 2, "logprobs": True,
    },
    "beams": {"num_beams": 3, "num_return_sequences": 2, "logprobs": True, "eos_token_id": [5, 9]},
    "drawn beams": {"num_beams": 2, "do_sample": True, "top_k": 0, "top_p": 0.95, "seed": 5},
    "drawn beams as torch": {"num_beams": 2, "do_sample": True, "seed": 5, "rng": "torch"},
}  # fmt: skip


@cache
def load(folder, selection):
    return onnxgen.load(FIXTURES / folder, selection=selection, threads=1)


def outcome(model, prompts, keywords):
    """All answers, or the error that there is, and what is said of the selection."""
    request = model.request(prompts, None, {"max_new_tokens": 8, "eos_token_id": None} | keywords)
    try:
        for _ in request.steps():
            pass
    except OnnxgenError as error:
        return error, str(request.selection)
    return [own for answers in request.results() for own in answers], str(request.selection)


def same(found, expected):
    if isinstance(expected, LogitsError):
        assert str(found) == str(expected)
        return
    assert len(found) == len(expected)
    for own, right in zip(found, expected, strict=True):
        assert own.tokens == right.tokens
        assert own.finish_reason == right.finish_reason
        assert own.beam_indices == right.beam_indices
        for name in ("token_logprobs", "transition_scores", "sequence_score"):
            a, b = getattr(own, name), getattr(right, name)
            assert (a is None) == (b is None)
            if b is not None:
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)
        assert (own.top_logprobs is None) == (right.top_logprobs is None)
        for best, most in zip(own.top_logprobs or (), right.top_logprobs or (), strict=True):
            assert [i for i, _ in best] == [i for i, _ in most]
            np.testing.assert_allclose([v for _, v in best], [v for _, v in most], atol=1e-4)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("kind", FOLDERS)
def test_tokens_of_a_ragged_batch_equal_those_of_numpy(kind, config):
    expected, by = outcome(load(FOLDERS[kind], None), PROMPTS, CONFIGS[config])
    assert by == "numpy"
    found, by = outcome(load(FOLDERS[kind], "onnx"), PROMPTS, CONFIGS[config])
    assert by == "onnx"
    same(found, expected)


def drawn(rng):
    """A random configuration, of whatever method, and prompts."""
    keywords = random_options(rng, 97)
    prompts = [PROMPTS[i] for i in rng.permutation(3)[: rng.integers(1, 4)]]
    sampling, beams = bool(rng.random() < 0.6), int(rng.choice([1, 1, 2, 4]))
    keywords |= {"do_sample": sampling, "num_beams": beams, "max_new_tokens": 5}
    if sampling:
        keywords |= {
            "seed": int(rng.integers(1 << 30)),
            "rng": str(rng.choice(["philox", "torch"])),
        }
    if beams > 1:
        keywords.pop("top_logprobs", None)
        keywords |= {
            "length_penalty": float(rng.choice([-1.0, 0.0, 2.0])),
            "early_stopping": [True, False, "never"][rng.integers(3)],
        }
    if beams > 1 or sampling:
        keywords["num_return_sequences"] = int(rng.integers(1, 1 + max(beams, 2)))
    if rng.random() < 0.1:
        keywords["no_repeat_ngram_size"] = 2
    return prompts, keywords


@pytest.mark.filterwarnings("ignore:min_new_tokens is given")
@pytest.mark.parametrize("case", range(300))
def test_random_configurations(case):
    """Of one to three prompts."""
    rng = np.random.default_rng(case)
    folder = list(FOLDERS.values())[case % 6]
    prompts, keywords = drawn(rng)
    expected, _ = outcome(load(folder, "numpy"), prompts, keywords)
    found, by = outcome(load(folder, "onnx"), prompts, keywords)
    assert by == (
        "numpy (because of no_repeat_ngram_size)" if "no_repeat_ngram_size" in keywords else "onnx"
    )
    same(found, expected)


@pytest.mark.parametrize("folder", ["handmade/concat_positions", "handmade/gqa_values"])
@pytest.mark.parametrize("config", ["greedy", "warpers", "beams"])
def test_a_batch_whose_rows_run_one_by_one(folder, config, tmp_path):
    """Each row's logits are in a memory of their own; beams of a prompt are chosen together."""
    proto = onnx.load(FIXTURES / folder / "model.onnx")
    for value in [*proto.graph.input, *proto.graph.output]:
        value.type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(proto, tmp_path / "model.onnx")
    expected, _ = outcome(onnxgen.load(FIXTURES / folder), PROMPTS, CONFIGS[config])
    found, by = outcome(onnxgen.load(tmp_path, selection="onnx"), PROMPTS, CONFIGS[config])
    assert by == "onnx"
    same(found, expected)


def test_a_cache_goes_on():
    found = []
    for selection in ("numpy", "onnx"):
        model, kept = load("handmade/gqa_values", selection), onnxgen.Cache()
        first = model.generate(PROMPTS[0], max_new_tokens=4, cache=kept)
        longer = [*PROMPTS[0], *first.tokens, 3, 4]
        found.append((first.tokens, model.generate(longer, max_new_tokens=4, cache=kept).tokens))
    assert found[0] == found[1]


def test_threads_share_a_graph():
    model = load("handmade/gqa_values", "onnx")
    expected, _ = outcome(load("handmade/gqa_values", "numpy"), PROMPTS, CONFIGS["warpers"])
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(outcome, model, PROMPTS, CONFIGS["warpers"]) for _ in range(4)]
        for run in runs:
            same(run.result()[0], expected)


def test_streams_tell_the_same():
    pieces = [
        list(load("handmade/gqa_values", how).stream(PROMPTS, max_new_tokens=4, logprobs=True))
        for how in ("numpy", "onnx")
    ]
    for own, right in zip(*pieces, strict=True):
        assert (own.token, own.row) == (right.token, right.row)
        assert own.logprob == pytest.approx(right.logprob, abs=1e-5)


@pytest.mark.parametrize(
    ("keywords", "reason"),
    [
        ({"logits_processor": [lambda ids, scores: scores]}, "logits_processor"),
        ({"prefix_allowed_tokens_fn": lambda number, ids: [1, 2]}, "prefix_allowed_tokens_fn"),
        ({"guidance_scale": 1.5}, "guidance_scale"),
        ({"output_scores": True}, "output_scores"),
        ({"typical_p": 0.5, "do_sample": True, "seed": 1}, "typical_p"),
    ],
    ids=str,
)
def test_what_only_the_host_can_do_it_does_and_says_so(keywords, reason):
    expected, _ = outcome(load("handmade/gqa_values", "numpy"), PROMPTS, keywords)
    found, by = outcome(load("handmade/gqa_values", "onnx"), PROMPTS, keywords)
    assert by == f"numpy (because of {reason})"
    assert [own.tokens for own in found] == [own.tokens for own in expected]


def test_steps_with_more_left_open_than_reaches_the_host_are_the_hosts(monkeypatch):
    keywords = {"do_sample": True, "top_k": 0, "top_p": 0.7, "seeds": [1, 2, 3], "logprobs": True}
    expected, _ = outcome(load("handmade/gqa_values", "numpy"), PROMPTS, keywords)
    monkeypatch.setattr(selecting, "DRAWN_FROM", 12)
    found, by = outcome(load("handmade/gqa_values", "onnx"), PROMPTS, keywords)
    count = re.fullmatch(r"onnx \(numpy in (\d+) of the steps: too many .*\)", by)
    assert 0 < int(count[1]) < 8
    same(found, expected)


@pytest.mark.parametrize("selection", ["torch", "", "ONNX", 1])
def test_other_selections_are_refused(selection):
    with pytest.raises(OptionError, match="selection is"):
        onnxgen.load(FIXTURES / "handmade/gqa_values", selection=selection)
