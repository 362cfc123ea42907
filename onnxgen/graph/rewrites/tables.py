"""Weights of 8 bits that are made floats in each step, made floats once.

A quantiser that meets one table both as embeddings and as head leaves a ``DequantizeLinear`` of
the whole table before the head's product, in each branch. Moved to the main graph, ONNX Runtime
does that work when it loads the model, once for all branches; see :data:`FOLDED`.
"""

from onnx import NodeProto, TensorProto

from onnxgen.graph.proto import Scope, attributes
from onnxgen.graph.rewrites.editing import Draft, Site, copy_of

# What keeps ONNX Runtime from doing it is that it looks for kernels that take quantised inputs.
FOLDED = ("session.disable_quant_qdq", "1")
_BYTES = frozenset({TensorProto.INT8, TensorProto.UINT8})


def hoist(draft: Draft) -> list[Site]:
    """Has constant tables of 8 bits turned to floats in the main graph; where.

    Not where activations are quantised too: the kernels for these take the tables as they are.
    """
    if any(True for _ in draft.scope.nodes("QuantizeLinear")):
        return []
    found = [
        (scope, node, chain)
        for scope, node in draft.scope.nodes("DequantizeLinear")
        if (chain := chain_of(scope, node)) is not None
    ]
    made: dict[bytes, str] = {}  # what is computed -> its name in the main graph
    for scope, node, chain in found:
        if scope.parent is None:
            continue
        name = chain[0].input[0]
        for link in chain:
            moved = copy_of(link)
            moved.input[0], moved.name = name, ""
            del moved.output[:]
            key = moved.SerializeToString()
            if key not in made:
                made[key] = draft.name("table")
                moved.output.append(made[key])
                draft.put_first(moved)
            name = made[key]
        for use in list(scope.uses(node.output[0])):
            use.node.input[use.index] = name
    return [Site.of(scope, node) for scope, node, _ in found]


def chain_of(scope: Scope, node: NodeProto) -> list[NodeProto] | None:
    """``node``, a ``DequantizeLinear``, and the ``Transpose`` before it, of a constant table."""
    chain, table = [node], node.input[0]
    made = scope.maker(table)
    if made is not None and made[0] is scope and made[1].op_type == "Transpose":
        chain.insert(0, made[1])
        table = made[1].input[0]
    tensor = scope.tensor(table)
    if tensor is None or tensor.data_type not in _BYTES or len(tensor.dims) != 2:
        return None
    constants = [table, *node.input[1:]]
    if any(scope.root.tensor(name) is None for name in constants if name):
        return None
    return chain if not attributes(node).get("block_size") else None
