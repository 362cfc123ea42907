"""An IOBinding that rebinds only what changed and keeps alive what is bound."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxgen.errors import SessionError
from onnxgen.runtime.device import Device, Memory, Shape
from onnxgen.runtime.session import Cancel, Session, reason_of


class Binding:
    """What a session reads and writes, bound once and changed by need."""

    def __init__(self, session: Session, device: Device) -> None:
        self._session, self._device = session, device
        self._io = session.ort.io_binding()
        self._arrays: dict[str, NDArray[Any]] = {}
        self._bound: dict[str, tuple[Memory, int, Shape]] = {}
        self._inputs, self._outputs = frozenset(session.inputs), dict[str, int]()

    def write(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Feeds host ``values``: into the array bound before if shape and dtype are its own.

        Returns the array that is bound; on the CPU, what is written into it is fed.
        """
        held = self._arrays.get(name)
        if held is not None and held.shape == values.shape and held.dtype == values.dtype:
            held[...] = values
            if self._device.kind == "cpu":
                return held
        else:
            self._arrays[name] = held = np.array(values, order="C")
        try:
            self._io.bind_cpu_input(name, held)
        except RuntimeError as error:  # a type that NumPy has no word for
            raise SessionError(
                f"{self._session.name} does not take its input {name!r}: {reason_of(error)}",
                do="export the model again",
            ) from error
        return held

    def read(
        self, name: str, elem_type: Any, shape: Shape, memory: Memory, offset: int = 0
    ) -> None:
        """Feeds ``memory`` from byte ``offset`` as input ``name``, if the graph has one.

        The first graph of an un-merged pair has no past.
        """
        if name in self._inputs:
            self._bind(self._io.bind_input, name, elem_type, shape, memory, offset)

    def fill(
        self, name: str, elem_type: Any, shape: Shape, memory: Memory, offset: int = 0
    ) -> None:
        """Has output ``name`` written into ``memory`` from byte ``offset``."""
        self._bind(self._io.bind_output, name, elem_type, shape, memory, offset)
        self._note_output(name)

    def _bind(
        self, bind: Any, name: str, elem_type: Any, shape: Shape, memory: Memory, offset: int
    ) -> None:
        place = (memory, offset, shape)
        if self._bound.get(name) != place:
            pointer = memory.pointer + offset
            bind(name, self._device.kind, self._device.index, elem_type, shape, pointer)
            self._bound[name] = place

    def feed(self, name: str, value: Any) -> None:
        """Feeds an OrtValue that already lives on the device."""
        self._io.bind_ortvalue_input(name, value)

    def allocate(self, name: str) -> None:
        """Lets ONNX Runtime allocate output ``name`` on the device in the next run."""
        self._io.bind_output(name, self._device.kind, self._device.index)
        self._note_output(name)

    def fetch(self, name: str) -> Any:
        """The OrtValue that the last run gave for output ``name``."""
        return self._io.get_outputs()[self._outputs[name]]

    def run(self, cancel: Cancel, large: bool = False) -> None:
        """Runs the session once; ``large`` as in :meth:`Session.run`."""
        self._session.run(self._io, cancel, large)

    def _note_output(self, name: str) -> None:
        # ONNX Runtime lists outputs in the order of their first binding.
        self._outputs.setdefault(name, len(self._outputs))
