"""Times of tokens from attention; expectations are the oracle's notes, or on paper."""

import time

import numpy as np
import pytest

from onnxgen.audio.alignment import along, median_filter, token_times, warp
from onnxgen.errors import LogitsError, OptionError


def slow_warp(costs):
    """The same way, cell by cell, as the rule is worded."""
    n, t = costs.shape
    sums = np.full((n + 1, t + 1), np.inf, np.float32)
    sums[0, 0] = 0
    came = {}
    for i in range(1, n + 1):
        for j in range(1, t + 1):
            both, row, column = sums[i - 1, j - 1], sums[i - 1, j], sums[i, j - 1]
            if both < min(row, column):
                came[i, j], sums[i, j] = (i - 1, j - 1), both + costs[i - 1, j - 1]
            elif row < min(both, column):
                came[i, j], sums[i, j] = (i - 1, j), row + costs[i - 1, j - 1]
            else:
                came[i, j], sums[i, j] = (i, j - 1), column + costs[i - 1, j - 1]
    way = [(n, t)]
    while came[way[-1]] != (0, 0):
        way.append(came[way[-1]])
    return [i - 1 for i, _ in way[::-1]], [j - 1 for _, j in way[::-1]]


def path(costs):
    rows, columns = warp(np.array(costs, np.float32))
    return rows.tolist(), columns.tolist()


def test_the_way_follows_what_is_cheap():
    costs = [[0, 1, 1, 1], [1, 0, 0, 1], [1, 1, 1, 0]]
    assert path(costs) == ([0, 1, 1, 2], [0, 1, 2, 3])


def test_ties_come_from_the_column_before():
    assert path([[0, 1], [1, 0]]) == ([0, 1], [0, 1])  # no tie: both cost 0, the others 1
    assert path([[1, 0], [0, 0]]) == ([0, 1, 1], [0, 0, 1])  # all three cost 1
    # Both and the row before cost 0, so neither is cheapest by itself: the column wins with 5.
    assert path([[0, 0], [5, 0]]) == ([0, 1, 1], [0, 0, 1])


@pytest.mark.parametrize(("n", "t"), [(1, 1), (1, 7), (7, 1), (2, 9), (9, 2), (12, 12), (5, 30)])
def test_the_way_is_that_of_the_slow_rule(n, t):
    rng = np.random.default_rng(n * 100 + t)
    for draw in range(60):
        costs = rng.integers(-2, 3, (n, t)) if draw % 2 else rng.normal(size=(n, t))
        assert path(costs) == slow_warp(costs.astype(np.float32))


def test_a_whole_window_is_fast():
    """50 ms are the promise; four times that allows for a busy machine."""
    costs = np.random.default_rng(0).normal(size=(448, 1500)).astype(np.float32)
    took = []
    for _ in range(3):
        began = time.perf_counter()
        warp(costs)
        took.append(time.perf_counter() - began)
    assert min(took) < 0.2


def test_medians():
    row = np.array([[1, 9, 2, 8, 3]], np.float32)
    assert median_filter(row, 3).tolist() == [[9, 2, 8, 3, 8]]  # mirrored: 9 1 9 2 8 3 8
    assert median_filter(row, 1).tolist() == row.tolist()
    assert median_filter(row[:, :3], 7).tolist() == [[1, 9, 2]]  # too short to mirror


@pytest.mark.parametrize("width", [3, 5, 7, 9])
def test_medians_of_any_width(width):
    rng = np.random.default_rng(width)
    for values in (rng.normal(size=(3, 40)), rng.integers(0, 4, (3, 40))):
        padded = np.pad(values, ((0, 0), (width // 2, width // 2)), mode="reflect")
        expected = [[np.median(row[i : i + width]) for i in range(40)] for row in padded]
        assert median_filter(values.astype(np.float32), width) == pytest.approx(np.array(expected))


def steps_of(positions, t):
    """Attention (1,N,t): token i looks at its ten positions, a little everywhere else."""
    weights = np.full((1, len(positions), t), 0.01, np.float32)
    for token, start in enumerate(positions):
        weights[0, token, start : start + 10] = 0.9
    return weights


def test_tokens_end_where_the_decoder_goes_on():
    # A prompt of 2, then 4 new tokens, of which the last has no attention.
    weights = steps_of([50, 60, 0, 10, 20], 30 + 50)
    assert token_times(weights, 2, frames=60).tolist() == [0, 10 * 0.02, 20 * 0.02, 20 * 0.02]


def test_no_token_is_heard_behind_the_audio():  # known problems A7, A14
    weights = steps_of([0, 10, 20, 70, 80], 100)
    assert token_times(weights, 0).max() == pytest.approx(1.6, abs=0.05)
    assert token_times(weights, 0, frames=80).max() < 0.8


def slow_times(weights, width):
    """The same times in plain steps: standard scores, medians, the mean of heads, the slow way."""
    scores = (weights - weights.mean(1, keepdims=True)) / weights.std(1, keepdims=True)
    half, t = width // 2, weights.shape[2]
    padded = np.pad(scores, ((0, 0), (0, 0), (half, half)), mode="reflect")
    smooth = np.stack([np.median(padded[..., i : i + width], axis=2) for i in range(t)], axis=2)
    rows, columns = slow_warp(-smooth.mean(0))
    return [columns[rows.index(row)] * 0.02 for row in range(weights.shape[1])]


def test_times_are_those_of_the_slow_rule():
    rng = np.random.default_rng(3)
    differ = 0
    for _ in range(20):
        weights = rng.random((3, 6, 50)).astype(np.float32) ** 4
        times = [token_times(weights, 0, median_width=width).tolist() for width in (1, 7)]
        assert times[0][:-1] == pytest.approx(slow_times(weights.astype(float), 1))
        assert times[1][:-1] == pytest.approx(slow_times(weights.astype(float), 7))
        differ += times[0] != times[1]
    assert differ > 10


def test_heads_are_averaged():
    rng = np.random.default_rng(1)
    # Two heads that look anywhere and five that agree.
    right = steps_of([0, 10, 20], 30)
    wrong = rng.random((2, 3, 30)).astype(np.float32)
    both = np.concatenate([wrong, *[right] * 5])
    assert token_times(both, 0).tolist() == token_times(right, 0).tolist()


def test_positions_that_all_tokens_see_alike_say_nothing():
    weights = steps_of([0, 10, 20], 40)
    expected = token_times(weights, 0).tolist()
    weights[:, :, 30:] = 0  # as half precision has it; 0 / 0 there
    weights[:, :, :30][weights[:, :, :30] < 0.5] = 0
    assert token_times(weights, 0).tolist() == expected == [0, 0.2, 0.4, 0.4]


def test_answers_too_short_to_align():
    weights = steps_of([0, 10], 30)
    assert token_times(weights, 2).tolist() == [0]  # nothing but the last token
    assert token_times(weights, 1).tolist() == [0, 0]
    assert token_times(weights, 0, frames=1).tolist() == [0, 0, 0]  # no audio


def test_attention_that_is_not_finite_is_refused():
    weights = steps_of([0, 10], 30)
    weights[0, 1, 3] = np.nan
    with pytest.raises(LogitsError, match="not finite"):
        token_times(weights, 0)


@pytest.mark.parametrize("width", [0, 4, -1])
def test_medians_have_an_odd_width(width):
    with pytest.raises(OptionError, match="odd"):
        token_times(steps_of([0, 10], 30), 0, median_width=width)


def test_beams_are_followed_through_the_steps():
    rng = np.random.default_rng(2)
    first = rng.random((3, 4, 2, 5)).astype(np.float32)  # a prompt of two tokens
    later = [rng.random((3, 4, 1, 5)).astype(np.float32) for _ in range(3)]
    answer = along([first, *later], [0, 2, 1])  # ended one step before the others
    assert answer.shape == (4, 4, 5)
    assert np.array_equal(answer[:, :2], first[0])
    assert np.array_equal(answer[:, 2:3], later[0][2])
    assert np.array_equal(answer[:, 3:], later[1][1])
