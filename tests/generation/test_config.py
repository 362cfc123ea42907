"""Options: where they come from, what is refused, how long an answer may be."""

import warnings

import pytest

from onnxgen.errors import OptionError
from onnxgen.generation.config import GenerationConfig, merge, new_tokens, stop_ids


def test_keyword_beats_object_beats_file():
    file = {"max_new_tokens": 1, "eos_token_id": 1, "pad_token_id": 1}
    config = GenerationConfig(max_new_tokens=2, eos_token_id=2)
    merged = merge(file, config, {"max_new_tokens": 3})
    assert (merged.max_new_tokens, merged.eos_token_id, merged.pad_token_id) == (3, 2, 1)


def test_none_is_unset_in_file_and_object_but_a_value_as_keyword():
    assert merge({"eos_token_id": 5}, GenerationConfig(eos_token_id=None), {}).eos_token_id == 5
    assert merge({"eos_token_id": 5}, None, {"eos_token_id": None}).eos_token_id is None


@pytest.mark.parametrize(("ids", "found"), [(None, set()), (3, {3}), ([3, 4], {3, 4})])
def test_stop_ids(ids, found):
    assert stop_ids(GenerationConfig(eos_token_id=ids)) == found


@pytest.mark.parametrize(
    ("file", "prompt", "expected"),
    [
        ({}, 4, 256),
        ({"max_length": 20}, 4, 256),
        ({"max_length": 448}, 4, 444),
        ({"max_length": 512}, 1, 511),
        ({"max_length": 448, "max_new_tokens": 7}, 4, 7),
    ],
)
def test_default_lengths(file, prompt, expected):  # known problem S22
    assert new_tokens(merge(file, None, {}), prompt) == expected


def test_max_length_counts_the_prompt():
    assert new_tokens(merge({}, None, {"max_length": 30}), 12) == 18
    with pytest.raises(OptionError, match="30"):
        new_tokens(merge({}, None, {"max_length": 30}), 30)


def test_unknown_option_names_the_nearest():
    with pytest.raises(OptionError, match="max_new_tokens"):
        merge({}, None, {"max_new_token": 3})


@pytest.mark.parametrize("value", [0, -1, 1.5, "1", True])
def test_max_new_tokens_must_be_a_positive_whole_number(value):
    with pytest.raises(ValueError, match="max_new_tokens"):
        merge({}, None, {"max_new_tokens": value})


@pytest.mark.parametrize("value", [-1, "2", [2, -1], [True], 1.0])
def test_token_ids_must_be_ids(value):
    with pytest.raises(OptionError, match="eos_token_id"):
        merge({}, None, {"eos_token_id": value})


@pytest.mark.parametrize("name", ["penalty_alpha", "dola_layers", "constraints", "low_memory"])
def test_methods_that_are_not_offered_are_refused_by_name(name):
    with pytest.raises(OptionError, match=name):
        merge({}, None, {name: 1})


def test_keys_of_other_purposes_in_a_file_are_left_alone():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        merge({"transformers_version": "4.57.6", "_from_model_config": True}, None, {})


def test_null_in_a_file_or_object_is_the_default_and_as_keyword_off():  # trap T7
    assert merge({"top_k": None}, None, {"do_sample": True}).top_k == 50
    assert merge({}, GenerationConfig(top_k=None), {"do_sample": True}).top_k == 50
    assert merge({"top_k": 7}, None, {"do_sample": True, "top_k": None}).top_k is None


def test_an_explicit_false_beats_the_file():  # known problem S2; trap T14
    file = {"do_sample": True, "temperature": 0.6}
    assert merge(file, GenerationConfig(do_sample=False), {}).do_sample is False
    assert merge(file, None, {"do_sample": False}).do_sample is False
    assert merge(file, None, {}).do_sample is True
    assert merge(file, None, {}).temperature == 0.6


def test_what_the_file_asks_of_methods_that_are_not_offered_is_refused():
    with pytest.raises(OptionError, match="penalty_alpha"):
        merge({"penalty_alpha": 0.6, "top_k": 4}, None, {})
    merge({"num_beam_groups": 1, "diversity_penalty": 0.0, "low_memory": None}, None, {})


@pytest.mark.parametrize(
    ("name", "values"),
    {
        "num_beams": [0, -1, 1.5, "2", True, float("nan")],
        "num_return_sequences": [0, "1"],
        "min_length": [-1, 1.0],
        "min_new_tokens": [-1, "1"],
        "top_logprobs": [-1, 0.5],
        "prefill_chunk_size": [0, 2.5],
        "max_time": [-1, float("nan"), float("inf"), "1"],
        "do_sample": [1, "true"],
        "output_scores": ["no"],
        "early_stopping": ["always", 2],
        "length_penalty": [float("nan"), float("inf"), "1", 1e6],
    }.items(),
)
def test_values_without_meaning_are_refused(name, values):
    for value in values:
        with pytest.raises(OptionError, match=name):
            merge({}, None, {name: value})


def test_negative_ids_in_a_file_mean_none():
    merged = merge({"pad_token_id": -1, "eos_token_id": [-1, 5], "bos_token_id": -1}, None, {})
    assert (merged.pad_token_id, merged.bos_token_id) == (None, None)
    assert stop_ids(merged) == {5}


def test_names_that_the_caller_knows_are_offered_too():
    with pytest.raises(OptionError, match="'logits_processor'"):
        merge({}, None, {"logits_processors": []}, ["logits_processor"])


@pytest.mark.parametrize(
    ("name", "value"),
    [("eos_token_id", -5), ("eos_token_id", 2**40), ("eos_token_id", [1, "2"]),
     ("max_length", "many"), ("num_beams", 10**9), ("do_sample", 1)],
)  # fmt: skip
def test_a_wrong_value_of_a_file_names_the_file_where_it_is_used(name, value):
    with pytest.raises(OptionError, match=f"generation_config.json.*{name} is"):
        merge({name: value}, None, {})
    other = {"eos_token_id": 1, "max_length": 9, "num_beams": 2, "do_sample": True}[name]
    assert getattr(merge({name: value}, None, {name: other}), name) == other


def test_a_length_of_a_file_is_not_used_beside_a_number_of_new_tokens():
    assert merge({"max_length": "many"}, None, {"max_new_tokens": 3}).max_length is None


def test_an_own_wrong_value_names_no_file():
    with pytest.raises(OptionError) as caught:
        merge({"eos_token_id": 1}, None, {"eos_token_id": -5})
    assert "json" not in str(caught.value)
