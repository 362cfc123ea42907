"""What a decoder attends to: the encoder's session, its states, and the caches made from them.

Letters: B rows of the batch, b rows of a group, T encoded positions, H hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxgen.errors import UnsupportedModelError
from onnxgen.graph.caches import stem
from onnxgen.graph.decoder import DecoderGraph
from onnxgen.graph.encoder import EncoderGraph
from onnxgen.graph.proto import Port
from onnxgen.graph.shapes import ITEM_BYTES
from onnxgen.runtime.binding import Binding
from onnxgen.runtime.caches import Ints, folded
from onnxgen.runtime.device import Device, Memory, Shape
from onnxgen.runtime.feeds import conform
from onnxgen.runtime.kept import floats
from onnxgen.runtime.rewriting import prepared
from onnxgen.runtime.session import PLAIN, Cancel, Engine, Session


@dataclass(frozen=True, slots=True)
class Tensor:
    """Values on a device."""

    memory: Memory
    shape: Shape
    dtype: str

    def cast(self, port: Port, device: Device) -> "Tensor":
        """These values in the dtype of ``port``; sessions of one model may differ in theirs."""
        if self.dtype == port.dtype:
            return self
        words = self.memory.host(self.shape, ITEM_BYTES[self.dtype])
        values = np.ascontiguousarray(words.view(self.dtype).astype(port.dtype))
        return Tensor(device.upload(values), self.shape, port.dtype)

    def rows(self, picked: Ints, axis: int, device: Device) -> "Tensor":
        """A copy of the slices ``picked`` along ``axis``."""
        shape = (*self.shape[:axis], len(picked), *self.shape[axis + 1 :])
        item = ITEM_BYTES[self.dtype]
        memory = device.memory(prod(shape) * item)
        device.take((self.memory, self.shape), (memory, shape), axis, picked, item)
        return Tensor(memory, shape, self.dtype)


class EncoderModel:
    """An encoder's graph and session."""

    def __init__(self, graph: EncoderGraph, engine: Engine = PLAIN) -> None:
        self.graph = graph
        self._session = Session(prepared(graph.path, engine), engine)
        self._device = Device(self._session.device, self._session.device_id)
        self._last: Shape = ()  # of the values that were encoded last

    def encode(
        self, values: NDArray[Any], mask: Ints | None = None, cancel: Cancel | None = None
    ) -> "Encoding":
        """Encodes ``values``, ids (B,T) or features; ``mask`` is 1 where they are no padding.

        UnsupportedModelError if rows are padded and the graph takes no mask.
        """
        graph = self.graph
        if mask is not None and graph.mask is None and not mask.all():
            raise UnsupportedModelError(
                f"{graph.path.name} takes no mask", do="encode rows of unequal length one by one"
            )
        binding = Binding(self._session, self._device)
        binding.write(graph.main.name, values.astype(graph.main.dtype, copy=False))
        if graph.mask is not None:
            whole = np.ones(values.shape[:2], np.int64) if mask is None else mask
            binding.write(graph.mask.name, conform(whole, graph.mask))
        wanted = [*([graph.states] if graph.states else []), *self._caches()]
        for port in wanted:
            binding.allocate(port.name)
        # What one row takes that is followed by its like (windows of a recording, pictures) is
        # kept: given back, it leaves holes that the next run's memory does not all fit in.
        again, self._last = values.shape == self._last and len(values) == 1, values.shape
        binding.run(cancel or Cancel(), large=not again)
        found = {}
        for port in wanted:
            value = binding.fetch(port.name)
            shape = tuple(value.shape())
            found[port.name] = Tensor(self._device.adopt(value), shape, port.dtype)
        states = found.pop(graph.states.name) if graph.states else None
        return Encoding(states, mask, found, graph.path.name)

    def _caches(self) -> list[Port]:
        return [port for port in self.graph.others.values() if "present" in port.name]


@dataclass(frozen=True, slots=True)
class Encoding:
    """What an encoder gave: states (B,T,H), their mask (B,T) if any, and caches by their names.

    ``name``: the encoder's file.
    """

    states: Tensor | None
    mask: Ints | None
    caches: dict[str, Tensor]
    name: str = "the encoder"

    @property
    def finite(self) -> bool:
        """Whether no state is NaN or infinite; reads them all."""
        if self.states is None:
            return True
        values = floats(self.states.memory, self.states.shape, self.states.dtype)
        return bool(np.isfinite(values).all())

    def rows(self, picked: Ints, device: Device) -> "Encoding":
        """That of some rows."""
        states = self.states.rows(picked, 0, device) if self.states else None
        mask = None if self.mask is None else self.mask[picked]
        caches = {n: t.rows(picked, 0, device) for n, t in self.caches.items()}
        return Encoding(states, mask, caches, self.name)


class CrossPlan:
    """How one decoder takes an encoding: its inputs, and what of its first step is to be kept.

    ``first`` is the graph of the first step, ``graph`` that of the later ones.
    """

    def __init__(self, first: DecoderGraph, graph: DecoderGraph, device: Device) -> None:
        self.device, self.slots = device, graph.cross
        self.states = first.inputs.get("encoder_states") or graph.inputs.get("encoder_states")
        self.masked = "encoder_mask" in {**first.inputs, **graph.inputs}
        self.nothing = device.memory(0)  # the caches before the first step
        given = {stem(name): name for name in first.extra_outputs}
        given |= {stem(slot.input): slot.output for slot in first.cross if slot.output}
        self.outputs = {s.input: given[stem(s.input)] for s in self.slots if stem(s.input) in given}

    def take(self, encoding: Encoding) -> "Encoded":
        """The encoding as this decoder's graphs need it.

        UnsupportedModelError where nothing computes the caches of cross-attention.
        """
        by_stem = {stem(name): tensor for name, tensor in encoding.caches.items()}
        caches = {s.input: by_stem[stem(s.input)] for s in self.slots if stem(s.input) in by_stem}
        states = encoding.states if self.states is not None else None
        if states is not None and self.states is not None:
            states = self._fitting(states, self.states)
        lost = [s for s in self.slots if s.input not in {*caches, *self.outputs}]
        if lost or (states is None and not caches):
            what = lost[0].input if lost else "what the decoder attends to"
            raise UnsupportedModelError(
                f"neither the encoder nor the decoder's first step gives {what}",
                wanted="an encoder and a decoder of one export",
                do="download or export the model again",
            )
        mask = encoding.mask
        if self.masked and mask is None and states is not None:
            mask = np.ones(states.shape[:2], np.int64)
        rows = next(t.shape[0] for t in (states, *caches.values()) if t is not None)
        return Encoded(self, states, mask if self.masked else None, caches, np.arange(rows))

    def _fitting(self, states: Tensor, port: Port) -> Tensor:
        width = port.shape[2] if len(port.shape) == 3 else None
        if isinstance(width, int) and width != states.shape[2]:
            raise UnsupportedModelError(
                f"the encoder's states are {states.shape[2]} wide, and {port.name} takes {width}",
                wanted="an encoder and a decoder that were exported together",
                do="download or export the model again",
            )
        return states.cast(port, self.device)


@dataclass(frozen=True, slots=True)
class Encoded:
    """An encoding as the rows of one group use it.

    The first step computes the caches of cross-attention. From then on nothing here is written, so
    groups share it, and rows are copied only where a row comes to belong to another source.
    """

    plan: CrossPlan
    states: Tensor | None  # (b,T,H)
    mask: Ints | None  # (b,T)
    caches: dict[str, Tensor]  # by the decoder's inputs; empty before the first step
    sources: Ints  # (b,): of which encoded row each one is a copy

    def gather(self, rows: Ints | Sequence[int]) -> "Encoded":
        """What rows ``rows`` of this group need: itself, if they stem from the same sources."""
        picked = np.asarray(rows, np.int64)
        sources = self.sources[picked]
        if np.array_equal(sources, self.sources):
            return self
        slots = {slot.input: slot for slot in self.plan.slots}
        caches = {}
        for name, tensor in self.caches.items():
            indices = folded(picked, slots[name].batch_factor)
            caches[name] = tensor.rows(indices, slots[name].batch_axis, self.plan.device)
        states = self.states.rows(picked, 0, self.plan.device) if self.states else None
        mask = None if self.mask is None else self.mask[picked]
        return Encoded(self.plan, states, mask, caches, sources)

    def bind(self, binding: Binding, graph: DecoderGraph) -> None:
        """Binds what the runs of ``graph`` read that follow."""
        if self.states is not None and self.plan.states is not None:
            port, states = self.plan.states, self.states
            binding.read(port.name, port.elem_type, states.shape, states.memory)
        if self.mask is not None and "encoder_mask" in graph.inputs:
            port = graph.inputs["encoder_mask"]
            binding.write(port.name, conform(self.mask, port))
        for slot in self.plan.slots:
            cache = self.caches.get(slot.input)
            shape = cache.shape if cache else slot.shape(len(self.sources))
            memory = cache.memory if cache else self.plan.nothing
            binding.read(slot.input, slot.elem_type, shape, memory)

    def receive(self, binding: Binding) -> "Encoded":
        """Has the first run, through ``binding``, write the caches of what is returned."""
        caches = dict(self.caches)
        for slot in self.plan.slots:
            if slot.input not in caches and self.states is not None:
                shape = slot.shape(len(self.sources), self.states.shape[1])
                item = ITEM_BYTES[slot.dtype]
                tensor = Tensor(self.plan.device.memory(prod(shape) * item), shape, slot.dtype)
                output = self.plan.outputs[slot.input]
                binding.fill(output, slot.elem_type, shape, tensor.memory)
                caches[slot.input] = tensor
        return replace(self, caches=caches)
