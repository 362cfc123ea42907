"""Chance: which token a row draws from its scores, repeatable by seeds.

All draws are exponential races: each token t gets a q of its own from the unit exponential
distribution, and the largest ``p[t] / q[t]`` wins; the best n of one race are n draws without
replacement. :class:`RowSampler` is the default, :class:`TorchSampler` repeats torch's.

Letters: R rows, W width of a row's scores (V, or beams × V), K of them at hand, k of these open,
n draws.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxgen.errors import LogitsError, OptionError
from onnxgen.generation.checks import whole
from onnxgen.generation.protocol import Floats, Ints

Words = NDArray[np.uint64]
Reals = NDArray[np.floating[Any]]

SEEDS = 1 << 64
RNGS = ("philox", "torch")
PART = 64
CHUNK = 1 << 14  # of so many at once the intermediate arrays stay in the processor's cache


class Sampler(ABC):
    """Draws for the rows of one request, a call for each step.

    Scores are logarithms of weights, not necessarily normalised; -inf is never drawn.
    """

    def __init__(self) -> None:
        self._steps = 0

    @abstractmethod
    def noise(self, rows: Sequence[int], ids: Sequence[Ints], width: int) -> list[Reals]:
        """The q of the next step: of the request's ``rows``, for each row's ``ids`` (k,) below W.

        Each call is a step; those below make one.
        """

    def draw(self, scores: Floats, rows: Sequence[int]) -> Ints:
        """One index (R,) for each of ``scores`` (R,W), which are of the request's ``rows``.

        LogitsError where a row holds NaN, +inf or nothing else than -inf.
        """
        return self.draw_several(scores, rows, 1)[:, 0]

    def draw_several(self, scores: Floats, rows: Sequence[int], count: int) -> Ints:
        """Indices (R,n) without repetition, in the order of the draws.

        Where fewer have a chance, those without one follow, lowest first.
        """
        check_best(scores, rows, [self._steps + 1] * len(rows))
        kept = [np.flatnonzero(row > -np.inf) for row in scores]
        values = [row[own] for row, own in zip(scores, kept, strict=True)]
        return self._races(values, kept, rows, count, scores.shape[1])

    def draw_among(self, scores: Floats, ids: Ints, rows: Sequence[int], width: int) -> Ints:
        """What :meth:`draw` gives (R,) if of W scores only ``scores`` (R,K), of ``ids``, are open.

        They are finite, but for -inf.
        """
        order = np.argsort(ids, axis=1)
        scores, ids = np.take_along_axis(scores, order, 1), np.take_along_axis(ids, order, 1)
        kept = scores > -np.inf
        values = [row[own] for row, own in zip(scores, kept, strict=True)]
        own_ids = [row[own] for row, own in zip(ids, kept, strict=True)]
        return self._races(values, own_ids, rows, 1, width)[:, 0]

    def _races(
        self,
        scores: Sequence[Floats],
        ids: Sequence[Ints],
        rows: Sequence[int],
        count: int,
        width: int,
    ) -> Ints:
        """The first n of each row's ``ids`` (k,) with ``scores`` (k,)."""
        self._steps += 1
        drawn = np.empty((len(rows), count), np.int64)  # (R,n)
        noise = self.noise(rows, ids, width)
        for i, (values, own, q) in enumerate(zip(scores, ids, noise, strict=True)):
            powers = np.exp(values - values.max())
            drawn[i] = _race(powers / powers.sum() / q, own, count)
        return drawn


def new_sampler(
    *,
    seed: Any = None,
    seeds: Any = None,
    rng: Any = "philox",
    prompts: int,
    returned: int = 1,
) -> Sampler:
    """The sampler of a request of ``prompts`` × ``returned`` rows, in transformers' order.

    ``seed`` acts on each prompt as if it were alone, ``seeds`` gives each prompt its own; of what
    is returned for one prompt each draws on its own. For beams ``returned`` is 1: a prompt's beams
    draw together. With neither every run differs. OptionError for what is no seed or no generator.
    """
    if rng not in RNGS:
        raise OptionError(f"rng is {rng!r}", wanted=" or ".join(map(repr, RNGS)))
    if seed is not None and seeds is not None:
        raise OptionError("both seed and seeds are given", do="give one of them")
    if rng == "torch":
        if seeds is not None:
            raise OptionError(
                "seeds is given with rng='torch'",
                wanted="one seed, since torch draws for all rows in turn",
                do="give seed instead, or leave rng out",
            )
        own = _any_seed() if seed is None else _seed("seed", seed)
        return TorchSampler(own, prompts * returned)
    if seeds is not None:
        own_seeds = _seeds(seeds, prompts)
    elif seed is not None:
        own_seeds = [_seed("seed", seed)] * prompts
    else:
        own_seeds = [_any_seed() for _ in range(prompts)]
    # The upper half of a row's 128 bits counts what is returned for one prompt.
    return RowSampler([own + SEEDS * i for own in own_seeds for i in range(returned)])


def _seeds(seeds: Any, prompts: int) -> list[int]:
    if isinstance(seeds, str | bytes) or not isinstance(seeds, Sequence | np.ndarray):
        raise OptionError(f"seeds is {seeds!r}", wanted="a list of seeds, one for each prompt")
    if len(seeds) != prompts:
        raise OptionError(f"{len(seeds)} seeds for {prompts} prompts", wanted="one for each")
    return [_seed(f"seeds[{i}]", value) for i, value in enumerate(seeds)]


def _any_seed() -> int:
    return int.from_bytes(os.urandom(8))


def _seed(name: str, value: Any) -> int:
    seed = whole(name, value)
    if seed >= SEEDS:
        raise OptionError(f"{name} is {value!r}", wanted="a whole number below 2**64")
    return seed


class RowSampler(Sampler):
    """Every row draws from a generator of its own.

    ``q`` hangs on the row's seed, its step and the token's id alone: not on other rows, nor on
    which other tokens are kept, so what a row draws is the same in any batch, and noise of a
    kernel that moves a token across the border of top-k changes a draw only if that token wins.
    For that a row's Philox gives each step a key, and SplitMix64 makes of key and id the token's
    word: 0.1 ms for 50 kept of 151,936 tokens, 3 ms for all of them.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        super().__init__()
        self._generators = [np.random.Philox(key=seed) for seed in seeds]

    def noise(self, rows: Sequence[int], ids: Sequence[Ints], width: int) -> list[Reals]:
        """See :class:`Sampler`."""
        keys = [self._generators[row].random_raw() for row in rows]
        return [unit_exponential(key, own) for key, own in zip(keys, ids, strict=True)]


class TorchSampler(Sampler):
    """Draws what ``torch.manual_seed(seed)`` and torch.multinomial on the CPU do.

    torch takes two words of its Mersenne Twister for each score of each of the request's ``rows``
    in each step, also of rows that have ended: so are they here, with a call for each step. 1 ms a
    row of 151,936.
    """

    def __init__(self, seed: int, rows: int) -> None:
        super().__init__()
        self._generator = np.random.RandomState(seed & 0xFFFFFFFF)
        self._rows = rows

    def noise(self, rows: Sequence[int], ids: Sequence[Ints], width: int) -> list[Reals]:
        """See :class:`Sampler`."""
        wanted, found = dict(zip(rows, ids, strict=True)), {}
        for row in range(self._rows):
            words: Words = self._generator.randint(0, SEEDS, width, np.uint64)
            if row in wanted:
                found[row] = torch_exponential(words[wanted[row]])
        return [found[row] for row in rows]


def check_best(scores: Floats, rows: Sequence[int], steps: Sequence[int]) -> Floats:
    """The best (R,) of each of ``scores`` (R,W); LogitsError for one that is not finite."""
    best: Floats = scores.max(axis=1)  # NaN where there is one
    refuse(best, rows, steps)
    return best


def refuse(best: Floats, rows: Sequence[int], steps: Sequence[int]) -> None:
    """LogitsError for the first of ``rows`` whose best score, of ``best`` (R,), is not finite."""
    for value, row, step in zip(best, rows, steps, strict=True):
        if not np.isfinite(value):
            banned = value == -np.inf
            raise LogitsError(
                f"the best score of row {row} is {value} in step {step}",
                wanted="a token that is not banned" if banned else "finite scores",
                do="loosen what bans tokens"
                if banned
                else "try another dtype of the model (fp16 overflows in some)",
            )


def largest(values: Reals, count: int) -> Ints:
    """Where the n largest of ``values`` (W,) are, in falling order; of equals the first.

    NaN is not looked for. The n-th largest maximum of disjoint parts bounds the answer from below,
    so only what lies above is sorted: 8 from 4 × 151,936 take 0.3 ms, by argpartition 1.5.
    """
    parts = len(values) // PART
    if parts < max(count, PART):
        return np.argsort(-values, kind="stable")[:count]
    inside = values[: PART * parts].reshape(PART, parts)  # a part is a column: faster than a row
    maxima = np.concatenate([inside.max(axis=0), values[PART * parts :]])
    border = np.partition(maxima, -count)[-count]
    found = np.flatnonzero(values > border)
    if len(found) < count:
        equal = np.flatnonzero(values == border)[: count - len(found)]
        found = np.concatenate([found, equal])
    return found[np.argsort(-values[found], kind="stable")[:count]]


def _race(pace: Reals, kept: Ints, count: int) -> Ints:
    """The first n of ``kept`` (k,) by ``pace`` (k,), then the lowest ids that are not in it."""
    winners = kept[largest(pace, min(count, len(kept)))]
    short = count - len(winners)
    if short:
        others = np.setdiff1d(np.arange(count + len(kept)), kept)[:short]
        winners = np.concatenate([winners, others])
    return winners


def torch_exponential(words: Words) -> Floats:
    """Numbers (k,) that torch's ``exponential_`` makes of ``words`` (k,), float32 from double."""
    u = (words & np.uint64((1 << 53) - 1)) * 2.0**-53
    numbers: Floats = (-np.log1p(-u)).astype(np.float32)
    return numbers


def unit_exponential(key: int, ids: Ints) -> Reals:
    """Numbers (k,) of the unit exponential distribution, never 0, float64."""
    numbers = np.empty(len(ids))
    for start in range(0, len(ids), CHUNK):
        words = splitmix(key, ids[start : start + CHUNK])
        u = ((words >> np.uint64(12)) + 0.5) * 2.0**-52  # never 0 nor 1
        numbers[start : start + CHUNK] = -np.log(u)
    return numbers


def splitmix(key: int, ids: Ints) -> Words:
    """Words (k,) number ``ids`` of the SplitMix64 sequence that ``key`` begins."""
    words = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
