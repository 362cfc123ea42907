"""Token ids to embeddings: by the session that some exports keep apart (``embed_tokens``), or from
the model's file, for graphs that were rewritten so (:mod:`onnxgen.graph.rewrites.embeddings`).

Letters: B rows, S new tokens, H hidden size, R features.
"""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxgen.errors import UnsupportedModelError
from onnxgen.files.columns import Columns
from onnxgen.files.lookup import Reader, Rows, Table
from onnxgen.graph.decoder import DecoderGraph
from onnxgen.graph.proto import Graph, Port
from onnxgen.graph.shapes import ITEM_BYTES
from onnxgen.runtime.binding import Binding
from onnxgen.runtime.caches import Ints, Layout
from onnxgen.runtime.device import Device
from onnxgen.runtime.session import PLAIN, Cancel, Engine, Model, Session

ROLES = ("embeds", "per_layer_inputs")  # of a decoder's inputs, in the order of the outputs


class Embedder:
    """The session that turns ids (B,S) into embeddings (B,S,H), on the decoder's device."""

    def __init__(self, path: Path, engine: Engine = PLAIN) -> None:
        graph = Graph.load(path)
        ids = [p for p in graph.inputs.values() if p.dtype in {"int64", "int32"}]
        if len(ids) != 1 or len(graph.inputs) != 1:
            raise UnsupportedModelError(
                f"{path.name} takes {', '.join(graph.inputs)}",
                wanted="one input, the token ids",
                do="export the token embeddings as a graph of their own",
            )
        self._ids = ids[0]
        self._session = Session(path, engine)
        self._device = Device(self._session.device, self._session.device_id)
        self._outputs = [graph.outputs[name] for name in self._session.outputs]

    def feed(
        self,
        binding: Binding,
        graph: DecoderGraph,
        layout: Layout,
        features: NDArray[Any] | None,
        cancel: Cancel,
    ) -> None:
        """Binds the embeddings of a run's tokens to the decoder's input.

        Those of image tokens are ``features`` (R,H), where ``layout`` says which.
        """
        ids, places = layout.ids, layout.places
        if places is None or not (places >= 0).any():
            features = None  # nothing of them is in this run
        elif "per_layer_inputs" not in graph.inputs:
            ids = np.where(places >= 0, 0, ids)  # those of images may be outside of the table
        own = self._run(ids, cancel)
        for role, port in self._roles(graph):
            value, target = own.fetch(port.name), graph.inputs[role]
            inserts = role == "embeds" and features is not None
            if inserts or port.dtype != target.dtype:
                array = value.numpy()  # (B,S,H); on the CPU the value itself, elsewhere a copy
                if inserts and features is not None and places is not None:
                    insert(array, features, places)
                if self._device.kind != "cpu" or port.dtype != target.dtype:
                    binding.write(target.name, array.astype(target.dtype, copy=False))
                    continue
            binding.feed(target.name, value)

    def embeddings(
        self, ids: Ints, places: Ints, features: NDArray[Any], cancel: Cancel
    ) -> NDArray[Any]:
        """The embeddings (B,S,H) of ``ids`` (B,S), on the host, for an encoder.

        Those of image tokens are ``features`` (R,H), where ``places`` (B,S) is not below 0.
        """
        own = self._run(np.where(places >= 0, 0, ids), cancel)
        array: NDArray[Any] = own.fetch(self._outputs[0].name).numpy()
        insert(array, features, places)
        return array

    def _run(self, ids: Ints, cancel: Cancel) -> Binding:
        """A finished run for ``ids`` (B,S)."""
        own = Binding(self._session, self._device)
        own.write(self._ids.name, ids.astype(self._ids.dtype, copy=False))
        for port in self._outputs:
            own.allocate(port.name)
        own.run(cancel)
        return own

    def single(self, binding: Binding, graph: DecoderGraph) -> "Single":
        """One token after another, for a graph and device that :meth:`fits_single`."""
        return Single(self._session, self._device, self._ids, self._roles(graph), binding, graph)

    def fits_single(self, graph: DecoderGraph) -> bool:
        """Whether the sizes of a token's embeddings, in the decoder's own dtype, are known."""
        return all(
            port.dtype == graph.inputs[role].dtype and _sizes(port, graph.inputs[role]) is not None
            for role, port in self._roles(graph)
        )

    def _roles(self, graph: DecoderGraph) -> list[tuple[str, Port]]:
        """The decoder's inputs that this session makes, each with the output that is it."""
        return list(
            zip((role for role in ROLES if role in graph.inputs), self._outputs, strict=False)
        )


class Single:
    """The embeddings of one token, in memory that both sessions keep bound."""

    def __init__(
        self,
        session: Session,
        device: Device,
        ids: Port,
        roles: list[tuple[str, Port]],
        binding: Binding,
        graph: DecoderGraph,
    ) -> None:
        self._own = Binding(session, device)
        self._ids = self._own.write(ids.name, np.zeros((1, 1), ids.dtype))
        for role, port in roles:
            target = graph.inputs[role]
            shape = (1, 1, *(_sizes(port, target) or ()))  # (1,1,H) or (1,1,layers,sizes)
            memory = device.memory(prod(shape) * ITEM_BYTES[port.dtype])
            self._own.fill(port.name, port.elem_type, shape, memory)
            binding.read(target.name, target.elem_type, shape, memory)

    def feed(self, token: Ints, cancel: Cancel) -> None:
        """Embeds ``token`` (1,1)."""
        self._ids[...] = token
        self._own.run(cancel)


class FileEmbedder:
    """The same from the file with the decoder's table, on the CPU."""

    def __init__(self, table: Table) -> None:
        self._reader = reader_of(table)

    def feed(
        self, binding: Binding, graph: DecoderGraph, layout: Layout, features: Any, cancel: Cancel
    ) -> None:
        """Feeds the embeddings (B,S,H) of a run's tokens."""
        binding.write(graph.inputs["embeds"].name, self._reader.take(layout.ids))

    def single(self, binding: Binding, graph: DecoderGraph) -> "FileSingle":
        """One token after another."""
        return FileSingle(self._reader, binding, graph.inputs["embeds"])

    def fits_single(self, graph: DecoderGraph) -> bool:
        """Whether :meth:`single` serves: always."""
        return True


class FileSingle:
    """The embeddings of one token, in an array that stays bound."""

    def __init__(self, reader: Reader, binding: Binding, port: Port) -> None:
        table = reader.table
        self._reader = reader
        self._held = binding.write(port.name, np.zeros((1, 1, table.hidden), table.dtype))

    def feed(self, token: Ints, cancel: Cancel) -> None:
        """Embeds ``token`` (1,1)."""
        self._held[...] = self._reader.take(token)


def reader_of(table: Table) -> Reader:
    """What reads embeddings from ``table``, as it lies there."""
    return Columns(table) if table.turned else Rows(table)


def embedder_of(
    graphs: Mapping[str, Path], decoder: DecoderGraph, engine: Engine = PLAIN
) -> Embedder | FileEmbedder | None:
    """What makes the embeddings that ``decoder`` takes; None if it takes ids, or nothing does."""
    if isinstance(decoder.source, Model) and decoder.source.table is not None:
        return FileEmbedder(decoder.source.table)
    path = graphs.get("embed_tokens")
    return Embedder(path, engine) if path is not None and "embeds" in decoder.inputs else None


def insert(embeddings: NDArray[Any], features: NDArray[Any], places: Ints) -> None:
    """Puts ``features`` (R,H) into ``embeddings`` (B,S,H) where ``places`` (B,S) names one."""
    # One by one: all at once would hold the features once more.
    for row, column in np.argwhere(places >= 0):
        embeddings[row, column] = features[places[row, column]]


def _sizes(port: Port, target: Port) -> tuple[int, ...] | None:
    """The dims of a token's embedding, None where neither graph says them."""
    dims = [
        one if isinstance(one, int) else other
        for one, other in zip(target.shape[2:], port.shape[2:], strict=True)
    ]
    return tuple(int(d) for d in dims if d) if all(isinstance(d, int) for d in dims) else None
