"""Logits processors: what may not, must or should rather come next, given the ids so far.

Each function here checks its options (OptionError) and returns the processor. A row counts its
own ids, L of them, P of which are its prompt; for an encoder-decoder they are the decoder's. The
meanings, and the order in :mod:`onnxgen.generation.pipeline`, are those of transformers.

Letters: R rows, L ids so far, P prompt, V vocabulary, E eos ids, N n-gram size.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxgen.errors import OptionError
from onnxgen.generation.checks import (
    SMALLEST,
    factor,
    finite,
    number,
    reachable,
    token_ids,
    whole,
)
from onnxgen.generation.protocol import Floats, Ints
from onnxgen.generation.sequences import Processor, Sequences
from onnxgen.generation.softmax import log_softmax

BAN = np.float32(-np.inf)
_MOST = float(np.finfo(np.float32).max)

PrefixFunction = Callable[[int, Ints], Collection[int]]


def guidance(conditional: Floats, unconditional: Floats, scale: float) -> Floats:
    """Classifier-free guidance: log-probabilities (R,V) moved away from the unconditional ones.

    Both logits (R,V) are of the same step, ``unconditional`` without the prompt or with a negative
    one. An id without a chance in ``conditional`` stays so; one without a chance only in
    ``unconditional`` is left as it is.
    """
    given, free = log_softmax(conditional), log_softmax(unconditional)
    with np.errstate(invalid="ignore"):
        guided = np.float32(scale) * (given - free) + free
    return np.where(np.isneginf(given) | np.isneginf(free), given, guided)


def guidance_scale(value: Any) -> float:
    """The checked scale of :func:`guidance`."""
    return number("guidance_scale", value, SMALLEST, 1e6)


def repetition_penalty(penalty: float) -> Processor:
    """Makes every id of the row less likely, once however often it is there."""
    penalty = factor("repetition_penalty", penalty)

    def process(seqs: Sequences, scores: Floats) -> None:
        for i, row in enumerate(scores):
            _scale(row, seqs.row(i), penalty)

    return process


def encoder_repetition_penalty(penalty: float) -> Processor:
    """Makes every id that the encoder was given (without one: the prompt) more likely."""
    inverse = 1 / factor("encoder_repetition_penalty", penalty)
    arrays = _encoder_arrays()

    def process(seqs: Sequences, scores: Floats) -> None:
        encoder = arrays(seqs)
        for row, sample in zip(scores, seqs.samples, strict=True):
            _scale(row, encoder[sample], inverse)

    return process


def _scale(row: Floats, ids: Ints, penalty: float) -> None:
    ids = _within(ids, len(row))
    old = row[ids]  # an id that repeats gets the same new score each time
    row[ids] = np.where(old < 0, old * penalty, old / penalty)


def presence_penalty(penalty: float) -> Processor:
    """Subtracts ``penalty`` from every id among the row's new tokens, -2 to 2 as OpenAI's API."""
    return _counting(number("presence_penalty", penalty, -2, 2), 0.0)


def frequency_penalty(penalty: float) -> Processor:
    """Subtracts ``penalty`` for each time that an id is among the row's new tokens, -2 to 2."""
    return _counting(0.0, number("frequency_penalty", penalty, -2, 2))


def _counting(presence: float, frequency: float) -> Processor:
    def process(seqs: Sequences, scores: Floats) -> None:
        for i, row in enumerate(scores):
            ids, counts = np.unique(seqs.row(i)[seqs.prompt_lengths[i] :], return_counts=True)
            row[ids] -= (presence + frequency * counts).astype(np.float32)

    return process


def logit_bias(biases: Mapping[int, float], vocab_size: int) -> Processor:
    """Adds to the ids' scores, -100 to 100 as OpenAI's API."""
    if not isinstance(biases, Mapping):
        raise OptionError(f"logit_bias is {biases!r}", wanted="a dict of token ids to numbers")
    ids = token_ids("logit_bias", biases, vocab_size, empty=True)
    checked = [number("a bias of logit_bias", bias, -100, 100) for bias in biases.values()]
    values = np.array(checked, np.float32)

    def process(seqs: Sequences, scores: Floats) -> None:
        scores[:, ids] += values

    return process


def sequence_bias(biases: Any, vocab_size: int) -> Processor:
    """Adds to the last id of each sequence, where the row ends with the ids before it.

    ``biases`` is a dict of tuples of ids to floats or transformers' list form, [[ids], float] each.
    """
    endings = _Endings(
        {
            tuple(token_ids("sequence_bias", ids, vocab_size).tolist()): finite(
                "a bias of sequence_bias", bias
            )
            for ids, bias in _pairs(biases)
        }
    )

    def process(seqs: Sequences, scores: Floats) -> None:
        for i, row in enumerate(scores):
            lasts, values = endings.of(seqs.row(i))
            total = np.zeros(vocab_size, np.float32)
            np.add.at(total, lasts, values)
            row[lasts] += total[lasts]

    return process


def _pairs(biases: Any) -> Iterable[tuple[Any, Any]]:
    """The entries of either form of ``sequence_bias``."""
    wanted = "a dict of tuples of ids to floats, or a list of [[ids], float]"
    if isinstance(biases, Mapping) and biases and all(isinstance(ids, tuple) for ids in biases):
        return biases.items()
    if not isinstance(biases, list | tuple) or not biases:
        raise OptionError(f"sequence_bias is {type(biases).__name__} or empty", wanted=wanted)
    for entry in biases:
        if not isinstance(entry, list | tuple) or len(entry) != 2:
            raise OptionError("an entry of sequence_bias is no pair", wanted=wanted)
    return [(ids, bias) for ids, bias in biases]


def bad_words(words: Any, stop_ids: Collection[int], vocab_size: int) -> Processor:
    """Bans the last id of each word, where the row ends with the ids before it.

    A word that is nothing but a stop id is left out.
    """
    if not isinstance(words, list | tuple) or not words:
        raise OptionError("bad_words_ids is no list or empty", wanted="a list of lists of ids")
    if not all(isinstance(word, list | tuple) for word in words):
        raise OptionError("bad_words_ids holds what is no list", wanted="a list of lists of ids")
    checked = [tuple(token_ids("bad_words_ids", word, vocab_size).tolist()) for word in words]
    stops = {(token,) for token in stop_ids}
    endings = _Endings({word: 0.0 for word in checked if word not in stops})

    def process(seqs: Sequences, scores: Floats) -> None:
        for i, row in enumerate(scores):
            row[endings.of(seqs.row(i))[0]] = BAN

    return process


class _Endings:
    """Sequences of ids, each with a value; finds those that one more id would complete."""

    def __init__(self, values: Mapping[tuple[int, ...], float]) -> None:
        by_length: dict[int, list[tuple[int, ...]]] = {}
        for ids in values:
            by_length.setdefault(len(ids) - 1, []).append(ids)
        # All sequences of a length at once: what comes before (S,N-1), the last (S,), value (S,).
        self._groups = [
            (
                np.array([ids[:-1] for ids in group], np.int64).reshape(len(group), before),
                np.array([ids[-1] for ids in group], np.int64),
                np.array([values[ids] for ids in group], np.float32),
            )
            for before, group in by_length.items()
        ]

    def of(self, ids: Ints) -> tuple[Ints, Floats]:
        """The last ids of the sequences whose beginnings end ``ids`` (L,), and their values."""
        lasts, found = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
        for before, last, values in self._groups:
            size = before.shape[1]
            if size > len(ids):
                continue
            matching = (before == ids[len(ids) - size :]).all(axis=1)
            lasts.append(last[matching])
            found.append(values[matching])
        return np.concatenate(lasts), np.concatenate(found)


def no_repeat_ngram(size: int) -> Processor:
    """Bans every id that would make the row hold the same ``size`` ids in a row twice."""
    size = whole("no_repeat_ngram_size", size, least=1)

    def process(seqs: Sequences, scores: Floats) -> None:
        for i, row in enumerate(scores):
            ids = seqs.row(i)
            row[_within(_followers(ids, ids, size), len(row))] = BAN

    return process


def encoder_no_repeat_ngram(size: int) -> Processor:
    """Likewise against the ids that the encoder was given (without one: the prompt)."""
    size = whole("encoder_no_repeat_ngram_size", size, least=1)
    arrays = _encoder_arrays()

    def process(seqs: Sequences, scores: Floats) -> None:
        encoder = arrays(seqs)
        for i, row in enumerate(scores):
            followers = _followers(encoder[seqs.samples[i]], seqs.row(i), size)
            row[_within(followers, len(row))] = BAN

    return process


def _followers(source: Ints, ids: Ints, size: int) -> Ints:
    """The ids of ``source`` that follow an occurrence of the last ``size`` - 1 of ``ids``."""
    windows = len(source) - size + 1
    if windows < 1 or len(ids) < size - 1:
        return source[:0]
    prefix = ids[len(ids) - size + 1 :]  # (N-1,)
    matching = np.ones(windows, bool)
    for offset, token in enumerate(prefix):
        matching &= source[offset : offset + windows] == token
    return source[size - 1 :][matching]


def _within(ids: Ints, vocab_size: int) -> Ints:
    """Those of ``ids`` that have a score; embeddings may know more ids than the head."""
    if len(ids) and ids.max() >= vocab_size:
        return ids[ids < vocab_size]
    return ids


def _encoder_arrays() -> Callable[[Sequences], list[Ints]]:
    """A function that gives a request's encoder ids as arrays, made once a request."""
    last: tuple[list[list[int]], list[Ints]] = ([], [])

    def arrays(seqs: Sequences) -> list[Ints]:
        nonlocal last
        if last[0] is not seqs.encoder_ids:
            last = seqs.encoder_ids, [np.array(ids, np.int64) for ids in seqs.encoder_ids]
        return last[1]

    return arrays


def min_length(length: int, stop_ids: Collection[int], vocab_size: int) -> Processor:
    """Bans the stop ids while L < ``length``."""
    length = whole("min_length", length)
    return _ban_where(lambda seqs: seqs.lengths < length, reachable(stop_ids, vocab_size))


def min_new_tokens(count: int, stop_ids: Collection[int], vocab_size: int) -> Processor:
    """Bans the stop ids while L - P < ``count``."""
    count = whole("min_new_tokens", count)
    return _ban_where(
        lambda seqs: seqs.lengths - seqs.prompt_lengths < count, reachable(stop_ids, vocab_size)
    )


def suppress(ids: Iterable[int], vocab_size: int) -> Processor:
    """Bans ``ids``, which may be none."""
    banned = token_ids("suppress_tokens", ids, vocab_size, empty=True)

    def process(seqs: Sequences, scores: Floats) -> None:
        scores[:, banned] = BAN

    return process


def suppress_at_begin(ids: Iterable[int], vocab_size: int, *, after_bos: bool = False) -> Processor:
    """Bans ``ids`` as first new token.

    ``after_bos``: where a bos is forced upon prompts of one id, as second one there.
    """
    banned = token_ids("begin_suppress_tokens", ids, vocab_size, empty=True)

    def begins(seqs: Sequences) -> NDArray[np.bool_]:
        late = after_bos & (seqs.prompt_lengths <= 1)
        begin: NDArray[np.bool_] = seqs.lengths == seqs.prompt_lengths + late
        return begin

    return _ban_where(begins, banned)


def _ban_where(where: Callable[[Sequences], NDArray[np.bool_]], ids: Ints) -> Processor:
    """Bans ``ids`` in the rows that ``where`` (R,) names."""

    def process(seqs: Sequences, scores: Floats) -> None:
        rows = np.flatnonzero(where(seqs))
        if len(rows):
            scores[rows[:, None], ids] = BAN

    return process


def prefix_constrained(allowed: PrefixFunction) -> Processor:
    """Bans all but what ``allowed(prompt number, row's ids (L,))`` returns.

    OptionError where it returns no ids, or what are none.
    """
    if not callable(allowed):
        raise OptionError("prefix_allowed_tokens_fn is no function")

    def process(seqs: Sequences, scores: Floats) -> None:
        for i, row in enumerate(scores):
            returned = allowed(int(seqs.samples[i]), seqs.row(i).copy())
            ids = token_ids("what prefix_allowed_tokens_fn returned", returned, len(row))
            _keep(row, ids, row[ids])

    return process


def forced_bos(token: int, vocab_size: int) -> Processor:
    """Leaves nothing but ``token`` to rows of one id; longer prompts never get it."""
    ids = token_ids("forced_bos_token_id", token, vocab_size)
    return _force_where(lambda seqs: seqs.lengths == 1, ids)


def forced_eos(tokens: int | Iterable[int], vocab_size: int) -> Processor:
    """Leaves nothing but ``tokens`` for a row's last place."""
    ids = token_ids("forced_eos_token_id", tokens, vocab_size)
    return _force_where(lambda seqs: seqs.lengths == seqs.max_lengths - 1, ids)


def _force_where(where: Callable[[Sequences], NDArray[np.bool_]], ids: Ints) -> Processor:
    def process(seqs: Sequences, scores: Floats) -> None:
        for i in np.flatnonzero(where(seqs)):
            _keep(scores[i], ids, 0)

    return process


def _keep(row: Floats, ids: Ints, values: Floats | int) -> None:
    row[:] = BAN
    row[ids] = values


def remove_invalid() -> Processor:
    """NaN becomes 0, infinities the ends of float32; bans made before it too."""

    def process(seqs: Sequences, scores: Floats) -> None:
        np.nan_to_num(scores, copy=False)

    return process


def exponential_decay(decay: Any, stop_ids: Collection[int], vocab_size: int) -> Processor:
    """Raises the stop ids ever more once more than ``decay[0]`` tokens are new.

    ``decay`` is (start, base): the n-th token beyond start adds \\|s\\| × (baseⁿ - 1) to a score s.
    """
    if not isinstance(decay, list | tuple) or len(decay) != 2:
        raise OptionError(
            f"exponential_decay_length_penalty is {decay!r}", wanted="a pair: start, factor"
        )
    start = whole("the start of exponential_decay_length_penalty", decay[0])
    base = number("the factor of exponential_decay_length_penalty", decay[1], SMALLEST, 1e30)
    eos = reachable(stop_ids, vocab_size)
    if not len(eos):
        raise OptionError(
            "exponential_decay_length_penalty acts on stop ids, and there are none",
            do="give eos_token_id",
        )

    def process(seqs: Sequences, scores: Floats) -> None:
        beyond = seqs.lengths - seqs.prompt_lengths - start  # (R,)
        for i in np.flatnonzero(beyond > 0):
            with np.errstate(over="ignore"):
                growth = min(np.float64(base) ** beyond[i] - 1, _MOST)
            open_eos = eos[np.isfinite(scores[i, eos])]
            old = scores[i, open_eos].astype(np.float64)  # (E,)
            scores[i, open_eos] = np.clip(old + np.abs(old) * growth, -_MOST, _MOST)

    return process
