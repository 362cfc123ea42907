"""What a graph keeps outside its own file.

The graph itself says where its weights lie; counts in config files are never asked. ONNX Runtime
looks for the parts beside the graph and nowhere else, so a place outside is an error here.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx
from onnx import GraphProto, NodeProto, TensorProto

from onnxgen import wire
from onnxgen.errors import ModelFileError


def external_data_locations(path: Path) -> list[str]:
    """Files with weights of the graph at ``path``, relative to its folder, each once.

    Raises:
        ModelNotFoundError: there is no such file.
        ModelFileError: it is no sound ONNX graph, or a location leaves the graph's folder.
    """
    data = wire.slim(path)
    try:
        locations = _locations(onnx.ModelProto.FromString(data))
    except Exception as error:  # protobuf's own, which differs by implementation
        raise ModelFileError(
            f"{path} is no sound ONNX graph", do="download or export it again"
        ) from error
    for location in locations:
        if not inside(location):
            raise ModelFileError(
                f"{path} keeps weights at {location!r}",
                wanted="files in the graph's own folder",
                do="do not trust this model, or export it again",
            )
    return locations


def _locations(model: onnx.ModelProto) -> list[str]:
    values = [
        entry.value
        for tensor in _tensors(model)
        if tensor.data_location == TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    ]
    if not all(isinstance(value, str) for value in values):
        raise ValueError("protobuf hands out text that is not UTF-8 as bytes")
    return list(dict.fromkeys(values))


def inside(name: str) -> bool:
    """Whether ``name``, taken from a file, stays in its folder on every system."""
    flavours = PurePosixPath(name), PureWindowsPath(name)
    return (
        bool(name) and "\0" not in name and not any(f.anchor or ".." in f.parts for f in flavours)
    )


def is_file(path: Path) -> bool:
    """Whether ``path`` is a file, or a link to one; any name will do."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file fails on names that are too long


def _tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    yield from _graph_tensors(model.graph)
    for training in model.training_info:
        yield from _graph_tensors(training.initialization)
        yield from _graph_tensors(training.algorithm)
    for function in model.functions:
        yield from _node_tensors(function.node)


def _graph_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
            for graph in (attribute.g, *attribute.graphs):
                yield from _graph_tensors(graph)
