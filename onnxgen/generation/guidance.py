"""Classifier-free guidance: two decoders that step as one.

Letters: B rows, S new tokens, V vocabulary.
"""

from collections.abc import Callable, Sequence

import numpy as np

from onnxgen.generation.processors import guidance
from onnxgen.generation.protocol import Floats, Ints, Steps


class GuidedSteps:
    """Steps whose logits are pushed away from those of an unconditional decoder.

    Both read every new token; of the prompts the unconditional one reads ``negatives``, or where
    there are none each prompt's last token.
    """

    def __init__(
        self,
        decoder: Steps,
        unconditional: Steps,
        scale: float,
        negatives: Sequence[Sequence[int]] | None,
        pad: Callable[[Sequence[Sequence[int]]], tuple[Ints, Ints]],
    ) -> None:
        self._decoder, self._unconditional, self._scale = decoder, unconditional, scale
        self._negatives, self._pad, self._started = negatives, pad, False
        self.capacity, self.vocab_size = decoder.capacity, decoder.vocab_size

    def step(self, tokens: Ints, lengths: Ints) -> Floats:
        """Guided log-probabilities (B,V) after ``tokens`` (B,S), see :class:`Steps`."""
        conditional = self._decoder.step(tokens, lengths)
        if not self._started:
            self._started = True
            last = [[int(row[count - 1])] for row, count in zip(tokens, lengths, strict=True)]
            tokens, lengths = self._pad(self._negatives or last)
        unconditional = self._unconditional.step(tokens, lengths)
        return guidance(conditional, unconditional, self._scale)

    def step_all(self, tokens: Ints, lengths: Ints) -> Floats:
        """Guided log-probabilities (B,S,V) after each token, one column at a time."""
        columns = [
            self.step(tokens[:, i : i + 1], (lengths > i).astype(np.int64))
            for i in range(tokens.shape[1])
        ]
        return np.stack(columns, axis=1)

    def reorder(self, rows: Sequence[int] | Ints) -> None:
        """See :class:`Steps`; the unconditional cache follows."""
        self._decoder.reorder(rows)
        self._unconditional.reorder(rows)

    def rewind(self, lengths: Ints) -> None:
        """Not to be had: the two decoders hold rows of unlike length."""
        raise NotImplementedError("guided sequences cannot be rewound")

    def close(self) -> None:
        """Frees both."""
        self._decoder.close()
        self._unconditional.close()
