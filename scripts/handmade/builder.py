"""A small kit to write a decoder graph node by node with ``onnx.helper``."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .weights import Spec, Weights

CONTRIB = "com.microsoft"
CONTRIB_OPS = {"GroupQueryAttention", "MultiHeadAttention", "LinearAttention"}
Dims = Sequence[Any]  # numbers, and names of what the graph leaves open

TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "bool": TensorProto.BOOL,
    "string": TensorProto.STRING,
}


@dataclass
class Builder:
    """Collects nodes, inputs, outputs and weights of one graph.

    ``scope`` prefixes the names of nodes; ``pairs`` lists each cache input with the output that
    becomes it in the next step.
    """

    spec: Spec
    weights: Weights
    opset: int = 18
    scope: str = "/model"
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    initializers: dict[str, onnx.TensorProto] = field(default_factory=dict)
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    pairs: list[tuple[str, str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    _constants: dict[tuple[Any, ...], str] = field(default_factory=dict)

    @property
    def dtype(self) -> str:
        """The dtype of weights, caches and logits."""
        return self.spec.precision

    def node(
        self, op: str, *inputs: str, out: Sequence[str] = (), domain: str = "", **attributes: Any
    ) -> str:
        """Add a node and return its first output; outputs are named ``out``, or by the node."""
        name = self.fresh(f"{self.scope}/{op}")
        outputs = list(out) or [f"{name}_output_0"]
        domain = domain or (CONTRIB if op in CONTRIB_OPS else "")
        made = helper.make_node(op, list(inputs), outputs, name=name, domain=domain, **attributes)
        self.nodes.append(made)
        return outputs[0]

    def fresh(self, stem: str) -> str:
        """A name that nothing has yet."""
        count = self.counts.get(stem, 0)
        self.counts[stem] = count + 1
        return f"{stem}_{count}" if count else stem

    def constant(self, value: Any, dtype: str = "int64") -> str:
        """A Constant node, one for each value."""
        array = np.asarray(value, dtype)
        key = (dtype, array.shape, array.tobytes())
        if key not in self._constants:
            name = self.fresh("/model/Constant")
            value = numpy_helper.from_array(array, name)
            outputs = [f"{name}_output_0"]
            self.nodes.append(helper.make_node("Constant", [], outputs, name=name, value=value))
            self._constants[key] = outputs[0]
        return self._constants[key]

    def real(self, value: Any) -> str:
        """A Constant of the graph's own float dtype."""
        return self.constant(value, self.dtype)

    def weight(self, name: str) -> str:
        """The weight ``name`` of the decoder, as an initializer."""
        return self.table(f"model.{name}.weight", self.weights[name])

    def table(self, name: str, value: Any) -> str:
        """An initializer with a value of its own."""
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def input(self, name: str, dtype: str, dims: Dims) -> str:
        """Declare a graph input."""
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[dtype], dims))
        return name

    def output(self, name: str, dtype: str, dims: Dims) -> str:
        """Declare a graph output; some node must name it."""
        self.outputs.append(helper.make_tensor_value_info(name, TYPES[dtype], dims))
        return name

    def cache(
        self, past: str, past_dims: Dims, present: str, present_dims: Dims
    ) -> tuple[str, str]:
        """Declare a cache input and the output that replaces it; their names come back."""
        self.input(past, self.dtype, past_dims)
        self.output(present, self.dtype, present_dims)
        self.pairs.append((past, present))
        return past, present

    def linear(self, x: str, weight: str) -> str:
        """``x`` [..., in] times the weight [in, out]."""
        return self.node("MatMul", x, self.weight(weight))

    def cast(self, x: str, dtype: str) -> str:
        """``x`` as another dtype."""
        return self.node("Cast", x, to=TYPES[dtype])

    def size(self, x: str, axis: int, keep: bool = False) -> str:
        """One dim of ``x`` by Shape and Gather: rank 0, or shape [1] if ``keep``."""
        index = self.constant([axis] if keep else axis)
        return self.node("Gather", self.node("Shape", x), index, axis=0)

    def unsqueeze(self, x: str, *axes: int) -> str:
        """``x`` with dims of 1 at ``axes``."""
        return self.node("Unsqueeze", x, self.constant(list(axes)))

    def reshape(self, x: str, *dims: int) -> str:
        """``x`` reshaped to ``dims``; 0 keeps a dim, -1 is what is left."""
        return self.node("Reshape", x, self.constant(list(dims)))

    def slice(self, x: str, start: int, end: int, axis: int) -> str:
        """``x[start:end]`` along ``axis``."""
        bounds = (self.constant([value]) for value in (start, end, axis))
        return self.node("Slice", x, *bounds)

    def graph(self, name: str = "main_graph") -> onnx.GraphProto:
        """What was collected, as a graph; logits come first among the outputs."""
        outputs = sorted(self.outputs, key=lambda value: value.name != "logits")
        weights = list(self.initializers.values())
        return helper.make_graph(self.nodes, name, self.inputs, outputs, weights)

    def model(self) -> onnx.ModelProto:
        """The whole model."""
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(CONTRIB, 1)]
        opsets += [helper.make_opsetid(domain, 1) for domain in {f.domain for f in self.functions}]
        return helper.make_model(
            self.graph(),
            opset_imports=opsets,
            functions=self.functions,
            producer_name="handmade",
            ir_version=10 if self.opset < 23 else 11,
        )


class FunctionBuilder(Builder):
    """Collects the nodes of a model-local function: every weight and table is a parameter.

    ``formals`` maps a parameter to the weight's name in its layer, or to a table of ``outer``.
    """

    def __init__(self, outer: Builder, name: str) -> None:
        super().__init__(outer.spec, outer.weights, outer.opset)
        self.outer, self.name = outer, name
        self.formals: dict[str, str] = {}

    def weight(self, name: str) -> str:
        """The parameter for the weight ``name``, whose layer number the caller chooses."""
        kind = name.partition(".")[2]
        self.formals[kind] = ""
        return kind

    def table(self, name: str, value: Any) -> str:
        """The parameter for a table that every call gets from the graph around it."""
        self.formals[name] = self.outer.table(name, value)
        return name

    def define(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """End the function: ``inputs`` come first, then the weights and tables."""
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(CONTRIB, 1)]
        inputs = [*inputs, *self.formals]
        made = helper.make_function("local", self.name, inputs, outputs, self.nodes, opsets)
        self.outer.functions.append(made)

    def call(self, layer: int, inputs: Sequence[str], outputs: Sequence[str]) -> str:
        """A node of ``outer`` that calls the function with the weights of ``layer``."""
        given = [
            table or self.outer.weight(f"{layer}.{kind}") for kind, table in self.formals.items()
        ]
        return self.outer.node(self.name, *inputs, *given, out=outputs, domain="local")
