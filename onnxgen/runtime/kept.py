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
    """Logits (B,V) in one memory; valid until the decoder's next step."""

    memory: Memory
    rows: int
    device: Device
    vocab_size: int
    dtype: str

    def __getitem__(self, rows: Ints) -> KeptLogits:
        """A copy whose row i is row ``rows[i]`` here."""
        item, width = ITEM_BYTES[self.dtype], self.vocab_size
        taken = self.device.memory(len(rows) * width * item)
        source, target = (self.memory, (self.rows, width)), (taken, (len(rows), width))
        self.device.take(source, target, 0, rows, item)
        return replace(self, memory=taken, rows=len(rows))

    def host(self) -> Floats:
        """All of them on the host."""
        return floats(self.memory, (self.rows, self.vocab_size), self.dtype)


def joined(parts: Sequence[Part], device: Device, vocab_size: int, dtype: str) -> KeptLogits:
    """The logits that several runs gave, in the order of their rows; of one run as they are."""
    if len(parts) == 1:
        return KeptLogits(parts[0][1], len(parts[0][0]), device, vocab_size, dtype)
    rows, item = np.concatenate([held for held, _ in parts]), ITEM_BYTES[dtype]
    whole, offset = device.memory(len(rows) * vocab_size * item), 0
    for held, memory in parts:
        shape, every = (len(held), vocab_size), np.arange(len(held))
        device.take((memory, shape), (whole, shape), 0, every, item, offset=offset)
        offset += len(held) * vocab_size * item
    return KeptLogits(whole, len(rows), device, vocab_size, dtype)[np.argsort(rows)]


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
