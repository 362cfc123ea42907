"""Token ids to embeddings, by the session that some exports keep apart (``embed_tokens``).

Letters: B rows, S new tokens, H hidden size.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onnxgen.errors import UnsupportedModelError
from onnxgen.graph.decoder import DecoderGraph
from onnxgen.graph.proto import Graph
from onnxgen.runtime.binding import Binding
from onnxgen.runtime.device import Device
from onnxgen.runtime.session import Cancel, Session


class Embedder:
    """The session that turns ids (B,S) into embeddings (B,S,H), on the decoder's device."""

    def __init__(self, path: Path, *, device: str = "cpu", threads: int | None = None) -> None:
        graph = Graph.load(path)
        ids = [p for p in graph.inputs.values() if p.dtype in {"int64", "int32"}]
        if len(ids) != 1 or len(graph.inputs) != 1:
            raise UnsupportedModelError(
                f"{path.name} takes {', '.join(graph.inputs)}",
                wanted="one input, the token ids",
                do="export the token embeddings as a graph of their own",
            )
        self._ids = ids[0]
        self._session = Session(path, device=device, threads=threads)
        self._device = Device(self._session.device, self._session.device_id)

    def feed(
        self, binding: Binding, graph: DecoderGraph, ids: NDArray[np.int64], cancel: Cancel
    ) -> None:
        """Binds the embeddings of ``ids`` (B,S) to the decoder's input."""
        own = Binding(self._session, self._device)
        own.write(self._ids.name, ids.astype(self._ids.dtype, copy=False))
        for output in self._session.outputs:
            own.allocate(output)
        own.run(cancel)
        roles = [role for role in ("embeds", "per_layer_inputs") if role in graph.inputs]
        for role, output in zip(roles, self._session.outputs, strict=False):
            binding.feed(graph.inputs[role].name, own.fetch(output))
