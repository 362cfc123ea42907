"""A decoder without a model: its next token is a function of the row so far."""

from collections.abc import Callable, Sequence

import numpy as np


class FakeDecoder:
    """Keeps each row's tokens; logits are one-hot at ``choose(row tokens)``, or as it returns."""

    def __init__(self, choose: Callable[[list[int]], int | np.ndarray], vocab_size: int = 16):
        self.choose, self.vocab_size, self.capacity = choose, vocab_size, 1 << 20
        self.rows: list[list[int]] | None = None
        self.batches: list[int] = []
        self.closed = False

    def step(self, tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        if self.rows is None:
            self.rows = [[] for _ in tokens]
        assert len(self.rows) == len(tokens)
        self.batches.append(len(tokens))
        for row, own, count in zip(self.rows, tokens, lengths, strict=True):
            row.extend(own[:count].tolist())
        return np.stack([self._logits(row) for row in self.rows])

    def _logits(self, row: list[int]) -> np.ndarray:
        chosen = self.choose(row)
        if isinstance(chosen, np.ndarray):
            return chosen.astype(np.float32)
        logits = np.zeros(self.vocab_size, np.float32)
        logits[chosen] = 1
        return logits

    def reorder(self, rows: Sequence[int]) -> None:
        self.rows = [list(self.rows[row]) for row in rows]

    def rewind(self, lengths: np.ndarray) -> None:
        self.rows = [row[:length] for row, length in zip(self.rows, lengths, strict=True)]

    def close(self) -> None:
        self.closed = True
