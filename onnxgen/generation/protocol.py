"""The step protocol: all that generation knows of a model.

Letters: B rows, S new tokens, V vocabulary.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


class Steps(Protocol):
    """A batch of sequences that can be stepped; see ``onnxgen.runtime.decoder.Decoder``."""

    @property
    def capacity(self) -> int:
        """Tokens that a row may hold. A row's last token is never fed, so it needs no place."""

    @property
    def vocab_size(self) -> int:
        """V."""

    def step(self, tokens: Ints, lengths: Ints) -> Floats:
        """Feeds ``tokens`` (B,S), of row i the first ``lengths[i]``; logits (B,V) after them.

        The logits are valid until the next call.
        """

    def step_all(self, tokens: Ints, lengths: Ints) -> Floats:
        """Likewise, with the logits (B,S,V) after each token."""

    def reorder(self, rows: Sequence[int] | Ints) -> None:
        """Makes row i what row ``rows[i]`` was."""

    def rewind(self, lengths: Ints) -> None:
        """Forgets all but the first ``lengths[i]`` tokens of each row."""

    def close(self) -> None:
        """Frees what the sequences hold."""
