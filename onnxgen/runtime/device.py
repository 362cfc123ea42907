"""Memory where the model runs, and the few copies that caches need there.

On the CPU memory is NumPy's and copies are NumPy's; elsewhere memory is ONNX Runtime's, and a
copy is a graph of one node.
"""

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from onnxgen.runtime.session import Cancel, Engine, Session

Shape = tuple[int, ...]
LINE = 64  # bytes of a line of the processor's caches
# Copies do not look at values, so any type of the same width serves.
WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
WORD_TYPES = {
    1: TensorProto.UINT8, 2: TensorProto.UINT16, 4: TensorProto.UINT32, 8: TensorProto.UINT64
}  # fmt: skip


class Memory:
    """A stretch of ``nbytes`` on a device; freed with the object.

    Zeroed and new, or that of ``value``, an OrtValue, or on the CPU of a host array (nbytes,).
    """

    def __init__(self, nbytes: int, device: str, device_id: int, value: Any = None) -> None:
        self.nbytes, self._value = nbytes, value
        self._owner: Any
        if isinstance(value, np.ndarray):
            self._owner, self.pointer = value, int(value.ctypes.data)
        elif value is not None:
            self.pointer = int(value.data_ptr())
            self._owner = value if device != "cpu" else _bytes_at(self.pointer, nbytes)
        elif device == "cpu":
            # Pages that are never written cost nothing, so a long capacity may be reserved.
            self._owner = np.zeros(max(nbytes, 1), np.uint8)
            self.pointer = int(self._owner.ctypes.data)
        else:
            from onnxruntime import OrtValue  # what runs there was loaded: it is there

            zeros = np.zeros(max(nbytes, 1), np.uint8)
            self._owner = OrtValue.ortvalue_from_numpy(zeros, device, device_id)
            self.pointer = int(self._owner.data_ptr())

    def array(self, shape: Shape, item: int, offset: int = 0) -> NDArray[Any]:
        """This memory, on the CPU, as an array of ``shape`` with ``item`` bytes an element.

        It begins at byte ``offset``.
        """
        words: NDArray[Any] = self._owner[offset : offset + prod(shape) * item].view(WORDS[item])
        return words.reshape(shape)

    def host(self, shape: Shape, item: int) -> NDArray[Any]:
        """This memory as a host array of ``shape``: a view on the CPU, else a copy."""
        if isinstance(self._owner, np.ndarray):
            return self.array(shape, item)
        copied: NDArray[Any] = self._owner.numpy().reshape(-1).view(np.uint8)
        return copied[: prod(shape) * item].view(WORDS[item]).reshape(shape)


def _bytes_at(pointer: int, nbytes: int) -> NDArray[np.uint8]:
    """The ``nbytes`` at an address; whoever owns them must outlive the array."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(pointer))


class Device:
    """Where buffers live: ``cpu`` or ``cuda`` with its number."""

    def __init__(self, kind: str = "cpu", index: int = 0) -> None:
        self.kind, self.index = kind, index
        self._graphs: dict[tuple[int, int], Session] = {}

    def memory(self, nbytes: int) -> Memory:
        """New zeroed memory."""
        return Memory(nbytes, self.kind, self.index)

    def memories(self, sizes: Sequence[int]) -> list[Memory]:
        """New zeroed memories of so many bytes each, on the CPU side by side in one block.

        NumPy asks for huge pages where an array has 4 MB or more, and the caches of all layers
        together are that soon. They are read as a whole in each step; at 1,000 tokens the page
        tables of small pages cost a tenth of it.
        """
        if self.kind != "cpu":
            return [self.memory(nbytes) for nbytes in sizes]
        rooms = [-(-nbytes // LINE) * LINE for nbytes in sizes]
        block = np.zeros(sum(rooms) + LINE, np.uint8)
        start = -block.ctypes.data % LINE
        found = []
        for nbytes, room in zip(sizes, rooms, strict=True):
            part = block[start : start + nbytes]
            found.append(Memory(nbytes, self.kind, self.index, part))
            start += room
        return found

    def upload(self, values: NDArray[Any]) -> Memory:
        """New memory with ``values``."""
        if self.kind == "cpu":
            memory = self.memory(values.nbytes)
            memory.array((values.nbytes,), 1)[:] = values.reshape(-1).view(np.uint8)
            return memory
        from onnxruntime import OrtValue

        return self.adopt(OrtValue.ortvalue_from_numpy(values, self.kind, self.index))

    def adopt(self, value: Any) -> Memory:
        """The memory of an OrtValue that lives on this device."""
        nbytes = int(value.tensor_size_in_bytes())
        return Memory(nbytes, self.kind, self.index, value)

    def take(
        self,
        source: tuple[Memory, Shape],
        target: tuple[Memory, Shape],
        axis: int,
        indices: Sequence[int] | NDArray[np.int64],
        item: int,
        used: tuple[int, int] | None = None,
        offset: int = 0,
    ) -> None:
        """Copies slices ``indices`` of ``source`` along ``axis`` to ``target``, both packed.

        The target begins at byte ``offset`` of its memory. Its shape equals the source's but for
        the length of ``axis``. ``used`` names another axis and how much of it has a meaning: the
        rest need not be copied, and on the CPU, where untouched pages cost nothing, is not; there
        the shapes may differ in that axis too.
        """
        picked = np.asarray(indices, np.int64)
        if self.kind == "cpu":
            array = source[0].array(source[1], item)
            out = target[0].array(target[1], item, offset)
            if used is None:
                np.take(array, picked, axis, out=out, mode="clip")
            else:
                part = (slice(None),) * used[0] + (slice(used[1]),)
                out[part] = np.take(array[part], picked, axis)
        else:
            self.take_by_graph(source, target, axis, picked, item, offset)

    def take_by_graph(
        self,
        source: tuple[Memory, Shape],
        target: tuple[Memory, Shape],
        axis: int,
        picked: NDArray[np.int64],
        item: int,
        offset: int = 0,
    ) -> None:
        """:meth:`take` by a graph of one node, which works on any device."""
        key = (axis, item)
        if key not in self._graphs:
            graph = _gather_graph(len(source[1]), axis, WORD_TYPES[item])
            self._graphs[key] = Session(graph, Engine(f"{self.kind}:{self.index}"))
        session = self._graphs[key]
        binding = session.ort.io_binding()
        place = (self.kind, self.index, WORDS[item])
        binding.bind_input("data", *place, list(source[1]), source[0].pointer)
        binding.bind_cpu_input("indices", picked)
        binding.bind_output("out", *place, list(target[1]), target[0].pointer + offset)
        session.run(binding, Cancel())


def _gather_graph(rank: int, axis: int, elem_type: int) -> bytes:
    data, out = (
        helper.make_tensor_value_info(name, elem_type, [f"{name}{i}" for i in range(rank)])
        for name in ("data", "out")
    )
    indices = helper.make_tensor_value_info("indices", TensorProto.INT64, ["n"])
    node = helper.make_node("Gather", ["data", "indices"], ["out"], axis=axis)
    graph = helper.make_graph([node], "take", [data, indices], [out])
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return bytes(model.SerializeToString())
