"""The rows of a request as logits processors see them: ids so far, where they began.

Letters: R rows (prompts, times beams or returned sequences), L longest row so far, V vocabulary.
"""

from collections.abc import Callable, Sequence

import numpy as np

from onnxgen.generation.protocol import Floats, Ints


class Sequences:
    """Rows of token ids, each of its own length, that grow together by a token a step.

    ``ids`` (R,L) holds row i's ``lengths[i]`` ids from column 0; what follows them means nothing.
    A row starts with its prompt of ``prompt_lengths[i]`` ids, without padding; for an
    encoder-decoder with the decoder's prompt. ``samples[i]`` is the number of the prompt that row i
    belongs to, ``encoder_ids[s]`` what prompt s gave the encoder (the prompt itself where there is
    no encoder). ``max_lengths[i]`` is the length at which row i must end.
    """

    def __init__(
        self,
        prompts: Sequence[Sequence[int]],
        max_lengths: Sequence[int],
        samples: Sequence[int] | None = None,
        encoder_ids: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.prompt_lengths: Ints = np.array([len(p) for p in prompts], np.int64)  # (R,)
        self.lengths: Ints = self.prompt_lengths.copy()  # (R,)
        self.max_lengths: Ints = np.array(max_lengths, np.int64)  # (R,)
        self.samples: Ints = np.arange(len(prompts)) if samples is None else np.array(samples)
        self.encoder_ids = [list(ids) for ids in (encoder_ids or prompts)]
        self._buffer: Ints = np.zeros((len(prompts), int(self.lengths.max()) + 64), np.int64)
        for row, prompt in enumerate(prompts):
            self._buffer[row, : len(prompt)] = prompt

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def ids(self) -> Ints:
        """The ids (R,L); a view, valid until the next :meth:`append`."""
        view: Ints = self._buffer[:, : int(self.lengths.max())]
        return view

    def row(self, index: int) -> Ints:
        """The ids of one row, (lengths[index],); a view."""
        view: Ints = self._buffer[index, : int(self.lengths[index])]
        return view

    def append(self, tokens: Ints) -> None:
        """Adds ``tokens`` (R,), one to each row."""
        if int(self.lengths.max()) == self._buffer.shape[1]:
            self._buffer = np.concatenate([self._buffer, np.zeros_like(self._buffer)], axis=1)
        self._buffer[np.arange(len(self)), self.lengths] = tokens
        self.lengths = self.lengths + 1

    def select(self, rows: Sequence[int] | Ints) -> None:
        """Makes row i what row ``rows[i]`` was; rows may repeat or be left out."""
        picked = np.asarray(rows, np.int64)
        self._buffer = self._buffer[picked]
        self.lengths, self.prompt_lengths = self.lengths[picked], self.prompt_lengths[picked]
        self.max_lengths, self.samples = self.max_lengths[picked], self.samples[picked]


# Changes ``scores`` (R,V), float32 and writable, in place; a ban is -inf.
Processor = Callable[[Sequences, Floats], None]
