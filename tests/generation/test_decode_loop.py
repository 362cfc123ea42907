"""``decode_loop`` on a toy decoder written out in NumPy."""

import numpy as np
import pytest

from onnxgen import decode_loop
from onnxgen.errors import OptionError

VOCABULARY, HIDDEN, WINDOW = 8, 4, 6


def toy():
    """Embedding, cache write at the offset, masked sum over the window, head."""
    rng = np.random.default_rng(0)
    params = {
        "embedding": rng.normal(size=(VOCABULARY, HIDDEN)),
        "head": rng.normal(size=(HIDDEN, VOCABULARY)),
    }

    def forward(token, offset, cache, params):
        cache = cache.copy()
        cache[offset] = params["embedding"][token[0]]
        valid = np.arange(WINDOW) <= offset
        return np.where(valid[:, None], cache, 0).sum(axis=0) @ params["head"], cache

    return forward, params


def by_hand(first, count):
    """The same decoder without a cache: the sum of all embeddings so far."""
    _, params = toy()
    tokens = [first]
    for _ in range(count):
        tokens.append(int((params["embedding"][tokens].sum(axis=0) @ params["head"]).argmax()))
    return tokens[1:]


def decode(**changes):
    forward, params = toy()
    cache = np.zeros((WINDOW, HIDDEN))
    options = {"cache": cache, "params": params, "first_token": 1, "max_new_tokens": 6}
    return decode_loop(forward, **(options | changes))


def test_tokens_equal_those_of_the_sum_written_out():
    assert decode() == by_hand(1, 6)


def test_first_generated_token_as_eos_gives_it_alone():  # known problem S10
    first = by_hand(1, 1)[0]
    assert decode(eos=first) == [first]
    assert decode(eos=[first, 99]) == [first]


def test_on_token_sees_every_token_in_order_before_the_stop():
    seen = []
    assert decode(on_token=seen.append, eos=by_hand(1, 3)[2]) == seen
    assert seen


@pytest.mark.parametrize("budget", [0, -1])
def test_no_budget_gives_no_call(budget):
    def forward(token, offset, cache, params):
        raise AssertionError("called")

    options = {"cache": None, "params": None, "first_token": 1}
    assert decode_loop(forward, max_new_tokens=budget, **options) == []


def test_forward_gets_positions_from_the_offset_and_the_cache_it_returned():
    calls = []

    def forward(token, offset, cache, params):
        calls.append((token.tolist(), token.dtype, int(offset), cache, params))
        return np.eye(8)[offset % 8], cache + 1

    decode_loop(forward, cache=10, params="p", first_token=3, max_new_tokens=3, offset=5)
    assert calls == [
        ([3], np.int32, 5, 10, "p"),
        ([5], np.int32, 6, 11, "p"),
        ([6], np.int32, 7, 12, "p"),
    ]


def test_select_chooses():
    def last(logits):
        return len(logits) - 1

    assert decode(select=last, max_new_tokens=3) == [7, 7, 7]


def test_ties_go_to_the_lowest_index():  # known problem S32
    forward = lambda token, offset, cache, params: (np.array([0, 2, 2]), cache)  # noqa: E731
    options = {"cache": None, "params": None, "first_token": 0, "max_new_tokens": 1}
    assert decode_loop(forward, **options) == [1]


def test_forward_of_other_arity_is_refused():
    options = {"cache": None, "params": None, "first_token": 0, "max_new_tokens": 1}
    with pytest.raises(OptionError, match="four"):
        decode_loop(lambda token, offset, cache: None, **options)
