"""SynthID watermark: a tournament among the tokens, judged by hashes of the ids before them.

What it knows of a row, its context and the contexts it has marked already, follows from the ids,
so it holds for beams too. The hashes are transformers', not those of any product.

Letters: L ids so far, P prompt, N n-gram size, D depth (keys), V vocabulary, K open tokens.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxgen.errors import OptionError
from onnxgen.generation.checks import token_ids, whole
from onnxgen.generation.processors import BAN
from onnxgen.generation.protocol import Floats, Ints
from onnxgen.generation.sequences import Processor, Sequences
from onnxgen.generation.softmax import softmax
from onnxgen.generation.torch_random import words

_MULTIPLIER = np.int64(6364136223846793005)  # of the random numbers of newlib and musl
_LEAST = np.finfo(np.float32).min


def synth_id(
    *,
    ngram_len: int,
    keys: Sequence[int],
    context_history_size: int = 1024,
    sampling_table_size: int = 65536,
    sampling_table_seed: int = 0,
    skip_first_ngram_calls: bool = False,
    debug_mode: bool = False,
) -> Processor:
    """Gives each token that wins a round of the tournament, one for each key, a part of the mass.

    The last ``ngram_len`` - 1 new ids choose the winners; a context among the last
    ``context_history_size`` is not marked again. Scores come out as log-probabilities.
    """
    size = whole("ngram_len", ngram_len, least=2)
    key_ids = token_ids("keys", keys, 1 << 62)  # (D,)
    history = whole("context_history_size", context_history_size, least=1)
    cells = whole("sampling_table_size", sampling_table_size, least=1)
    seed = whole("sampling_table_seed", sampling_table_seed)
    if not isinstance(skip_first_ngram_calls, bool):
        raise OptionError(
            f"skip_first_ngram_calls is {skip_first_ngram_calls!r}", wanted="true or false"
        )
    if debug_mode is not False:
        raise OptionError("debug_mode of SynthID is not offered", do="leave it out")
    table = (words(seed, cells) % 2).astype(np.int8)
    first = size - 1 if skip_first_ngram_calls else 0

    def process(seqs: Sequences, scores: Floats) -> None:
        for i, row in enumerate(scores):
            new = seqs.row(i)[seqs.prompt_lengths[i] :]
            contexts = _context_hashes(new, size - 1)  # one for each step so far
            if len(new) < first or contexts[-1] in contexts[first:-1][-history:]:
                continue
            tokens = np.flatnonzero(row != BAN)
            if len(tokens):
                scored = _tournament(row[tokens], tokens, contexts[-1], key_ids, table)
                row[:] = _LEAST
                row[tokens] = scored

    return process


def _context_hashes(new: Ints, width: int) -> Ints:
    """A hash of the ``width`` ids before each new one and before the next; zeros come first."""
    padded = np.concatenate([np.zeros(width, np.int64), new])
    hashes = np.ones(len(new) + 1, np.int64)
    for offset in range(width):
        hashes = _mix(hashes, padded[offset : offset + len(hashes)])
    return hashes


def _mix(hashes: Any, ids: Any) -> Any:
    """One step of the hash, in int64 that wraps around."""
    return (hashes + ids) * _MULTIPLIER + 1


def _tournament(scores: Floats, tokens: Ints, context: Any, keys: Ints, table: Any) -> Floats:
    """The log-probabilities (K,) of ``tokens`` (K,) after a round for each of ``keys`` (D,)."""
    shares = softmax(scores)  # (K,)
    hashes = _mix(np.full(len(tokens), context), tokens)
    for key in keys:
        wins = table[_mix(hashes, key) % len(table)].astype(np.float32)  # (K,)
        shares *= 1 + wins - np.dot(wins, shares)
    with np.errstate(divide="ignore", invalid="ignore"):  # a share may round to 0 or just below
        logs = np.log(shares)
    return np.where(np.isfinite(logs), logs, _LEAST)
