"""Rows of ids and their scores, as short as tests of processors want to write them."""

import numpy as np

from onnxgen.generation.sequences import Processor, Sequences

BAN = -np.inf


def rows(*ids, prompt=None, limit=100, samples=None, encoder=None) -> Sequences:
    """Rows that hold ``ids``, of which the first ``prompt`` (default: all) are their prompts."""
    seqs = Sequences(ids, [limit] * len(ids), samples, encoder)
    if prompt is not None:
        seqs.prompt_lengths[:] = prompt
    return seqs


def after(process: Processor, seqs: Sequences, scores) -> list:
    """The scores (R,V), or (V,) of a single row, that ``process`` makes of ``scores``."""
    array = np.array(scores, np.float32)
    table = np.atleast_2d(array)
    process(seqs, table)
    return table.reshape(array.shape).tolist()


def kept(process: Processor, seqs: Sequences, scores) -> list[int]:
    """The ids that ``process`` leaves to a single row of ``scores`` (V,)."""
    return np.flatnonzero(~np.isneginf(after(process, seqs, scores))).tolist()


def banned(process: Processor, seqs: Sequences, vocab_size: int) -> list[list[int]]:
    """The ids that ``process`` bans from each row."""
    table = np.array(after(process, seqs, np.zeros((len(seqs), vocab_size))))
    return [np.flatnonzero(np.isneginf(row)).tolist() for row in table]


# Mass, tokens to keep at least, probabilities, and which of them top-p keeps.
TOP_P = [
    (0.8, 1, [0.5, 0.3, 0.2], [0, 1]),
    (0.5, 1, [0.5, 0.3, 0.2], [0]),
    (0.0, 1, [0.5, 0.3, 0.2], [0]),
    (0.0, 2, [0.3, 0.5, 0.2], [0, 1]),
    (0.1, 5, [0.3, 0.5, 0.2], [0, 1, 2]),
    (0.5, 1, [0.25, 0.25, 0.25, 0.25], [2, 3]),
    (0.0, 1, [0.25, 0.25, 0.25, 0.25], [3]),
    (0.7, 1, [0.4, 0.1, 0.1, 0.4, 0], [0, 3]),
    (0.85, 1, [0.4, 0.1, 0.1, 0.4, 0], [0, 2, 3]),
]
