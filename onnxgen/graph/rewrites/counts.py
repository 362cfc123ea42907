"""Valid rows counted by the host instead of from a mask, which is fed if something else reads it.

``GroupQueryAttention`` takes each row's last valid index and the total. Exports sum the mask's ones
for that, in each step and over all of the context; whoever makes the mask knows the numbers.

Letters: B batch, T columns of the mask.
"""

from onnx import TensorProto, helper

from onnxgen.graph.proto import Scope
from onnxgen.graph.rewrites.attention import made_here
from onnxgen.graph.rewrites.editing import Draft, Site, UnfitError
from onnxgen.graph.rewrites.masks import numbers_of
from onnxgen.graph.rewrites.reshapes import size_behind

# Inputs of these names have these roles, see ``graph/roles.py``.
LAST, TOTAL = "seqlens_k", "total_sequence_length"
_PLACES = {5: LAST, 6: TOTAL}  # number of the operator's input -> what it takes


def take_counts(draft: Draft) -> list[Site]:
    """Has the operators read their counts from inputs instead of the mask; where."""
    scope = draft.scope
    nodes = [node for _, node in scope.nodes("GroupQueryAttention")]
    given = {name for node in nodes for name in node.input[5:6] if scope.input_dims(name)}
    if not nodes or given or not draft.grows:
        return []
    if scope.children:
        return draft.leave("the graph has branches")
    try:
        mask = _summed(scope, nodes[0].input[5])
        if any(_summed(scope, node.input[5]) != mask for node in nodes):
            raise UnfitError("attentions count by different masks")
        if any(size_behind(scope, node.input[6]) != (mask, 1) for node in nodes):
            raise UnfitError("the total is not the mask's length")
        batch = _batch(scope, mask)
    except UnfitError as reason:
        return draft.leave(reason)
    for node in nodes:
        for index, name in _PLACES.items():
            node.input[index] = name
    for name, dims in ((LAST, [batch]), (TOTAL, [])):
        info = helper.make_tensor_value_info(name, TensorProto.INT32, dims)
        draft.model.graph.input.append(info)
    draft.retire(mask)
    return [Site.of(scope, node) for node in nodes]


def _summed(scope: Scope, name: str) -> str:
    """The mask (B,T) whose ones, less one, are ``name`` (B,)."""
    less = made_here(scope, _uncast(scope, name), "Sub")
    if less is not None and numbers_of(scope, less.input[1]) == [1]:
        total = made_here(scope, _uncast(scope, less.input[0]), "ReduceSum")
        axes = numbers_of(scope, total.input[1]) if total is not None and total.input[1:] else []
        if total is not None and axes in ([1], [-1]):
            return _uncast(scope, total.input[0])
    raise UnfitError("valid rows are not the sum of a mask")


def _uncast(scope: Scope, name: str) -> str:
    """What ``name`` was before its type changed."""
    while (cast := made_here(scope, name, "Cast")) is not None:
        name = cast.input[0]
    return name


def _batch(scope: Scope, mask: str) -> int | str | None:
    """B of the input ``mask``, if it is one whose length may vary."""
    dims = scope.input_dims(mask) or ()
    taken = {LAST, TOTAL} & {port.name for port in scope.graph.input}
    if len(dims) != 2 or isinstance(dims[1], int) or taken:
        raise UnfitError("the mask is no input of any length")
    return dims[0]
