"""Warpers by hand; expectations are arithmetic, or the oracle's notes."""

import numpy as np
import pytest

from onnxgen.errors import OptionError
from onnxgen.generation import warpers as w
from tests.generation.rows import BAN, TOP_P, after, kept, rows

ONE = rows([0])


def logs(*probabilities: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities, np.float32))


def test_temperature():
    assert after(w.temperature(0.5), ONE, [1, 2, BAN]) == [2, 4, BAN]


@pytest.mark.parametrize(
    ("k", "keep", "scores", "expected"),
    [
        (2, 1, [1, 2, 2, 2, 0], [1, 2, 3]),
        (1, 1, [1, 2, 3], [2]),
        (9, 1, [1, 2, 3], [0, 1, 2]),
        (1, 3, [1, 2, 3, 0], [0, 1, 2]),
        (2, 1, [BAN, 2, BAN, BAN], [1]),
        (10**30, 1, [1, 2], [0, 1]),
    ],
)
def test_top_k(k, keep, scores, expected):  # known problem S18
    assert kept(w.top_k(k, keep), ONE, scores) == expected


@pytest.mark.parametrize("k", [1, 2, 50, 300, 9000])
@pytest.mark.parametrize("width", [5000, 5001, 151_936])
def test_top_k_of_many_is_that_of_a_sort(k, width):
    rng = np.random.default_rng(k + width)
    scores = rng.permutation(width).astype(np.float32)
    scores[rng.random(width) < 0.5] = BAN
    best = np.sort(np.argsort(-scores, kind="stable")[: min(k, np.isfinite(scores).sum())])
    assert kept(w.top_k(k), ONE, scores) == best.tolist()


def test_top_k_of_many_keeps_ties():
    scores = np.zeros(10_000)
    scores[5] = 1
    assert len(kept(w.top_k(3), ONE, scores)) == 10_000
    scores[5:8] = 1
    assert kept(w.top_k(2), ONE, scores) == [5, 6, 7]


@pytest.mark.parametrize(("p", "keep", "shares", "expected"), TOP_P)
def test_top_p(p, keep, shares, expected):  # known problem S19
    assert kept(w.top_p(p, keep), ONE, logs(*shares)) == expected


def test_top_p_of_many_keeps_the_mass():
    scores = np.random.default_rng(0).normal(0, 3, 50_000)
    shares = np.exp(scores) / np.exp(scores).sum()
    for p in (0.1, 0.5, 0.9, 0.999):
        stay = kept(w.top_p(p), ONE, scores)
        assert shares[stay].sum() >= p - 1e-5
        assert shares[stay].sum() - shares[stay].min() < p + 1e-5
        assert shares[stay].min() > np.delete(shares, stay).max()


@pytest.mark.parametrize(
    ("m", "keep", "shares", "expected"),
    [
        (0.3, 1, [0.5, 0.3, 0.14, 0.06], [0, 1]),
        (0.25, 1, [0.5, 0.3, 0.14, 0.06], [0, 1, 2]),
        (0.0, 1, [0.5, 0.5, 0], [0, 1]),
        (1.0, 1, [0.5, 0.3, 0.2], [0]),
        (1.0, 2, [0.2, 0.5, 0.3], [1, 2]),
        (0.5, 3, [0.9, 0.1, 0], [0, 1]),
    ],
)
def test_min_p(m, keep, shares, expected):
    assert kept(w.min_p(m, keep), ONE, logs(*shares)) == expected


@pytest.mark.parametrize(
    ("mass", "keep", "shares", "expected"),
    [
        (0.5, 1, [0.4, 0.2, 0.2, 0.2], [1, 2, 3]),
        (0.9, 1, [0.4, 0.2, 0.2, 0.2], [0, 1, 2, 3]),
        (0.5, 1, [0.4, 0.2, 0.2, 0.2, 0], [1, 2, 3]),
        # Surprises 0.36, 1.61, 2.30 around the entropy 0.80: the first is nearest.
        (0.1, 1, [0.7, 0.2, 0.1], [0]),
        (0.1, 2, [0.7, 0.2, 0.1], [0, 1]),
        (0.8, 1, [0.7, 0.2, 0.1], [0, 1]),
        (0.25, 1, [0.5, 0.25, 0.125, 0.125], [1]),  # the nearest reaches it exactly
    ],
)
def test_typical(mass, keep, shares, expected):
    assert kept(w.typical(mass, keep), ONE, logs(*shares)) == expected


@pytest.mark.parametrize(
    ("cutoff", "keep", "shares", "expected"),
    [
        (0.2, 1, [0.6, 0.25, 0.15], [0, 1]),
        (0.9, 1, [0.6, 0.25, 0.15], [0]),
        (0.9, 2, [0.6, 0.25, 0.15], [0, 1]),
        (0.9, 1, [0.4, 0.4, 0.2], [0, 1]),  # equals of the last one kept stay
    ],
)
def test_epsilon(cutoff, keep, shares, expected):
    assert kept(w.epsilon(cutoff, keep), ONE, logs(*shares)) == expected


def test_eta_is_lower_where_entropy_is_high():
    # 8 equals: entropy ln 8, so the cutoff is sqrt(0.36) / 8 = 0.075, below their 0.125.
    assert len(kept(w.eta(0.36), ONE, np.zeros(8))) == 8
    # Entropy of the next: 0.6390, cutoff sqrt(0.36) exp(-0.6390) = 0.3167.
    assert kept(w.eta(0.36), ONE, logs(0.8, 0.1, 0.1)) == [0]
    # Entropy 0.8018, cutoff 0.2691.
    assert kept(w.eta(0.36), ONE, logs(0.7, 0.2, 0.1)) == [0]
    assert kept(w.eta(0.01), ONE, logs(0.8, 0.15, 0.05)) == [0, 1, 2]
    assert kept(w.eta(0.36, 2), ONE, logs(0.8, 0.15, 0.05)) == [0, 1]


def test_renormalize():
    scores = after(w.renormalize(), ONE, [1, 2, BAN, 3])
    assert np.exp(scores).sum() == pytest.approx(1, abs=1e-6)
    assert scores[1] - scores[0] == pytest.approx(1, abs=1e-6)
    assert scores[2] == BAN


def test_renormalizing_before_or_after_temperature_differs_by_a_constant():  # known problem S20
    seqs, scores = ONE, [1.0, 2.0, 4.0]
    first = after(w.temperature(0.5), seqs, after(w.renormalize(), seqs, scores))
    last = after(w.renormalize(), seqs, after(w.temperature(0.5), seqs, scores))
    assert np.subtract(first, last) == pytest.approx([-0.319111] * 3, abs=1e-5)


ALL = [
    w.temperature(0.7), w.top_k(3), w.top_p(0.5), w.min_p(0.5), w.typical(0.5), w.epsilon(0.1),
    w.eta(0.1), w.renormalize(),
]  # fmt: skip


@pytest.mark.parametrize("process", ALL)
class TestAll:
    def test_a_row_without_open_tokens_stays_so(self, process):
        assert after(process, ONE, [BAN] * 5) == [BAN] * 5

    @pytest.mark.parametrize("width", [5, 5000])
    def test_nan_stays_for_the_choice_to_report(self, process, width):
        scores = np.zeros(width)
        scores[2] = np.nan
        assert np.isnan(after(process, ONE, scores)[2])
        assert np.isnan(after(process, ONE, np.full(width, np.nan))).all()

    def test_a_row_is_changed_as_if_alone(self, process):
        scores = np.random.default_rng(1).normal(0, 2, (4, 60)).astype(np.float32)
        scores[1, 3:] = BAN
        together = after(process, rows([0], [1], [2], [3]), scores)
        assert together == [after(process, ONE, row) for row in scores]


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (w.temperature, [0.0, -1.0, 2, 1e39, 1e-39]),
        (w.top_k, [0, -1, 1.5]),
        (w.top_p, [-0.1, 1.1]),
        (w.min_p, [-0.1, 1.1]),
        (w.typical, [0, 1, -0.1, 1.1]),
        (w.epsilon, [0, 1, -0.1, 1.1]),
        (w.eta, [0, 1, -0.1, 1.1]),
    ],
)
def test_wrong_values(make, wrong):
    for value in [*wrong, np.nan, np.inf, -np.inf, "0.5", True, None, [0.5]]:
        with pytest.raises(OptionError):
            make(value)
