"""Selection by a graph: what it chooses by arithmetic, and that it hands bad scores to the host."""

import numpy as np
import pytest
from onnx import TensorProto

from onnxgen.runtime.device import Device
from onnxgen.runtime.kept import KeptLogits
from onnxgen.runtime.selection import KEPT, Selector, Selectors, placed
from onnxgen.runtime.selection_graph import (
    Ban,
    Bias,
    Force,
    MinP,
    Renormalise,
    Repetition,
    SelectionSpec,
    Temperature,
    TopK,
    TopP,
)
from tests.generation.rows import TOP_P

DEVICE = Device()
BAN = -np.inf


def kept(values: np.ndarray, dtype: str = "") -> KeptLogits:
    """``values`` (B,V) as a decoder keeps them."""
    held = DEVICE.memory(values.nbytes)
    held.array((values.nbytes,), 1)[:] = np.ascontiguousarray(values).view(np.uint8).ravel()
    rows, vocab = values.shape
    return KeptLogits(held, rows, DEVICE, vocab, dtype or str(values.dtype))


def logs(*shares: float) -> list[float]:
    with np.errstate(divide="ignore"):
        return np.log(np.array(shares, np.float32)).tolist()


def after(*steps, scores, ids=None, **flags) -> list[float]:
    """The scores (V,), back in the order of their ids, that ``steps`` make of a row."""
    spec = SelectionSpec(steps=steps, candidates=len(scores))
    lengths = None if ids is None else np.array([len(ids)])
    given = {name: np.array([value]) for name, value in flags.items()}
    found = Selector(spec, DEVICE, len(scores)).choose(
        kept(np.array([scores], np.float32)),
        ids=None if ids is None else np.array([ids]),
        lengths=lengths,
        flags=given,
    )
    row = np.empty(len(scores), np.float32)
    row[found.ids[0]] = found.scores[0]
    assert found.open[0] == np.isfinite(row).sum()
    return row.tolist()


def test_greedy_takes_the_first_of_equals():  # known problem S32
    logits = np.array([[1, 3, 3, 2], [0, 0, 0, 0]], np.float32)
    found = Selector(SelectionSpec(), DEVICE, 4).choose(kept(logits))
    assert found.tokens.tolist() == [1, 0]
    assert found.best.tolist() == [3, 0]


def test_steps_by_arithmetic():
    assert after(Bias(((0, 0.5), (2, -1.0))), scores=[1, 1, 1]) == [1.5, 1, 0]
    assert after(Ban((1,)), scores=[1, np.inf, 1]) == [1, BAN, 1]
    assert after(Ban((1,), "early"), scores=[1, 2, 3], early=False) == [1, 2, 3]
    assert after(Ban((1,), "early"), scores=[1, 2, 3], early=True) == [1, BAN, 3]
    assert after(Force((0, 1), "last"), scores=[1, BAN, 3], last=True) == [0, 0, BAN]
    assert after(Temperature(0.5), scores=[1, 2, BAN]) == [2, 4, BAN]
    assert after(Renormalise(), scores=[0, 0, BAN]) == pytest.approx([-np.log(2)] * 2 + [BAN])


def test_repetition_counts_an_id_once_and_none_beyond_the_vocabulary():
    assert after(Repetition(2.0), scores=[4, -4, 1, 1], ids=[0, 1, 0, 9]) == [2, -8, 1, 1]
    assert after(Repetition(2.0), scores=[4, -4, 1], ids=[7, 9]) == [4, -4, 1]


def test_ids_beyond_a_rows_length_are_its_first():
    ids = np.array([[9, 3, 2, 5], [1, 4, 4, 4], [8, 8, 1, 1]])
    found, some = placed(ids, np.array([3, 1, 2]), 8)
    assert found.tolist() == [[3, 3, 2, 3], [1, 1, 1, 1], [0, 0, 0, 0]]
    assert some.tolist() == [[True], [True], [False]]


@pytest.mark.parametrize(
    ("k", "scores", "expected"),
    [
        (2, [1, 2, 2, 2, 0], [BAN, 2, 2, 2, BAN]),
        (1, [1, 2, 3], [BAN, BAN, 3]),
        (9, [1, 2, 3], [1, 2, 3]),
        (2, [BAN, 2, BAN, BAN], [BAN, 2, BAN, BAN]),
    ],
)
def test_top_k(k, scores, expected):
    assert after(TopK(k), scores=scores) == expected


@pytest.mark.parametrize(("p", "keep", "shares", "kept"), TOP_P)
def test_top_p(p, keep, shares, kept):
    found = after(TopP(p, keep), scores=logs(*shares))
    assert np.flatnonzero(np.isfinite(found)).tolist() == kept


@pytest.mark.parametrize(
    ("least", "keep", "kept"),
    [(0.5, 1, [0, 1]), (1.0, 1, [0]), (1.0, 3, [0, 1, 2]), (0.0, 1, [0, 1, 2])],
)
def test_min_p(least, keep, kept):
    found = after(MinP(least, keep), scores=logs(0.5, 0.3, 0.2))
    assert np.flatnonzero(np.isfinite(found)).tolist() == kept


def test_the_race_is_won_by_the_largest_quotient():
    logits = np.array([logs(0.5, 0.3, 0.2, 0), logs(0.5, 0.3, 0.2, 0)], np.float32)
    noise = np.array([[1, 0.5, 1, 1e-9], [1, 1, 0.1, 1e-9]], np.float32)
    selector = Selector(SelectionSpec(draws=True, logprobs=True), DEVICE, 4)
    found = selector.choose(kept(logits), noise=noise)
    assert found.tokens.tolist() == [1, 2]  # 0.6 of 0.5, 0.6, 0.2; 2 of 0.5, 0.3, 2
    assert (found.chosen - found.norms).tolist() == pytest.approx(logs(0.3, 0.2))


def test_candidates_of_beams():
    """Two prompts of two beams; the best of 2 × 3 sums."""
    logits = np.array([logs(0.5, 0.4, 0.1), logs(0.6, 0.3, 0.1)] * 2, np.float32) + 7
    spec = SelectionSpec(beams=2, candidates=4, logprobs=True)
    running = np.array([logs(0.5, 0.5), logs(0.9, 0.1)], np.float32)
    found = Selector(spec, DEVICE, 3).candidates(kept(logits), running)
    assert found.places.tolist() == [[3, 0, 1, 4], [0, 1, 2, 3]]
    expected = [logs(0.3, 0.25, 0.2, 0.15), logs(0.45, 0.36, 0.09, 0.06)]
    np.testing.assert_allclose(found.sums, expected, atol=1e-6)
    expected = [logs(0.6, 0.5, 0.4, 0.3), logs(0.5, 0.4, 0.1, 0.6)]
    np.testing.assert_allclose(found.scores, expected, atol=1e-6)
    np.testing.assert_allclose(found.best, logs(0.3, 0.45), atol=1e-6)
    np.testing.assert_allclose(found.norms, 0, atol=1e-6)


def test_beams_draw_without_repetition_and_bans_last():
    logits = np.array([logs(0.5, 0.5, 0), logs(0, 1, 0)], np.float32)
    noise = np.array([[2, 1, 1e-9, 1e-9, 1, 1e-9]], np.float32)
    spec = SelectionSpec(beams=2, candidates=4, draws=True)
    running = np.zeros((1, 2), np.float32)
    found = Selector(spec, DEVICE, 3).candidates(kept(logits), running, noise=noise)
    assert found.places.tolist() == [[4, 1, 0, 2]]


@pytest.mark.parametrize("vocab", [3, 4096])
@pytest.mark.parametrize("steps", [(), (TopK(2), TopP(0.9), MinP(0.1))], ids=["plain", "warped"])
def test_scores_that_are_not_finite_show_in_the_best(steps, vocab):  # known problem S9
    logits = np.zeros((4, vocab), np.float32)
    logits[0, 1] = np.nan
    logits[1, 2] = np.inf
    logits[2] = BAN
    found = Selector(SelectionSpec(steps=steps), DEVICE, vocab).choose(kept(logits))
    assert np.isnan(found.best[0])
    assert found.best[1:].tolist() == [np.inf, BAN, 0]
    spec = SelectionSpec(steps=steps, beams=1, candidates=2)
    beams = Selector(spec, DEVICE, vocab).candidates(kept(logits), np.zeros((4, 1), np.float32))
    assert np.isfinite(beams.best).tolist() == [False, False, False, True]


def test_half_precision():
    values = np.array([[0.5, 2.5, -1.0]], np.float32)
    half = Selector(SelectionSpec(), DEVICE, 3, TensorProto.FLOAT16)
    assert half.choose(kept(values.astype(np.float16))).best.tolist() == [2.5]
    brain = Selector(SelectionSpec(), DEVICE, 3, TensorProto.BFLOAT16)
    words = (values.view(np.uint32) >> 16).astype(np.uint16)
    assert brain.choose(kept(words, "bfloat16")).best.tolist() == [2.5]


def test_rows_may_come_and_go():
    """And what was told before stays."""
    selector = Selector(SelectionSpec(candidates=1), DEVICE, 3)
    logits = kept(np.eye(3, dtype=np.float32))
    first = selector.choose(logits)
    assert selector.choose(kept(np.array([[0, 5, 0]], np.float32))).tokens.tolist() == [1]
    assert selector.choose(logits[np.arange(2)]).tokens.tolist() == [0, 1]
    assert first.tokens.tolist() == [0, 1, 2]
    assert first.scores.tolist() == [[1], [1], [1]]


def test_sessions_are_kept_up_to_a_number():
    selectors = Selectors(DEVICE, 3)
    specs = [SelectionSpec(steps=(Temperature(1 + i),)) for i in range(KEPT + 1)]
    sessions = [selectors.new(spec)._session for spec in specs]
    assert selectors.new(specs[-1])._session is sessions[-1]
    assert selectors.new(specs[0])._session is not sessions[0]


def test_a_large_vocabulary():
    vocab, rng = 151_936, np.random.default_rng(0)
    logits = rng.normal(0, 3, (2, vocab)).astype(np.float32)
    held = kept(logits)
    assert (Selector(SelectionSpec(), DEVICE, vocab).choose(held).tokens == logits.argmax(1)).all()
    spec = SelectionSpec(steps=(TopP(0.9),), candidates=8)
    found = Selector(spec, DEVICE, vocab).choose(held)
    for row, count in zip(logits.astype(np.float64), found.open, strict=True):
        shares = -np.sort(-np.exp(row))
        reached = shares.cumsum() / shares.sum()
        assert reached[count - 2] < 0.9 <= reached[count - 1]
    order = np.argsort(-logits, axis=1)[:, :8]
    assert (found.ids == order).all()
