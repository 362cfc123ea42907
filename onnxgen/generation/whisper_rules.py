"""Whisper's rules for timestamps: they come in pairs, never go back, and win by their sum.

A row's prompt is all that precedes its first new token, so new ids begin at P.

Letters: R rows, L ids so far, P prompt, V vocabulary.
"""

from typing import Any

import numpy as np

from onnxgen.generation.checks import token_ids, whole
from onnxgen.generation.processors import BAN
from onnxgen.generation.protocol import Floats, Ints
from onnxgen.generation.sequences import Processor, Sequences
from onnxgen.generation.softmax import softmax


def timestamps(
    no_timestamps_id: Any,
    eos_id: Any,
    vocab_size: int,
    *,
    max_initial: Any = None,
    by_mass: bool = True,
) -> Processor:
    """Lets a timestamp, an id beyond ``no_timestamps_id``, come only where one may.

    ``max_initial`` is the highest first one, counted from 0. ``by_mass``: once all timestamps
    together are likelier than the best other token, one of them must come.
    """
    first = int(token_ids("no_timestamps_token_id", no_timestamps_id, vocab_size)[0]) + 1
    eos = int(token_ids("eos_token_id", eos_id, vocab_size)[0])
    if max_initial is not None:
        max_initial = whole("max_initial_timestamp_index", max_initial)

    def process(seqs: Sequences, scores: Floats) -> None:
        scores[:, first - 1] = BAN
        for i, row in enumerate(scores):
            new = seqs.row(i)[seqs.prompt_lengths[i] :]
            if len(new):
                _pair(row, new, first, eos)
            else:
                row[:first] = BAN
                if max_initial is not None:
                    row[first + max_initial + 1 :] = BAN
            if by_mass and _sum_wins(row[first:], row[:first]):
                row[:first] = BAN

    return process


def _pair(row: Floats, new: Ints, first: int, eos: int) -> None:
    """Bans what would break a pair or go back, after the ids ``new``."""
    closed = len(new) < 2 or new[-2] >= first
    closing = bool(new[-1] >= first) and not closed
    if closing:
        row[:eos] = BAN  # a second timestamp, or the end
    elif new[-1] >= first:
        row[first:] = BAN  # text
    marks = new[new >= first]
    if len(marks):
        # The second of a pair may repeat the first; a new one must be later.
        row[first : marks[-1] + (not closing)] = BAN


def _sum_wins(marks: Floats, others: Floats) -> bool:
    """Whether exp(``marks``) sum to more than the best of exp(``others``)."""
    best = marks.max(initial=-np.inf)
    if not np.isfinite(best):
        return False
    total = best + np.log(np.exp(marks - best).sum(dtype=np.float64))
    return bool(total > others.max())


def no_speech_probability(logits: Floats, no_timestamps_id: int) -> Floats:
    """The probability (R,) of silence, from ``logits`` (R,V) after start-of-transcript."""
    shares: Floats = softmax(logits)[:, no_timestamps_id - 1]
    return shares
