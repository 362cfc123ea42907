"""Logits of the last column alone, where that is all that is wanted.

A prompt needs the logits behind its last token, and most exports compute them behind each: a tenth
of a prompt's time and (1,S,V) of memory. The graph gets the input that newer exports have for it.
So does what leads to them in the last layer, behind its attention: each layer's keys and values are
wanted for every token, but what that one makes of them for the last alone.

Letters: B batch, S new tokens, H hidden size, V vocabulary.
"""

import numpy as np
from onnx import NodeProto, TensorProto, helper

from onnxgen.graph.proto import Scope
from onnxgen.graph.rewrites.branches import AFTER, HEADS
from onnxgen.graph.rewrites.editing import Draft, Site, copy_of
from onnxgen.graph.rewrites.tokenwise import Tokens, last_of

INPUT = "num_logits_to_keep"  # as transformers.js' exports: 0 for all columns, 1 for the last


def keep_last(draft: Draft) -> list[Site]:
    """Has the graph compute as many last columns of its logits as it is told; where."""
    scope = draft.scope
    ports = {port.name for port in scope.graph.input}
    named = [port for port in scope.graph.output if port.name == "logits"]
    if not named or not draft.grows or any("logits_to_keep" in n for n in ports):
        return []
    if scope.children:
        return draft.leave("the graph has branches")
    (logits,) = named
    dims = logits.type.tensor_type.shape.dim
    if len(dims) != 3 or dims[1].dim_value:  # of one column already
        return []
    head = _head(scope, logits.name)
    if head is None or scope.dims(head.input[0]) is not None:
        return draft.leave("logits are not a product with a table of the vocabulary")
    _cut(draft, head)
    scope.graph.input.append(helper.make_tensor_value_info(INPUT, TensorProto.INT64, []))
    logits.type.tensor_type.shape.dim[1].dim_param = "kept_columns"
    return [Site.of(scope, head)]


def _cut(draft: Draft, head: NodeProto) -> None:
    """Has ``head``, and all that works for it alone, see the last columns of what (B,S,H) it reads.

    In the last layer that is all but what attention needs of every token.
    """
    scope, tokens = draft.scope, Tokens(draft.scope)
    start, negative = draft.name("start"), draft.name("negative")
    end, axis, single = (
        draft.constant(scope, about, np.array([value], np.int64))
        for about, value in (("end", np.iinfo(np.int64).max), ("axis", 1), ("single", 0))
    )
    draft.put_first(helper.make_node("Neg", [INPUT], [negative]))
    draft.put_first(helper.make_node("Unsqueeze", [negative, single], [start]))  # () -> (1,)
    late = last_of(scope, head, tokens)
    cut, made = dict[str, str](), {name for node in late for name in node.output}
    for node in late:
        copy, slices = copy_of(node), []
        for place, name in enumerate(node.input):
            hidden = name in tokens.names or (node is head and place == 0)
            if not hidden or name in made:
                continue
            if name not in cut:
                cut[name] = draft.name("kept")
                slices.append(helper.make_node("Slice", [name, start, end, axis], [cut[name]]))
            copy.input[place] = cut[name]
        draft.replace(node, [*slices, copy])


def _head(scope: Scope, logits: str) -> NodeProto | None:
    """The product with the vocabulary's table that ``logits`` (B,S,V) come from."""
    name = logits
    for _ in range(8):
        made = scope.maker(name)
        if made is None:
            return None
        node = made[1]
        if node.op_type in HEADS:
            return node if len(list(scope.uses(node.output[0]))) <= 2 else None
        if node.op_type not in AFTER:
            return None
        computed = [side for side in node.input if scope.dims(side) is None]
        if len(computed) != 1:
            return None
        name = computed[0]
    return None
