"""Products with tables of few bits by ``MatMulNBits`` with activations of 8 bits.

Faster, and less exact: the activations of each block are rounded to 255 steps, so that of two
tokens that are nearly as likely the other may come. Only for those who ask for it.

Letters: N outputs, K inputs, b block size.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

from onnxgen.graph.proto import Scope, attributes
from onnxgen.graph.rewrites.editing import MICROSOFT, Draft, Site
from onnxgen.graph.rewrites.tables import chain_of

LEVEL = 4  # the operator's accuracy_level for activations of 8 bits
_BLOCKS = (128, 64, 32, 16)


def lower(draft: Draft) -> list[Site]:
    """Has ``MatMulNBits`` whose export leaves that open round its activations; where."""
    found = [
        (scope, node)
        for scope, node in draft.scope.nodes("MatMulNBits")
        if not attributes(node).get("accuracy_level")
    ]
    for _, node in found:
        kept = [a for a in node.attribute if a.name != "accuracy_level"]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute("accuracy_level", LEVEL)])
    return [Site.of(scope, node) for scope, node in found]


def pack(draft: Draft) -> list[Site]:
    """Makes products with a table of 8 bits, turned to floats before, ``MatMulNBits``; where."""
    sites: list[Site] = []
    made: dict[str, list[str]] = {}  # table -> its blocks, scales and zero points
    for scope, node in draft.scope.nodes("DequantizeLinear"):
        chain = chain_of(scope, node)
        users = [use.node for use in scope.uses(node.output[0])]
        table = chain[0].input[0] if chain else ""
        dims = scope.dims(table) if chain and len(chain) == 2 else None
        plain = all(user.op_type == "MatMul" and user.input[1] == node.output[0] for user in users)
        block = next((b for b in _BLOCKS if dims and dims[1] % b == 0), 0)
        if not (chain and users and plain and dims and block):
            continue
        if table not in made:
            made[table] = _constants(draft, scope, node, table, block)
        for user in users:
            product = helper.make_node(
                "MatMulNBits",
                [user.input[0], *made[table]],
                list(user.output),
                draft.name("product"),
                domain=MICROSOFT,
                N=dims[0],
                K=dims[1],
                bits=8,
                block_size=block,
                accuracy_level=LEVEL,
            )
            draft.replace(user, [product])
            sites.append(Site.of(scope, user))
    return sites


def _constants(draft: Draft, scope: Scope, node: NodeProto, table: str, block: int) -> list[str]:
    """The operator's blocks (N,K/b,b), scales and zero points (N,K/b), in the main graph."""
    held = scope.tensor(table)
    assert held is not None
    rows, columns = held.dims
    shape = (rows, columns // block, block)
    signed = held.data_type == TensorProto.INT8
    scale = _loaded(draft, scope, node.input[1]).astype(np.float32)
    zero = _loaded(draft, scope, node.input[2]) if len(node.input) > 2 else np.zeros(1, np.int8)
    zeros = zero.astype(np.int64) + (128 if signed else 0)
    if signed:
        own = _loaded(draft, scope, table).view(np.uint8) ^ 0x80  # (N,K)
        blocks = draft.constant(draft.scope, "blocks", own.reshape(shape))
    else:  # the same bytes in another shape
        copy = TensorProto.FromString(held.SerializeToString())
        copy.name = blocks = draft.name("blocks")
        copy.dims[:] = shape
        draft.scope.graph.initializer.append(copy)
    each = (scale.reshape(-1, 1), zeros.astype(np.uint8).reshape(-1, 1))  # (1 or N,1)
    whole = [np.ascontiguousarray(np.broadcast_to(values, shape[:2])) for values in each]
    names = zip(("scales", "zeros"), whole, strict=True)
    return [blocks, *(draft.constant(draft.scope, name, values) for name, values in names)]


def _loaded(draft: Draft, scope: Scope, name: str) -> NDArray[Any]:
    tensor = scope.tensor(name)
    assert tensor is not None
    return numpy_helper.to_array(tensor, base_dir=str(draft.folder))
