"""Logits that stay where the model ran, for a selection graph to choose from.

Letters: B rows of the batch, b rows that one run gave, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from onnxgen.graph.shapes import ITEM_BYTES
from onnxgen.runtime.device import Device, Memory

if TYPE_CHECKING:
    from onnxgen.runtime.decoder import Decoder

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
# Rows (b,), rising, and where their logits (b,V) are.
Part = tuple[Ints, Memory]


@dataclass(frozen=True, slots=True)
class KeptLogits:
    """Logits (B,V) in as many memories as runs gave them; valid until the decoder's next step."""

    parts: list[Part]
    device: Device
    vocab_size: int
    dtype: str

    def __getitem__(self, rows: Ints) -> KeptLogits:
        """A copy whose row i is row ``rows[i]`` here; rows of one part stay in one."""
        parts = []
        for held, memory in self.parts:
            places = np.flatnonzero(np.isin(rows, held))
            inside = np.searchsorted(held, rows[places])
            item, width = ITEM_BYTES[self.dtype], self.vocab_size
            taken = self.device.memory(len(places) * width * item)
            source, target = (memory, (len(held), width)), (taken, (len(places), width))
            self.device.take(source, target, 0, inside, item)
            parts.append((places, taken))
        return replace(self, parts=parts)

    def host(self) -> Floats:
        """All of them on the host."""
        rows = sum(len(held) for held, _ in self.parts)
        logits = np.empty((rows, self.vocab_size), np.float32)
        for held, memory in self.parts:
            logits[held] = floats(memory, (len(held), self.vocab_size), self.dtype)
        return logits


class KeptSteps:
    """A decoder whose steps leave the logits where they are.

    To a loop, which only picks rows of what a step gives, that looks like any other decoder; who
    chooses must know better.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.capacity, self.vocab_size = decoder.capacity, decoder.vocab_size
        self.reorder, self.rewind, self.close = decoder.reorder, decoder.rewind, decoder.close
        self.step_all = decoder.step_all

    def step(self, tokens: Ints, lengths: Ints) -> Any:
        """:class:`KeptLogits` after ``tokens`` (B,S), of row i the first ``lengths[i]``."""
        return self._decoder.step_kept(tokens, lengths)


def floats(memory: Memory, shape: Sequence[int], dtype: str) -> Floats:
    """``memory``, of numbers of ``dtype``, as float32 on the host."""
    words = memory.host(tuple(shape), ITEM_BYTES[dtype])
    if dtype == "bfloat16":  # the upper half of a float32
        return (words.astype(np.uint32) << 16).view(np.float32)
    return words.view(dtype).astype(np.float32, copy=False)
