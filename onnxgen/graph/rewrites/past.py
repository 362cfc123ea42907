"""The length of a growing cache, counted by the mask where a graph reads it from the cache's dims.

A shared buffer is longer than what it holds, so positions and masks that begin behind the cache
need another source: the columns of the mask less the new tokens.

Letters: B batch, S new tokens, P past, T = P+S, K heads of keys, D head size, H hidden size.
"""

from collections.abc import Collection

import numpy as np
from onnx import NodeProto, helper

from onnxgen.graph.proto import Scope, attributes
from onnxgen.graph.rewrites.editing import Draft
from onnxgen.graph.rewrites.masks import numbers_of
from onnxgen.graph.roles import NAMES

_AXIS = 2  # of a cache (B,K,P,D)


def count_by_mask(draft: Draft, pasts: Collection[str], mask: str) -> None:
    """Has what reads P from the inputs ``pasts`` (B,K,P,D) take T - S, by ``mask`` (B,T)."""
    scope = draft.scope
    tokens = _tokens(scope)
    readers = [
        use.node for name in pasts for use in scope.uses(name) if use.node.op_type == "Shape"
    ]
    for shape in readers if tokens else ():
        told = attributes(shape)
        if (told.get("start"), told.get("end")) == (_AXIS, _AXIS + 1):
            draft.replace(shape, _past(draft, mask, tokens, shape.output[0], (1,)))
        for use in scope.uses(shape.output[0]) if not told else ():
            index = use.node.input[1] if use.node.op_type == "Gather" and use.index == 0 else ""
            if index and numbers_of(scope, index) == [_AXIS]:
                sizes = tuple(scope.dims(index) or ())
                draft.replace(use.node, _past(draft, mask, tokens, use.node.output[0], sizes))


def _tokens(scope: Scope) -> str:
    """The input of new tokens, ids (B,S) or embeddings (B,S,H); "" if none is known."""
    names = (port.name for port in scope.graph.input)
    return next((name for name in names if NAMES.get(name) in {"ids", "embeds"}), "")


def _past(
    draft: Draft, mask: str, tokens: str, output: str, sizes: tuple[int, ...]
) -> list[NodeProto]:
    """What makes ``output``, P as an array of these ``sizes``: one number in all."""
    axis = draft.constant(draft.scope, "axis", np.full(sizes, 1, np.int64))
    nodes, counts = [], []
    for name in (mask, tokens):
        shape, count = draft.name("shape"), draft.name("count")
        nodes.append(helper.make_node("Shape", [name], [shape]))
        nodes.append(helper.make_node("Gather", [shape, axis], [count]))
        counts.append(count)
    return [*nodes, helper.make_node("Sub", counts, [output])]
