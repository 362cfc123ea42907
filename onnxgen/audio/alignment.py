"""When each token was spoken, from where in the audio the decoder looked.

Some heads of Whisper's cross-attention follow the speech. Their weights are sharpened, smoothed
and averaged to one matrix, and the cheapest way through it from the first token and position to
the last ones (dynamic time warping) says when the decoder went on. The rules are those of
``WhisperGenerationMixin._extract_token_timestamps`` in transformers 4.57.6, for one answer alone:
there, an answer is also aligned over the padding that a longer neighbour in its batch causes.

Letters: R rows of a batch (beams), A alignment heads, P prompt, N tokens, S tokens of one step,
T positions of the encoder (of 0.02 s), W width of the median.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from onnxgen.audio.segments import PRECISION, STRIDE
from onnxgen.errors import LogitsError, OptionError

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
MEDIAN_WIDTH = 7


def along(steps: Sequence[Sequence[Floats] | Floats], rows: Sequence[int]) -> Floats:
    """Attention (A,N,T) of one answer, from that of each step (R,A,S,T) and its row in that step.

    The first step has the whole prompt, the others one token. ``rows`` has the row that an answer
    descends from, so with beams it is their ``beam_indices``; steps after the answer's end do not
    count.
    """
    return np.concatenate([step[row] for step, row in zip(steps, rows, strict=False)], axis=1)


def token_times(
    weights: Floats, prompt: int, frames: int | None = None, *, median_width: int = MEDIAN_WIDTH
) -> NDArray[np.float64]:
    """Seconds from the window's start at which each of the new tokens ends, (N-P+1,).

    While a token is the input, the decoder looks for the next one: so where the way comes to a
    token's row, that token has been said.

    Args:
        weights: attention (A,N,T) of the alignment heads. It has a place for each token that was
            fed: the P of the prompt, then all new ones but the last, which gets the time of the
            one before it.
        prompt: P.
        frames: of 0.01 s in the window that are audio; None for all. What lies behind them is
            left out, so that no token is heard there.
        median_width: W, odd; ``median_filter_width`` of config.json.

    LogitsError for attention that is not finite, OptionError for a width that is not odd.
    """
    if median_width < 1 or median_width % 2 == 0:
        raise OptionError(f"median_filter_width is {median_width}", wanted="an odd number")
    heard = weights[:, prompt:, : None if frames is None else frames // STRIDE]
    times = np.zeros(heard.shape[1] + 1)
    if heard.shape[1] and heard.shape[2]:
        tokens, positions = warp(-_mean_of_heads(heard, median_width))
        begins = np.diff(tokens, prepend=-1) != 0
        times[:-1] = positions[begins] * PRECISION
        times[-1] = times[-2]
    return times


def _mean_of_heads(weights: Floats, median_width: int) -> Floats:
    """One matrix (N,T) from ``weights`` (A,N,T): each position in standard scores over the tokens.

    Where all tokens have the same weight, as in half precision far from the speech, the score is
    0; transformers has NaN there, and its way goes wrong.
    """
    total = np.zeros(weights.shape[1:], np.float32)
    for head in weights:
        mean = head.mean(axis=0, dtype=np.float64)
        if not np.isfinite(mean).all():
            raise LogitsError(
                "the cross-attention that tells the times of words is not finite",
                do="use another dtype of the decoder, or ask for no times of words",
            )
        scores = head - mean.astype(np.float32)
        deviation = np.sqrt(np.square(scores).mean(axis=0, dtype=np.float64))
        scores /= np.where(deviation > 0, deviation, 1).astype(np.float32)
        total += median_filter(scores, median_width)
    total /= np.float32(len(weights))
    return total


def median_filter(values: Floats, width: int) -> Floats:
    """The median of each value of (N,T) and its ``width`` - 1 neighbours in its row.

    Behind the ends a row goes on as in a mirror. A row no longer than half the width stays.
    """
    half = width // 2
    if values.shape[1] <= half or not half:
        return values
    padded = np.pad(values, ((0, 0), (half, half)), mode="reflect")
    shifted = [padded[:, i : i + values.shape[1]] for i in range(width)]
    # Of half + 2 values the least and the greatest are not the median of all: both go, another
    # comes, until one is left. Sorting each window takes ten times as long.
    pool, rest = shifted[: half + 2], shifted[half + 2 :]
    while len(pool) > 1:
        for i in range(1, len(pool)):
            pool[0], pool[i] = np.minimum(pool[0], pool[i]), np.maximum(pool[0], pool[i])
        for i in range(1, len(pool) - 1):
            pool[i], pool[-1] = np.minimum(pool[i], pool[-1]), np.maximum(pool[i], pool[-1])
        pool = pool[1:-1] + rest[:1]
        rest = rest[1:]
    return pool[0]


def warp(costs: Floats) -> tuple[Ints, Ints]:
    """The cheapest way through ``costs`` (N,T), from its first to its last cell: rows and columns.

    A step goes to the next row, the next column or both. Where two ways cost the same, the way
    comes from both only if that is cheapest by itself, then from the row before on the same terms,
    else from the column before, even if that is dearer: so does transformers.
    """
    n, t = costs.shape
    sums = _sums(np.ascontiguousarray(costs, np.float32))
    row, column = n - 1, t - 1
    way = [(row, column)]
    while row or column:
        from_column, from_row = sums[row + column + 1, row + 1], sums[row + column + 1, row]
        from_both = sums[row + column, row]
        if from_both < from_row and from_both < from_column:
            row, column = row - 1, column - 1
        elif from_row < from_both and from_row < from_column:
            row -= 1
        else:
            column -= 1
        way.append((row, column))
    rows, columns = np.array(way[::-1], np.int64).T
    return rows, columns


def _sums(costs: Floats) -> Floats:
    """The costs of the ways to all cells, (N+T+1,N+1): that to a cell is at [row+column+2, row+1].

    The cells of a diagonal (row + column is the same) do not depend on each other, so each
    diagonal is a few operations on arrays. What is outside of ``costs`` is infinitely dear.
    """
    n, t = costs.shape
    flat, step = costs.ravel(), max(t - 1, 1)  # from a cell to the next one of its diagonal
    sums = np.full((n + t + 1, n + 1), np.inf, np.float32)
    sums[0, 0] = 0  # what leads to the first cell
    for diagonal in range(n + t - 1):
        low, high = max(0, diagonal - t + 1), min(n - 1, diagonal) + 1
        first = low * (t - 1) + diagonal
        from_both = sums[diagonal, low:high]
        from_row, from_column = sums[diagonal + 1, low:high], sums[diagonal + 1, low + 1 : high + 1]
        best = sums[diagonal + 2, low + 1 : high + 1]
        np.minimum(from_both, from_row, out=best)
        np.minimum(best, from_column, out=best)
        np.copyto(best, from_column, where=from_both == from_row)  # neither is cheapest by itself
        best += flat[first : first + (high - low - 1) * step + 1 : step]
    return sums
