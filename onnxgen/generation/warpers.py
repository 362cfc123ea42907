"""Warpers: what of a row's scores sampling may choose from.

Each function here checks its option (OptionError) and returns the processor. A warper bans tokens
and changes nothing else, but for the temperature. Those after top-k work on the tokens that are
still open alone, so they cost little behind it. ``keep`` is how many of the best stay whatever
happens; beams need more than one. NaN scores stay NaN, for whoever chooses to report.

Letters: R rows, V vocabulary, N open tokens of a row.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxgen.generation.checks import factor, number, share, whole
from onnxgen.generation.processors import BAN
from onnxgen.generation.protocol import Floats, Ints
from onnxgen.generation.sampling import largest
from onnxgen.generation.sequences import Processor, Sequences
from onnxgen.generation.softmax import log_softmax, softmax

Bools = NDArray[np.bool_]


def temperature(value: Any) -> Processor:
    """Divides the scores by ``value``, a float."""
    value = factor("temperature", value)

    def process(seqs: Sequences, scores: Floats) -> None:
        with np.errstate(over="ignore"):  # bans that were made finite may be so no more
            scores /= value

    return process


def top_k(count: Any, keep: int = 1) -> Processor:
    """Keeps the ``count`` best, and all that equal the last of these."""
    best = max(whole("top_k", count, least=1), keep)
    return _dropping(lambda scores: scores < _kth_best(scores, best))


def top_p(mass: Any, keep: int = 1) -> Processor:
    """Keeps the fewest best whose probabilities reach ``mass``.

    Precisely: drops from the least likely on while the sum stays within 1 - ``mass``. Of equals,
    lower ids go first.
    """
    mass = number("top_p", mass, 0, 1)

    def drop(scores: Floats) -> Bools:
        shares = softmax(scores)
        # All that have less than half an equal part of what may go do go: they need no sorting.
        near = np.flatnonzero(shares >= (1 - mass) / (2 * len(shares)))
        if len(near) < keep:
            near = np.arange(len(shares))
        ascending = np.sort(shares[near]).astype(np.float64)
        sums = shares.sum(dtype=np.float64) - ascending.sum() + ascending.cumsum()
        dropped = int(np.count_nonzero(sums.astype(np.float32) <= 1 - mass))
        return _all_but_best(scores, len(near) - max(0, min(dropped, len(near) - keep)))

    return _dropping(drop)


def _all_but_best(scores: Floats, count: int) -> Bools:
    """Which of ``scores`` (N,) are not among the ``count`` best; of equals the later are better."""
    border = _kth_best(scores, count)
    dropping: Bools = scores < border
    equals = np.flatnonzero(scores == border)
    surplus = len(scores) - int(np.count_nonzero(dropping)) - count
    dropping[equals[:surplus]] = True
    return dropping


def min_p(least: Any, keep: int = 1) -> Processor:
    """Keeps what has at least ``least`` times the probability of the best."""
    least = number("min_p", least, 0, 1)

    def drop(scores: Floats) -> Bools:
        shares = softmax(scores)
        dropping: Bools = shares < np.float32(least) * shares.max()
        dropping[largest(scores, keep)] = False
        return dropping

    return _dropping(drop)


def typical(mass: Any, keep: int = 1) -> Processor:
    """Keeps the tokens of a surprise nearest to the expected one that reach ``mass`` together.

    The most likely token is not always among them.
    """
    mass = share("typical_p", mass)

    def drop(scores: Floats) -> Bools:
        logs = log_softmax(scores)
        distances = np.abs(-logs - _entropy(logs))
        order = _order(distances)  # (N,)
        sums = softmax(scores[order]).astype(np.float64).cumsum().astype(np.float32)
        last = min(int(np.count_nonzero(sums < mass)), len(scores) - 1)
        dropping: Bools = distances > distances[order[last]]
        dropping[order[:keep]] = False
        return dropping

    return _dropping(drop)


def epsilon(cutoff: Any, keep: int = 1) -> Processor:
    """Keeps what has a probability of at least ``cutoff``."""
    cutoff = share("epsilon_cutoff", cutoff)

    def drop(scores: Floats) -> Bools:
        return _unlikely(scores, cutoff, keep)

    return _dropping(drop)


def eta(cutoff: Any, keep: int = 1) -> Processor:
    """Like :func:`epsilon`, with a lower cutoff where the entropy of the scores is high."""
    cutoff = np.float32(share("eta_cutoff", cutoff))

    def drop(scores: Floats) -> Bools:
        limit = min(cutoff, np.sqrt(cutoff) * np.exp(-_entropy(log_softmax(scores))))
        return _unlikely(scores, limit, keep)

    return _dropping(drop)


def _unlikely(scores: Floats, limit: Any, keep: int) -> Bools:
    """Which of ``scores`` (N,) have a probability below ``limit``, but for the ``keep`` best."""
    dropping: Bools = softmax(scores) < limit
    dropping &= scores < _kth_best(scores, keep)
    return dropping


def renormalize() -> Processor:
    """Turns scores into log-probabilities."""

    def process(seqs: Sequences, scores: Floats) -> None:
        scores[:] = log_softmax(scores)

    return process


def _dropping(drop: Callable[[Floats], Bools]) -> Processor:
    """Bans what ``drop`` names among a row's open scores (N,)."""

    def process(seqs: Sequences, scores: Floats) -> None:
        for row in scores:
            is_open = row != BAN
            count = np.count_nonzero(is_open)
            if count == len(row):
                row[drop(row)] = BAN
            elif count:
                tokens = np.flatnonzero(is_open)
                row[tokens[drop(row[tokens])]] = BAN

    return process


def _kth_best(scores: Floats, k: int) -> np.float32:
    """The ``k``-th largest of ``scores`` (N,), or the least where there are fewer."""
    k = min(k, len(scores))
    # The k-th of the maxima of many groups is no higher than what is sought, and most scores lie
    # below it: one look at each score, instead of the five of a partition over all.
    size = len(scores) // (16 * k)
    if size > 3:
        groups = len(scores) // size
        maxima = scores[: size * groups].reshape(size, groups).max(axis=0)
        low = np.partition(maxima, groups - k)[groups - k]
        scores = scores[~(scores < low)]  # keeps NaN, where >= would not
    best: np.float32 = np.partition(scores, len(scores) - k)[len(scores) - k]
    return best


def _order(values: Floats) -> Ints:
    """The ascending order of ``values`` (N,), stable where that costs little."""
    return np.argsort(values, kind="stable" if len(values) < 4096 else None)


def _entropy(logs: Floats) -> np.float32:
    """The entropy, in nats, of finite log-probabilities (N,)."""
    return np.float32(-(logs * np.exp(logs)).sum(dtype=np.float64))
