"""The session that makes features of pictures; loaded when the first picture comes.

Letters: T tiles, F features of a tile, R features of all of them, H hidden size.
"""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxgen.errors import UnsupportedModelError
from onnxgen.graph.proto import Graph, Port
from onnxgen.runtime.binding import Binding
from onnxgen.runtime.device import Device
from onnxgen.runtime.feeds import conform
from onnxgen.runtime.rewriting import prepared
from onnxgen.runtime.session import PLAIN, Cancel, Engine, Session

# Input -> what else exporters call it.
ALIASES = {"grid_thw": "image_grid_thw", "image_grid_thw": "grid_thw"}
FEATURES, NEWLINE = "image_features", "image_newline"


class VisionModel:
    """A vision encoder with its projector. May be used from several threads at once."""

    def __init__(self, path: Path, engine: Engine = PLAIN) -> None:
        self.graph, self._path, self._engine = Graph.load(path), path, engine
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._outputs = {_name(port, self.graph): port.name for port in self.graph.outputs.values()}
        if FEATURES not in self._outputs:
            raise UnsupportedModelError(
                f"{path.name} gives {', '.join(self.graph.outputs)}",
                wanted=f"an output {FEATURES}",
                do="export the vision encoder with its projector",
            )
        self.has_newline = NEWLINE in self._outputs

    @property
    def loaded(self) -> bool:
        """Whether a picture has come yet."""
        return self._session is not None

    def features(
        self, feeds: Mapping[str, NDArray[Any]], cancel: Cancel
    ) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """The features of tiles, (T,F,H) or (R,H), and the graph's other outputs by name.

        UnsupportedModelError where the graph takes what ``feeds`` lacks.
        """
        session = self._loaded()
        binding = Binding(session, Device(session.device, session.device_id))
        for port in self.graph.inputs.values():
            values = feeds.get(port.name, feeds.get(ALIASES.get(port.name, "")))
            if values is None:
                raise UnsupportedModelError(
                    f"{self._path.name} takes {port.name}, and its processor makes "
                    + ", ".join(feeds),
                    wanted="a vision encoder and a processor of one model",
                )
            binding.write(port.name, _ranked(values, port))
        for name in self._outputs.values():
            binding.allocate(name)
        binding.run(cancel, large=True)
        found = {known: binding.fetch(name).numpy() for known, name in self._outputs.items()}
        return found.pop(FEATURES), found

    def _loaded(self) -> Session:
        with self._lock:
            if self._session is None:
                source = prepared(self._path, self._engine)
                self._session = Session(source, self._engine)
            return self._session


def _name(port: Port, graph: Graph) -> str:
    """What an output is: a vector beside the features ends rows; a lone output is the features."""
    if port.name == FEATURES or len(graph.outputs) == 1:
        return FEATURES
    return NEWLINE if len(port.shape) == 1 else port.name


def _ranked(values: NDArray[Any], port: Port) -> NDArray[Any]:
    """``values`` with the axes before the tiles that the graph wants, in its dtype."""
    while values.ndim < len(port.shape):
        values = values[None]  # (T,...) -> (1,T,...)
    return conform(np.ascontiguousarray(values), port)
