"""The step that is run most: one token of one row, on the CPU.

What such steps feed lies in arrays that are bound once; a step writes a few numbers into them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onnxgen.graph.decoder import DecoderGraph
from onnxgen.graph.roles import ENCODED
from onnxgen.runtime.binding import Binding
from onnxgen.runtime.caches import Ints, right_padded
from onnxgen.runtime.device import Device
from onnxgen.runtime.embeddings import ROLES as EMBEDDED
from onnxgen.runtime.embeddings import Embedder, FileEmbedder
from onnxgen.runtime.feeds import VALUES, conform
from onnxgen.runtime.session import Cancel

if TYPE_CHECKING:
    from onnxgen.runtime.decoder import DecoderModel

# Roles whose one number is the count of cached tokens, plus this.
COUNTS = {
    "positions": 0, "cache_position": 0, "last_index": 0, "write_index": 0, "past_length": 0,
    "total_length": 1, "row_length": 1,
}  # fmt: skip


class Steady:
    """The inputs of single steps, for sequences of up to ``capacity`` tokens.

    ``delta``: the position of a token is its index plus this.
    """

    def __init__(self, model: DecoderModel, capacity: int, delta: int) -> None:
        graph, device = model.graph, model.device
        self.binding = Binding(model.later, device)
        self._mask = graph.inputs.get("mask")
        self._counts: list[tuple[NDArray[np.generic], int]] = []
        self._single = model.embedder.single(self.binding, graph) if model.embedder else None
        one = np.ones(1, np.int64)
        sample = right_padded(one[None], one, one)  # a second token behind the first
        for role, port in graph.inputs.items():
            if role in ENCODED or role in EMBEDDED:
                continue  # the same in each step, and bound by the group; or bound by the embedder
            if role == "mask":
                ones = np.ones(capacity, port.dtype)
                self._ones = device.memory(ones.nbytes)
                self._ones.array((ones.nbytes,), 1)[:] = ones.view(np.uint8)
            elif role == "keep":
                self.binding.write(port.name, conform(np.array(1), port))
            else:
                held = self.binding.write(port.name, conform(VALUES[role](sample), port))
                if role == "ids":
                    self._ids = held
                elif role in COUNTS:
                    offset = COUNTS[role] + (delta if role == "positions" else 0)
                    self._counts.append((held, offset))

    @staticmethod
    def fits(graph: DecoderGraph, device: Device, embedder: Embedder | FileEmbedder | None) -> bool:
        """Whether the graph's inputs are of this kind."""
        mask = graph.inputs.get("mask")
        plain = mask is None or len(mask.shape) == 2
        known = {*VALUES, *ENCODED, "keep"}
        if embedder is not None and embedder.fits_single(graph):
            known |= set(EMBEDDED)
        return device.kind == "cpu" and plain and set(graph.inputs) <= known

    def feed(self, token: Ints, past: int, cancel: Cancel) -> None:
        """Feeds ``token`` (1,1) behind ``past`` cached ones."""
        if self._single is not None:
            self._single.feed(token, cancel)
        else:
            self._ids.fill(token.item())
        for held, offset in self._counts:
            held.fill(past + offset)
        if self._mask is not None:
            shape = (1, past + 1)
            self.binding.read(self._mask.name, self._mask.elem_type, shape, self._ones)
