"""``EncoderGraph``: what an encoder takes and gives.

Letters: B rows, T encoded positions, H hidden size.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxgen.errors import UnsupportedModelError
from onnxgen.graph.capacity import Capacity, bound
from onnxgen.graph.proto import Graph, Port, understood
from onnxgen.graph.roles import INTEGERS


@dataclass(frozen=True, slots=True)
class EncoderGraph:
    """The facts about one encoder graph."""

    path: Path
    main: Port  # token ids (B,T), or features, or pixels
    mask: Port | None  # 1 where the main input is no padding
    states: Port | None  # (B,T,H)
    others: Mapping[str, Port]  # the other outputs; some encoders make cross-attention caches
    capacity: Capacity  # how many ids it can position

    @property
    def takes_ids(self) -> bool:
        """Whether token ids are encoded, not features."""
        return self.main.dtype in INTEGERS

    @classmethod
    def load(cls, path: Path) -> "EncoderGraph":
        """Reads the facts from the graph file ``path``; UnsupportedModelError for other graphs."""
        graph = Graph.load(path)
        with understood(path):
            return cls._of(graph, path)

    @classmethod
    def _of(cls, graph: Graph, path: Path) -> "EncoderGraph":
        masks = [p for p in graph.inputs.values() if "mask" in p.name]
        values = [p for p in graph.inputs.values() if "mask" not in p.name]
        ranked = [p for p in graph.outputs.values() if len(p.shape) == 3]
        named = [p for p in ranked if p.name in {"last_hidden_state", "encoder_hidden_states"}]
        states = (named or ranked)[:1]
        if len(values) != 1 or len(masks) > 1:
            raise UnsupportedModelError(
                f"{path.name} takes {', '.join(graph.inputs)}",
                wanted="an encoder of one input, and a mask if it needs one",
                do="point onnxgen to the folder of an encoder-decoder",
            )
        return cls(
            path=path,
            main=values[0],
            mask=masks[0] if masks else None,
            states=states[0] if states else None,
            others={name: port for name, port in graph.outputs.items() if port not in states},
            capacity=bound(graph, {"ids": values[0]}, ()),
        )
