"""Watermarks and torch's random numbers, against what torch and transformers gave."""

import numpy as np
import pytest

from onnxgen.errors import OptionError
from onnxgen.generation import torch_random
from onnxgen.generation.watermark import green_list, watermark
from tests.generation.rows import BAN, after, rows

SYNTH_ID = {"ngram_len": 3, "keys": [654, 400, 836]}
SHARES = [0.1, 0.2, 0.3, 0.4]


def green(process, ids, scores) -> list[int]:
    return np.flatnonzero(np.subtract(after(process, rows(ids), scores), scores) > 1).tolist()


def test_permutations_are_torch_s():
    assert torch_random.permutation(0, 8).tolist() == [4, 0, 7, 3, 2, 5, 1, 6]
    assert torch_random.permutation(2**32 + 7, 10).tolist() == [5, 0, 3, 4, 1, 7, 9, 6, 8, 2]
    assert torch_random.first_of_permutation(0, 8, 3).tolist() == [4, 0, 7]


def test_bits_are_torch_s():
    assert (torch_random.words(0, 12) % 2).tolist() == [0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0]


@pytest.mark.parametrize("length", [1, 2, 3, 40, 1000])
def test_following_one_token_equals_the_permutation(length):
    for seed in range(5):
        whole = torch_random.permutation(seed, length)
        assert sorted(whole.tolist()) == list(range(length))
        for count in {length // 4, length - 1}:
            first = set(whole[:count].tolist())
            for token in range(0, length, max(1, length // 40)):
                inside = torch_random.in_first_of_permutation(token, seed, length, count)
                assert inside == (token in first)


@pytest.mark.parametrize(
    ("scheme", "width", "expected"),
    [
        ("lefthash", 1, [1, 2, 4, 8, 9, 12, 14, 19, 20, 31, 32, 40]),
        ("lefthash", 2, [1, 2, 4, 8, 9, 12, 14, 19, 20, 31, 32, 40]),
        ("selfhash", 1, [13, 14, 16, 18, 19, 25, 34, 47]),
        ("selfhash", 2, [13, 14, 15, 16, 18, 19, 47]),
    ],
)
def test_green_list(scheme, width, expected):
    process = green_list(50, seeding_scheme=scheme, context_width=width)
    assert green(process, [3, 5], np.arange(50) / 10) == expected


def test_green_list_of_another_key():
    process = watermark({"greenlist_ratio": 0.1, "hashing_key": 2**40 + 17, "bias": 1.5}, 50)
    scores = np.array(after(process, rows([3, 5]), np.zeros(50)))
    assert np.flatnonzero(scores).tolist() == [13, 26, 29, 31, 34]
    assert set(scores[scores != 0]) == {1.5}


def test_a_row_shorter_than_the_context_is_not_marked():
    process = green_list(50, context_width=3)
    with pytest.warns(UserWarning, match="3 ids"):
        assert after(process, rows([3, 5]), np.zeros(50)) == [0] * 50


def test_banned_tokens_stay_banned():
    for scheme in ("lefthash", "selfhash"):
        process = green_list(50, seeding_scheme=scheme)
        assert after(process, rows([3]), [BAN] * 50) == [BAN] * 50
    assert after(watermark(SYNTH_ID, 4), rows([4]), [BAN] * 4) == [BAN] * 4


def test_synth_id_step_by_step():
    """The last row comes back to a context that is marked already."""
    seqs, found = rows([4], [4, 1], [4, 1, 2], [4, 1, 2, 1], [4, 1, 2, 1, 2], prompt=1), []
    found = np.exp(after(watermark(SYNTH_ID, 4), seqs, [np.log(SHARES)] * 5))
    assert found == pytest.approx(
        np.array([
            [0.0708, 0.1416, 0.0324, 0.7552],
            [0.010567, 0.042733, 0.207812, 0.738888],
            [0.004746, 0.629849, 0.156602, 0.208803],
            [0.1125, 0.175, 0.2625, 0.45],
            SHARES,
        ]),
        abs=2e-6,
    )  # fmt: skip


def test_synth_id_forgets_contexts():
    process = watermark({**SYNTH_ID, "context_history_size": 1}, 4)
    found = np.exp(after(process, rows([4, 1, 2, 1, 2], prompt=1), np.log(SHARES)))
    assert found == pytest.approx([0.004746, 0.629849, 0.156602, 0.208803], abs=2e-6)


def test_synth_id_may_skip_the_first_steps():
    process = watermark({**SYNTH_ID, "skip_first_ngram_calls": True}, 4)
    found = np.exp(after(process, rows([4], [4, 1], [4, 1, 2], prompt=1), [np.log(SHARES)] * 3))
    third = [0.004746, 0.629849, 0.156602, 0.208803]
    assert found == pytest.approx(np.array([SHARES, SHARES, third]), abs=2e-6)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("lefthash", "dict"),
        ({"ratio": 0.5}, "greenlist_ratio"),
        ({"greenlist_ratio": 0.0}, "greenlist_ratio"),
        ({"greenlist_ratio": 1.5}, "greenlist_ratio"),
        ({"greenlist_ratio": "0.5"}, "greenlist_ratio"),
        ({"bias": np.nan}, "bias"),
        ({"bias": np.inf}, "bias"),
        ({"bias": "2"}, "bias"),
        ({"hashing_key": -1}, "hashing_key"),
        ({"hashing_key": 1 << 63}, "hashing_key"),
        ({"hashing_key": 1.5}, "hashing_key"),
        ({"seeding_scheme": "left"}, "lefthash"),
        ({"seeding_scheme": None}, "lefthash"),
        ({"context_width": 0}, "context_width"),
        ({"keys": [1]}, "ngram_len"),
        ({"ngram_len": 3}, "keys"),
        ({**SYNTH_ID, "ngram_len": 1}, "ngram_len"),
        ({**SYNTH_ID, "keys": []}, "keys"),
        ({**SYNTH_ID, "keys": [1.5]}, "keys"),
        ({**SYNTH_ID, "sampling_table_size": 0}, "sampling_table_size"),
        ({**SYNTH_ID, "sampling_table_seed": -1}, "sampling_table_seed"),
        ({**SYNTH_ID, "context_history_size": 0}, "context_history_size"),
        ({**SYNTH_ID, "skip_first_ngram_calls": 1}, "skip_first_ngram_calls"),
        ({**SYNTH_ID, "debug_mode": True}, "debug_mode"),
        ({**SYNTH_ID, "bias": 2.0}, "bias"),
    ],
)
def test_wrong(config, message):
    with pytest.raises(OptionError, match=message):
        watermark(config, 50)
