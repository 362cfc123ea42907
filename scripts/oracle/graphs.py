"""Makes exported files small and the same on every machine."""

from collections.abc import Iterator
from pathlib import Path

import onnx


def clean(path: Path) -> None:
    """Drops metadata and doc strings, which may hold stack traces; the rest stays as exported.

    Weights in other files are left alone.
    """
    model = onnx.load(path, load_external_data=False)
    del model.metadata_props[:]
    model.ClearField("doc_string")
    for graph in graphs(model.graph):
        graph.ClearField("doc_string")
        del graph.metadata_props[:]
        for item in (
            *graph.node,
            *graph.input,
            *graph.output,
            *graph.initializer,
            *graph.value_info,
        ):
            item.ClearField("doc_string")
            del item.metadata_props[:]
    for function in model.functions:
        function.ClearField("doc_string")
        del function.metadata_props[:]
        for node in function.node:
            node.ClearField("doc_string")
            del node.metadata_props[:]
    path.write_bytes(model.SerializeToString(deterministic=True))


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and every body inside it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs(attribute.g)
            for body in attribute.graphs:
                yield from graphs(body)


def operators(path: Path) -> set[str]:
    """The operator types that a file uses, bodies included."""
    model = onnx.load(path, load_external_data=False)
    return {node.op_type for graph in graphs(model.graph) for node in graph.node}


#: operators that say how a graph keeps its cache
TELLING = {
    "Attention",
    "CausalConvWithState",
    "GatherBlockQuantized",
    "GroupQueryAttention",
    "If",
    "MatMulInteger",
    "MatMulNBits",
    "MultiHeadAttention",
    "RotaryEmbedding",
}
