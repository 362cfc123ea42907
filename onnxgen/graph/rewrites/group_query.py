"""Attention over a growing cache made ``GroupQueryAttention`` over a shared buffer.

The pattern is that of exports by torch: ``present = Concat(past, new)``, keys and values repeated
for their group of queries, a boolean mask of causality and padding, softmax. The operator reads and
writes the cache where it lies, without repeats, and counts each row's valid tokens from the mask.
All layers are rewritten or none: the cache's mode is one for all of them.

Letters: B batch, S new tokens, P past, T = P+S, N query heads, K heads of keys, D head size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, TensorProto, helper

from onnxgen.graph.lengths import sources
from onnxgen.graph.proto import Scope, attributes
from onnxgen.graph.rewrites.attention import (
    SPLIT,
    SWAP,
    after_softmax,
    heads_of,
    made_here,
    scaled,
    scores_of,
    unsplit,
)
from onnxgen.graph.rewrites.editing import MICROSOFT, Draft, Site

_COMPARES = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Trilu"})
_HIDDEN = -1e4  # what is added to the score of a hidden key is this at most
_DEPTH = 12  # nodes between the heads' split and the product, those of a rotary embedding


@dataclass(frozen=True, slots=True)
class _Layer:
    """One attention: ``query`` (B,N,S,D), new ``key`` and ``value`` (B,K,S,D), its caches."""

    end: NodeProto
    query: str
    key: str
    value: str
    joins: tuple[NodeProto, NodeProto]  # the Concat of keys, and of values
    mask: str
    scale: float
    heads: int
    groups: int
    size: int


def share(draft: Draft) -> list[Site]:
    """Replaces all attentions by ``GroupQueryAttention``; where, nowhere if one does not fit."""
    root = draft.scope
    if draft.scope.children or draft.half:
        return []
    softmaxes = [node for _, node in root.nodes("Softmax")]
    layers = [layer for node in softmaxes if (layer := _layer(root, node)) is not None]
    masks = {layer.mask for layer in layers}
    if not layers or len(layers) < len(softmaxes) or len(masks) > 1:
        return []
    padding = _padding(root, masks.pop())
    pasts = {name for layer in layers for join in layer.joins for name in join.input[:1]}
    if padding is None:
        return []
    before = draft.copy()
    _rewrite(draft, layers, padding)
    uses = {use.node.op_type for name in pasts for use in draft.scope.uses(name)}
    if uses != {"GroupQueryAttention"}:  # positions come from the cache's length
        draft.adopt(before)
        return []
    return [Site.of(draft.scope, node) for _, node in draft.scope.nodes("GroupQueryAttention")]


def _rewrite(draft: Draft, layers: Sequence[_Layer], padding: str) -> None:
    """Carries the rewrite out."""
    last, total = _lengths(draft, padding)
    for layer in layers:
        draft.replace(layer.end, _nodes(draft, layer, last, total))
        for join in layer.joins:
            draft.replace(join, [])
    draft.settle()


def _nodes(draft: Draft, layer: _Layer, last: str, total: str) -> list[NodeProto]:
    """The operator and what brings heads together before it."""
    nodes: list[NodeProto] = []
    flat = []
    parts = ((layer.query, layer.heads), (layer.key, layer.groups), (layer.value, layer.groups))
    for name, heads in parts:
        packed = unsplit(draft.scope, name, SPLIT)
        if packed is None:
            turned, packed = draft.name("turned"), draft.name("packed")
            target = np.array([0, 0, heads * layer.size], np.int64)
            shape = draft.constant(draft.scope, "shape", target)
            nodes.append(helper.make_node("Transpose", [name], [turned], perm=SPLIT))
            nodes.append(helper.make_node("Reshape", [turned, shape], [packed]))
        flat.append(packed)
    pasts = [join.input[0] for join in layer.joins]
    presents = [join.output[0] for join in layer.joins]
    node = helper.make_node(
        "GroupQueryAttention",
        [*flat, *pasts, last, total],
        [layer.end.output[0], *presents],
        draft.name("attention"),
        domain=MICROSOFT,
        num_heads=layer.heads,
        kv_num_heads=layer.groups,
        scale=layer.scale,
    )
    return [*nodes, node]


def _lengths(draft: Draft, padding: str) -> tuple[str, str]:
    """What the operator counts, in the main graph: each row's last valid index, and the total."""
    names = {
        kind: draft.name(kind) for kind in ("sum", "last", "last32", "dims", "total32", "total")
    }
    axis = draft.constant(draft.scope, "axis", np.array([1], np.int64))
    one = draft.constant(draft.scope, "one", np.array(1, np.int64))
    at = draft.constant(draft.scope, "at", np.array(1, np.int64))
    whole = draft.name("mask")
    for node in (
        helper.make_node("Cast", [padding], [whole], to=TensorProto.INT64),
        helper.make_node("ReduceSum", [whole, axis], [names["sum"]], keepdims=0),
        helper.make_node("Sub", [names["sum"], one], [names["last"]]),
        helper.make_node("Cast", [names["last"]], [names["last32"]], to=TensorProto.INT32),
        helper.make_node("Shape", [padding], [names["dims"]]),
        helper.make_node("Gather", [names["dims"], at], [names["total"]]),
        helper.make_node("Cast", [names["total"]], [names["total32"]], to=TensorProto.INT32),
    ):
        draft.put_first(node)
    return names["last32"], names["total32"]


def _layer(scope: Scope, softmax: NodeProto) -> _Layer | None:
    """The attention around ``softmax`` with its caches, if all of it is as it should be."""
    end, value, _ = after_softmax(scope, softmax)
    scores, bias, scale = scores_of(scope, softmax.input[0])
    if end is None or scores is None or not bias:
        return None
    query, factor = scaled(scope, scores.input[0])
    key, other = scaled(scope, scores.input[1])
    swapped = made_here(scope, key, "Transpose")
    if swapped is None or attributes(swapped).get("perm") != SWAP:
        return None
    joins = [_join(scope, name) for name in (swapped.input[0], value)]
    mask = _hiding(scope, bias)
    if joins[0] is None or joins[1] is None or mask is None:
        return None
    dims = [_dims(scope, join.input[0]) for join in joins if join is not None]
    if dims[0] is None or dims[0] != dims[1]:
        return None
    groups, size = dims[0]
    heads = _heads(scope, query, end, size)
    if heads is None or heads % groups:
        return None
    pair = (joins[0], joins[1])
    new_key, new_value = (join.input[1] for join in pair)
    whole = scale * factor * other
    return _Layer(end, query, new_key, new_value, pair, mask, whole, heads, groups, size)


def _join(scope: Scope, name: str) -> NodeProto | None:
    """The ``Concat`` of a cache and new rows behind ``name``, its heads repeated or not."""
    repeated = made_here(scope, name, "Reshape")
    if repeated is not None:
        spread = made_here(scope, repeated.input[0], "Expand")
        raised = made_here(scope, spread.input[0], "Unsqueeze") if spread is not None else None
        axes = scope.value(raised.input[1]) if raised is not None else None
        if raised is None or axes is None or axes.tolist() != [2]:
            return None
        name = raised.input[0]
    join = made_here(scope, name, "Concat")
    if join is None or len(join.input) != 2 or attributes(join).get("axis") not in (-2, 2):
        return None
    return join if join.output[0] in scope.outputs else None


def _hiding(scope: Scope, bias: str) -> str | None:
    """The boolean tensor that says which keys ``bias`` shows; None for a bias of another kind."""
    chosen = made_here(scope, bias, "Where")
    values = [scope.value(name) for name in chosen.input[1:]] if chosen is not None else []
    if chosen is None or any(value is None or value.size != 1 for value in values):
        return None
    shown, hidden = (float(value.reshape(-1)[0]) for value in values if value is not None)
    if shown != 0 or hidden > _HIDDEN:
        return None
    mask: str = chosen.input[0]
    cut = made_here(scope, mask, "Slice")
    if cut is not None:  # to the length of the keys, which the mask has anyway
        start, axes = scope.value(cut.input[1]), scope.value(cut.input[3])
        plain = start is not None and axes is not None and not start.any()
        if not plain or axes is None or axes.tolist() not in ([3], [-1]):
            return None
        mask = cut.input[0]
    return mask


def _padding(scope: Scope, mask: str) -> str | None:
    """The input (B,T) whose values ``mask`` takes in beside causality; None if there is more."""
    found = sources(scope, mask)
    values = {name for how, name in found if how == "value"}
    if len(values) != 1 or not _is_causal(scope, mask):
        return None
    name = values.pop()
    return name if len(scope.input_dims(name) or ()) == 2 else None


def _is_causal(scope: Scope, mask: str) -> bool:
    """Whether places are compared exactly once on the way to ``mask``: a window compares twice."""
    stack, seen, compared = [mask], set(), set()
    while stack:
        name = stack.pop()
        made = scope.maker(name)
        if name in seen or made is None:
            continue
        seen.add(name)
        if made[1].op_type in _COMPARES:
            compared.add(made[1].output[0])
        stack.extend(made[1].input)
    return len(compared) == 1


def _heads(scope: Scope, query: str, end: NodeProto, size: int) -> int | None:
    """How many heads of ``size`` the queries have: by the product behind, or where they split."""
    readers = [use.node for use in scope.uses(end.output[0])]
    products = [node for node in readers if node.op_type in {"MatMul", "Gemm"}]
    if len(readers) == len(products) == 1:
        dims = scope.dims(products[0].input[1])
        transposed = bool(attributes(products[0]).get("transB"))
        if dims is not None and len(dims) == 2 and dims[int(transposed)] % size == 0:
            return dims[int(transposed)] // size
    for _ in range(_DEPTH):
        if (known := heads_of(scope, query)) is not None:
            return known
        made = scope.maker(query)
        computed = [name for name in made[1].input if scope.dims(name) is None] if made else []
        if not computed:
            return None
        query = computed[0]
    return None


def _dims(scope: Scope, past: str) -> tuple[int, int] | None:
    """The heads and head size of a cache input (B,K,P,D), None where they are not static."""
    dims = scope.input_dims(past) or ()
    if len(dims) != 4 or not isinstance(dims[1], int) or not isinstance(dims[3], int):
        return None
    return (dims[1], dims[3]) if dims[1] and dims[3] else None
