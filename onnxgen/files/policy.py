"""What a graph may hold, before anything runs it.

ONNX Runtime guards its parser, not its user: a graph may ask for operators that load a library,
run Python or open a file of their own. Each serialized model passes here once it is read, so what
is built on it, and ONNX Runtime, see none of that; nor a net that has no order.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from onnxgen import wire
from onnxgen.errors import ModelFileError, UnsupportedModelError
from onnxgen.files import external

# Domains of operators that ONNX Runtime brings itself. Its own optimizer writes the last two.
DOMAINS = frozenset({
    "", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc",
})  # fmt: skip
# Operators that open a file that they name, or run what is no part of ONNX Runtime.
REFUSED = frozenset({
    "EPContext", "PyOp", "PyCustomOp", "PythonOp", "PythonOpGrad", "ATen", "TritonOp", "Snpe",
})  # fmt: skip

MAX_DIM = 2**31 - 1  # of an input or output
_DENSE = 2**30  # numbers that sparse tensors may stand for, all together
_INLINED = 10**6  # nodes of a model whose functions are inlined
_MAIN = ("", "")  # the main graph, among the functions
_PACKED = 4  # numbers that a byte of a graph's file may stand for


def external_data_locations(path: Path) -> list[str]:
    """Files with weights of the graph at ``path``, relative to its folder, each once.

    Raises:
        ModelNotFoundError: there is no such file.
        ModelFileError, UnsupportedModelError: what :func:`sound` refuses.
    """
    model = _parsed(wire.slim(path), path)
    return _Reading(model, path).parts


def sound(data: bytes, path: Path, own: str = "") -> ModelProto:
    """The model that ``data``, read from ``path``, holds.

    ``own`` is the name under which its external data refer to ``path`` itself.

    Raises:
        ModelFileError: it is no sound ONNX graph, a body's nodes have no order, or its data lie
            outside its folder or are shorter than it says.
        UnsupportedModelError: it needs operators from elsewhere, or a later onnx.
    """
    model = _parsed(data, path)
    _Reading(model, path, own)
    return model


def _parsed(data: bytes, path: Path) -> ModelProto:
    try:
        model: ModelProto = ModelProto.FromString(data)
    except Exception as error:  # protobuf's own, which differs by implementation
        raise _unsound(path) from error
    return model


def _unsound(path: Path, why: str = "") -> ModelFileError:
    return ModelFileError(
        f"{path} is no sound ONNX graph{why and ': '}{why}",
        wanted="a complete ONNX file",
        do="download or export it again",
    )


class _Reading:
    """One walk over all that a model holds; ``parts`` are its files with external data."""

    def __init__(self, model: ModelProto, path: Path, own: str = "") -> None:
        self._path = path
        self._foreign: dict[str, None] = {}  # operators from elsewhere, in the order met
        self._outside: list[TensorProto] = []
        self._dense = 0
        self._most = path.stat().st_size * _PACKED
        self._functions = {(f.domain, f.name) for f in model.functions}
        try:
            self._model(model)
            self.parts = external.check(self._outside, path, own)
        except (TypeError, AttributeError) as error:
            raise _unsound(path, "a name in it is no text") from error

    def _model(self, model: ModelProto) -> None:
        _check_version(model, self._path)
        self._body(model.graph)
        self._check_ports(model.graph)
        for training in model.training_info:
            self._body(training.initialization)
            self._body(training.algorithm)
        for function in model.functions:
            self._nodes(function.node, set(function.input))
            for attribute in function.attribute_proto:
                self._attribute(attribute)
        _check_calls(model, self._path)
        if self._foreign:
            raise UnsupportedModelError(
                f"{self._path} holds operators that ONNX Runtime has not itself: "
                + _some(list(self._foreign)),
                wanted="operators of ONNX and com.microsoft; no library is loaded for a model",
                do="export it for ONNX Runtime's CPU or CUDA provider, with no custom operators",
            )

    def _body(self, graph: GraphProto) -> set[str]:
        """Checks a graph's body; the names that it takes from around it."""
        inputs = [info.name for info in graph.input]
        if len(set(inputs)) < len(inputs):
            raise _unsound(self._path, "two inputs have one name")
        held = {tensor.name for tensor in graph.initializer}
        held.update(sparse.values.name for sparse in graph.sparse_initializer)
        _texts(*held, *inputs, *(info.name for info in graph.output))
        self._tensors(graph.initializer)
        for sparse in graph.sparse_initializer:
            self._sparse(sparse)
        return self._nodes(graph.node, held.union(inputs))

    def _nodes(self, nodes: Iterable[NodeProto], given: set[str]) -> set[str]:
        """Checks nodes that read ``given``; the names that are neither given nor made by them."""
        made: dict[str, int] = {}
        reads: list[set[str]] = []
        early: set[str] = set()  # read before they are made, if they are at all
        for index, node in enumerate(nodes):
            name, domain = node.op_type, node.domain
            known = domain in DOMAINS or (domain, name) in self._functions
            if not known or name in REFUSED:
                self._foreign[f"{domain}::{name}" if domain else name] = None
            names = set(node.input)
            _texts(name, domain, *names, *node.output)
            for attribute in node.attribute:
                names |= self._attribute(attribute)
            names.discard("")
            names -= given
            reads.append(names)
            early |= names.difference(made)
            for output in node.output:
                if output in made or output in given:
                    raise _unsound(self._path, f"{output!r} is made twice")
                if output:
                    made[output] = index
        if not early.isdisjoint(made):
            _refuse_circle(self._path, made, reads)
        return early.difference(made)

    def _attribute(self, attribute: AttributeProto) -> set[str]:
        """Checks the tensors and bodies of an attribute; the names that the bodies take."""
        kind, names = attribute.type, set[str]()
        if kind in _PLAIN:
            return names
        self._tensors((attribute.t, *attribute.tensors))
        if kind in _SPARSE:
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                self._sparse(sparse)
        if kind != AttributeProto.TENSOR:
            for graph in (attribute.g, *attribute.graphs):
                names |= self._body(graph)
        return names

    def _sparse(self, sparse: onnx.SparseTensorProto) -> None:
        self._tensors([sparse.values, sparse.indices])
        self._dense += external.numbers(TensorProto(dims=sparse.dims))
        if self._dense > _DENSE:
            raise _unsound(self._path, "its sparse tensors stand for too much")

    def _tensors(self, tensors: Iterable[TensorProto]) -> None:
        for tensor in tensors:
            if tensor.data_location == TensorProto.EXTERNAL:
                self._outside.append(tensor)
            count = external.numbers(tensor)
            if count < 0 or (count > self._most and tensor.data_location == TensorProto.DEFAULT):
                raise _unsound(self._path, f"the tensor {tensor.name!r} has dims beyond its data")

    def _check_ports(self, graph: GraphProto) -> None:
        for info in (*graph.input, *graph.output):
            for dim in info.type.tensor_type.shape.dim:
                _texts(dim.dim_param)
                if dim.dim_value > MAX_DIM:
                    raise _unsound(self._path, f"{info.name!r} has a dim of {dim.dim_value}")


_SPARSE = {AttributeProto.SPARSE_TENSOR, AttributeProto.SPARSE_TENSORS}
# Attributes without tensors or graphs in them: nearly all.
_PLAIN = frozenset({
    AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT, AttributeProto.FLOATS,
    AttributeProto.STRING, AttributeProto.STRINGS,
})  # fmt: skip


def _refuse_circle(path: Path, made: dict[str, int], reads: list[set[str]]) -> None:
    """ModelFileError if nodes that do not come in order have none."""
    after = {
        index: [made[name] for name in names if name in made] for index, names in enumerate(reads)
    }
    try:
        TopologicalSorter(after).prepare()
    except CycleError as error:
        raise _unsound(path, "its nodes feed each other in a circle") from error


def _check_calls(model: ModelProto, path: Path) -> None:
    """ModelFileError if the model's functions call each other without end, or nearly so."""
    if not model.functions:
        return
    calls = {(f.domain, f.name): Counter(_calls(f.node)) for f in model.functions}
    calls[_MAIN] = Counter(_calls(model.graph.node))
    try:
        order = [*TopologicalSorter(calls).static_order()]
    except CycleError as error:
        raise _unsound(path, "its functions call each other in a circle") from error
    sizes: dict[tuple[str, str], int] = {}  # nodes of a call, all inlined
    for name in order:
        sizes[name] = 1 + sum(sizes[inner] * n for inner, n in calls.get(name, {}).items())
    if sizes[_MAIN] > _INLINED:
        raise _unsound(path, "its functions stand for too many nodes")


def _calls(nodes: Iterable[NodeProto]) -> Iterator[tuple[str, str]]:
    """The operators of ``nodes`` and of the bodies in them."""
    for node in nodes:
        yield node.domain, node.op_type
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _calls(graph.node)


def _texts(*names: str) -> None:
    """TypeError for a name that is no text: protobuf hands out what is not UTF-8 as bytes."""
    "".join(names)


def _check_version(model: ModelProto, path: Path) -> None:
    opsets = [entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}]
    for what, found, most in (
        ("IR version", model.ir_version, int(onnx.IR_VERSION)),
        ("opset", max(opsets, default=0), onnx.defs.onnx_opset_version()),
    ):
        if found > most:
            raise UnsupportedModelError(
                f"{path} is of {what} {found}",
                wanted=f"at most {most}, the latest that the installed onnx knows",
                do="pip install -U onnx onnxruntime",
            )


def _some(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
