"""The order in which a session meets the nodes of a graph.

ONNX Runtime sorts nodes itself before they run, but packs their weights in the order in which they
are listed. While it packs a table of the vocabulary it holds that twice or three times: as stored,
turned over, packed. The head is listed last, when all other weights are in memory, so that decides
how much memory loading takes.
"""

from math import prod

from onnx import ModelProto, NodeProto

from onnxgen.graph.rewrites.editing import copy_of

_PACKED = frozenset({"MatMul", "Gemm", "MatMulNBits"})  # products with weights as input 1


def pack_largest_first(model: ModelProto) -> None:
    """Lists the product with the largest weights first, behind the ``Transpose`` of these if any.

    ONNX wants nodes in the order in which they can run, so this is for a session, not for a file.
    """
    graph = model.graph
    sizes: dict[str, int] = {tensor.name: prod(tensor.dims) for tensor in graph.initializer}
    turned = {
        output: node
        for node in graph.node
        if node.op_type == "Transpose" and sizes.keys() & set(node.input)
        for output in node.output
    }

    def size(node: NodeProto) -> int:
        if node.op_type not in _PACKED or len(node.input) < 2:
            return 0
        name = node.input[1]
        return sizes.get(turned[name].input[0] if name in turned else name, 0)

    largest = max(graph.node, key=size, default=None)
    if largest is None or not size(largest):
        return
    first = [turned[largest.input[1]]] if largest.input[1] in turned else []
    for place, node in enumerate([*first, largest]):
        copy = copy_of(node)
        graph.node.remove(node)
        graph.node.insert(place, copy)
