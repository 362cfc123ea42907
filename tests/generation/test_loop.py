"""The loop on a fake decoder: order, stops, budgets, rows that leave, times, broken logits."""

import numpy as np
import pytest

from onnxgen.errors import LogitsError
from onnxgen.generation.loop import Clock, Row, greedy, run
from tests.generation.fakes import FakeDecoder


def script(*tokens):
    """Chooses the given tokens one after the other, counted from the end of a one-token prompt."""
    return lambda row: tokens[len(row) - 1]


def answer(choose, budget, stop=(), prompt=(0,), vocab_size=128):
    row = Row(0, list(prompt), budget, frozenset(stop))
    for _ in run(FakeDecoder(choose, vocab_size), [row], greedy, Clock()):
        pass
    return row.tokens, row.finish_reason


@pytest.mark.parametrize(
    ("tokens", "stop", "budget", "expected", "reason"),
    [
        ([42, 99, 2, 7], [2], 10, [42, 99, 2], "stop"),
        ([10] * 5, [2], 3, [10, 10, 10], "length"),
        ([2, 5], [2], 10, [2], "stop"),
        ([5, 2, 5], [2], 2, [5, 2], "stop"),  # the last permitted token is a stop
        ([5, 6, 7], [9, 7, 6], 9, [5, 6], "stop"),  # any of several ends the row
        ([5], [], 1, [5], "length"),
    ],
)
def test_stops(tokens, stop, budget, expected, reason):  # known problem S10
    assert answer(script(*tokens), budget, stop) == (expected, reason)


def test_no_stop_token_is_made_up():  # known problem S13
    tokens, reason = answer(lambda row: 151645, 4, vocab_size=151646)
    assert (tokens, reason) == ([151645] * 4, "length")


def test_stop_token_in_the_prompt_does_not_stop():
    assert answer(lambda row: 5, 3, stop=[2], prompt=[2, 2])[0] == [5, 5, 5]


def test_rows_that_end_leave_the_batch_and_the_others_go_on():  # known problems C16, C25
    def choose(row):
        start = row[0]  # the row's prompt: ends after as many tokens
        return 1 if len(row) > start else 7

    rows = [Row(i, [start], 9, frozenset([1])) for i, start in enumerate([3, 1, 2])]
    decoder = FakeDecoder(choose)
    steps = list(run(decoder, rows, greedy, Clock()))
    assert [row.tokens for row in rows] == [[7, 7, 7, 1], [7, 1], [7, 7, 1]]
    assert decoder.batches == [3, 3, 2, 1]
    assert [(s.rows, s.tokens, s.finish_reasons) for s in steps] == [
        ([0, 1, 2], [7, 7, 7], [None, None, None]),
        ([0, 1, 2], [7, 1, 7], [None, "stop", None]),
        ([0, 2], [7, 1], [None, "stop"]),
        ([0], [1], ["stop"]),
    ]


def test_the_last_token_is_never_fed():
    decoder = FakeDecoder(lambda row: 5)
    row = Row(0, [3, 4], 3, frozenset())
    list(run(decoder, [row], greedy, Clock()))
    assert decoder.rows == [[3, 4, 5, 5]]


def test_times_are_in_order_and_one_fewer_than_tokens(monkeypatch):  # known problem S12
    now = iter([10.0, 10.5, 10.6, 10.8])
    monkeypatch.setattr("onnxgen.generation.loop.perf_counter", lambda: next(now))
    clock = Clock()
    list(run(FakeDecoder(lambda row: 5), [Row(0, [1], 3, frozenset())], greedy, clock))
    timings = clock.timings(3)
    assert timings.prefill_ms == pytest.approx(500)
    assert timings.per_token_ms == pytest.approx((100, 200))
    assert timings.total_ms == pytest.approx(800)
    assert timings.tokens_per_second == pytest.approx(1000 / 150)
    assert clock.timings(1).per_token_ms == ()


def test_argmax_takes_the_lowest_index_of_equals():  # known problem S32
    logits = np.zeros((1, 248320), np.float32)
    logits[0, [100000, 200000]] = 3
    assert greedy(logits, [Row(0, [1], 1, frozenset())]).tolist() == [100000]


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_refused(broken):  # known problem S9
    def choose(row):
        good = np.arange(16.0)
        bad = good.copy() if np.isnan(broken) else np.full(16, broken)
        bad[3] = broken
        return bad if row == [8, 15] else good

    rows = [Row(0, [9], 4, frozenset()), Row(1, [8], 4, frozenset())]
    with pytest.raises(LogitsError, match=r"row 1 .* step 2"):
        list(run(FakeDecoder(choose), rows, greedy, Clock()))
