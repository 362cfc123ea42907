"""What a caller wants of a request's runs beside the logits of the last tokens.

Letters: B rows of the batch, b rows of a group, S new tokens of a run, T encoded positions,
V vocabulary, A heads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from onnxgen.runtime.caches import Ints

Floats = NDArray[np.float32]


@dataclass(slots=True)
class Watch:
    """Filled while a :class:`Decoder` runs that was started with it.

    ``back``: how many columns before each row's last one the first step's logits are kept from.
    ``heads``: outputs of attention weights (b,heads,S,T), each with the heads that are kept.
    """

    back: int | None = None
    heads: Mapping[str, Sequence[int]] = field(default_factory=dict)
    logits: dict[int, Floats] = field(default_factory=dict)  # of each row (V,), of the first step
    steps: list[list[Floats]] = field(default_factory=list)  # of each step and row, (A,S,T)

    def begin(self, rows: int) -> None:
        """A step of ``rows`` (B) begins."""
        if self.heads:
            self.steps.append([np.zeros((0, 0, 0), np.float32)] * rows)

    def keep_logits(self, rows: Ints, logits: Floats) -> None:
        """Keeps ``logits`` (b,V) of ``rows`` (b,)."""
        self.logits.update(zip(rows.tolist(), np.array(logits), strict=True))

    def keep_attention(self, rows: Ints, weights: Sequence[Floats], starts: Ints) -> None:
        """Keeps what one run gave: for each output the weights (b,A',S,T) of its heads.

        Of row i only the columns from ``starts[i]`` on are no padding.
        """
        together = np.concatenate(weights, axis=1)  # (b,A,S,T)
        for row, own, start in zip(rows.tolist(), together, starts.tolist(), strict=True):
            self.steps[-1][row] = np.array(own[:, start:])
