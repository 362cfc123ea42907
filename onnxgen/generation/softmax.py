"""Softmax and its logarithm, in float32 as the models' own scores are.

Letters: R rows, V vocabulary.
"""

import numpy as np

from onnxgen.generation.protocol import Floats


def softmax(scores: Floats) -> Floats:
    """Probabilities (..., V) of ``scores`` (..., V); each row holds a finite one."""
    # A NaN or an infinity makes its row NaN, for others to see.
    with np.errstate(invalid="ignore", over="ignore"):
        powers: Floats = np.exp(scores - scores.max(axis=-1, keepdims=True))
    powers /= _total(powers)
    return powers


def log_softmax(scores: Floats) -> Floats:
    """Log-probabilities (..., V) of ``scores`` (..., V); a row that is all -inf stays so."""
    best = scores.max(axis=-1, keepdims=True)
    best[best == -np.inf] = 0
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        shifted: Floats = scores - best
        totals = np.log(_total(np.exp(shifted)))
    totals[totals == -np.inf] = 0
    shifted -= totals
    return shifted


def normaliser(scores: Floats) -> float:
    """What makes ``scores`` (V,) log-probabilities when taken off: the log of their exp's sum."""
    best = scores.max()
    return float(best + np.log(np.exp(scores - best).sum()))


def _total(powers: Floats) -> Floats:
    """The sums of the rows, (..., 1); rounded once, since borders hang on their last bit."""
    sums: Floats = powers.sum(axis=-1, keepdims=True, dtype=np.float64).astype(np.float32)
    return sums
