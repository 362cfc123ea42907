"""A graph as a net of nodes: who makes a tensor, who reads it, what is constant.

Knows nothing of decoders. Weights are never read: only tensors small enough to be shape
constants keep their values. Functions of the model are inlined; the bodies of ``If`` are scopes
of their own, which see the tensors of the scopes around them.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from onnx import (
    AttributeProto,
    GraphProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from onnxgen import wire
from onnxgen.errors import ModelFileError, OnnxgenError
from onnxgen.files import policy

# What a value's meaning passes through unchanged, apart from its shape and dtype.
VIEWS = frozenset({
    "Identity", "Cast", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Flatten",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a graph; ``shape`` holds sizes, their names, or None where unsaid."""

    name: str
    elem_type: int
    shape: tuple[int | str | None, ...]
    dtype: str  # as NumPy spells it, bfloat16 and string included


@dataclass(frozen=True, slots=True)
class Use:
    """One reading of a tensor: ``node`` takes it as its input number ``index``, in ``scope``."""

    node: NodeProto
    index: int
    scope: "Scope"


class Scope:
    """The nodes of one graph body, with the scopes around it."""

    def __init__(self, graph: GraphProto, parent: "Scope | None" = None) -> None:
        self.graph, self.parent = graph, parent
        self.outputs = [output.name for output in graph.output]
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        self._makers: dict[str, NodeProto] = {}
        # Without the scope itself: in a circle it would outlive its last reader, and its graph.
        self._uses: dict[str, list[tuple[NodeProto, int]]] = defaultdict(list)
        self.children: list[tuple[NodeProto, str, Scope]] = []
        for node in graph.node:
            self._makers.update((name, node) for name in node.output if name)
            for index, name in enumerate(node.input):
                if name:
                    self._uses[name].append((node, index))
            for attribute in node.attribute:
                if attribute.type == AttributeProto.GRAPH:
                    self.children.append((node, attribute.name, Scope(attribute.g, self)))

    def walk(self) -> "Iterator[Scope]":
        """This scope and all within it."""
        yield self
        for _, _, child in self.children:
            yield from child.walk()

    @property
    def root(self) -> "Scope":
        """The scope of the main graph."""
        return self if self.parent is None else self.parent.root

    def input_dims(self, name: str) -> tuple[int | str | None, ...] | None:
        """The dims that the main graph declares of its input ``name``; None if it is none."""
        found = (info for info in self.root.graph.input if info.name == name)
        info = next(found, None)
        return None if info is None else port_of(info).shape

    def nodes(self, *op_types: str) -> "Iterator[tuple[Scope, NodeProto]]":
        """All nodes of these operators, here and in the bodies within."""
        for scope in self.walk():
            for node in scope.graph.node:
                if node.op_type in op_types:
                    yield scope, node

    def maker(self, name: str) -> "tuple[Scope, NodeProto] | None":
        """The node that makes tensor ``name`` and its scope; None for inputs and initializers."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._makers:
                return scope, scope._makers[name]
            scope = scope.parent
        return None

    def uses(self, name: str) -> Iterator[Use]:
        """All readings of tensor ``name``, here and in the bodies within."""
        for scope in self.walk():
            for node, index in scope._uses.get(name, ()):
                yield Use(node, index, scope)

    def tensor(self, name: str) -> TensorProto | None:
        """The initializer or ``Constant`` behind ``name``, its payload dropped if it was large."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._tensors:
                held: TensorProto = scope._tensors[name]
                return held
            if name in scope._makers:
                node = scope._makers[name]
                found: TensorProto | None = attributes(node).get("value")
                return found if node.op_type == "Constant" else None
            scope = scope.parent
        return None

    def dims(self, name: str) -> tuple[int, ...] | None:
        """The shape of the constant ``name``, seen through casts; None if it is no constant."""
        while True:
            tensor = self.tensor(name)
            if tensor is not None:
                return tuple(tensor.dims)
            made = self.maker(name)
            if made is None or made[1].op_type not in {"Identity", "Cast"}:
                return None
            name = made[1].input[0]

    def value(self, name: str) -> np.ndarray[Any, Any] | None:
        """The value of a small constant; None for what is computed or large."""
        tensor = self.tensor(name)
        if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
            return None
        try:
            return numpy_helper.to_array(tensor)
        except ValueError:  # its payload was dropped
            return None


def attributes(node: NodeProto) -> dict[str, Any]:
    """The attributes of ``node`` as Python values, strings decoded."""
    values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return {k: v.decode(errors="replace") if isinstance(v, bytes) else v for k, v in values.items()}


def elem_name(elem_type: int) -> str:
    """NumPy's name of an ONNX element type, ``bfloat16`` and ``string`` included."""
    try:
        name: str = TensorProto.DataType.Name(elem_type).lower()
    except ValueError:
        return f"type {elem_type}"
    return {"float": "float32", "double": "float64"}.get(name, name)


class Graph:
    """A model's main graph: its inputs, outputs and scopes."""

    def __init__(self, model: onnx.ModelProto, path: Path) -> None:
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        self.path = path
        self.scope = Scope(model.graph)
        constants = {tensor.name for tensor in model.graph.initializer}
        self.inputs = {v.name: port_of(v) for v in model.graph.input if v.name not in constants}
        self.outputs = {v.name: port_of(v) for v in model.graph.output}
        self.opsets = {opset.domain or "ai.onnx": opset.version for opset in model.opset_import}
        self.producer = f"{model.producer_name} {model.producer_version}".strip()

    @classmethod
    def load(cls, path: Path) -> "Graph":
        """Reads ``path`` without its weights; errors are those of :func:`policy.sound`."""
        with understood(path):
            graph = cls(policy.sound(wire.slim(path), path), path)
        if not graph.inputs or not graph.outputs:
            raise ModelFileError(f"{path} has no inputs or no outputs", do="export it again")
        return graph


@contextmanager
def understood(path: Path) -> Iterator[None]:
    """Turns what reading a graph's facts trips over into ModelFileError.

    Operators without their inputs, axes that a tensor lacks, attributes of another type: a graph
    can be wrong in more ways than its readers can ask about, and ONNX Runtime comes later.
    """
    try:
        yield
    except OnnxgenError:
        raise
    except Exception as error:
        raise ModelFileError(
            f"{path} is not a sound ONNX model ({type(error).__name__})",
            wanted="nodes with the inputs, attributes and ranks that their operators take",
            do="download or export it again",
        ) from error


def port_of(info: ValueInfoProto) -> Port:
    """What a graph declares of an input or output."""
    tensor = info.type.tensor_type
    dims = tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else (d.dim_param or None)
        for d in tensor.shape.dim
    )  # a size below 0 stands for one that is unsaid
    return Port(info.name, tensor.elem_type, dims, elem_name(tensor.elem_type))
