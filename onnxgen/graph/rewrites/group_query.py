"""Attention over a growing cache made ``GroupQueryAttention`` over a shared buffer.

The pattern is that of exports by torch: ``present = Concat(past, new)``, keys and values repeated
for their group of queries, a mask of causality and padding, with or without a window, softmax. The
operator reads and writes the cache where it lies, without repeats, and counts each row's valid
tokens from the mask. All layers are rewritten or none: the cache's mode is one for all of them.

Letters: B batch, S new tokens, P past, T = P+S, N query heads, K heads of keys, D head size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, TensorProto, helper

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
from onnxgen.graph.rewrites.editing import MICROSOFT, Draft, Site, UnfitError
from onnxgen.graph.rewrites.masks import padding_of, stripped, window_of
from onnxgen.graph.rewrites.past import count_by_mask

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
    softmaxes = [node for _, node in root.nodes("Softmax")]
    if not softmaxes or not draft.grows:
        return []
    if root.children:
        return draft.leave("the graph has branches")
    if draft.half:
        return draft.leave("weights of half precision round otherwise in another order")
    try:
        layers = [_layer(root, node) for node in softmaxes]
        pasts = {name for layer in layers for join in layer.joins for name in join.input[:1]}
        if len(pasts) < 2 * len(layers):
            raise UnfitError("several attentions share a cache")
        padding = {mask: padding_of(root, mask) for mask in {layer.mask for layer in layers}}
        windows = {mask: window_of(draft, mask, name) for mask, name in padding.items()}
    except UnfitError as reason:
        return draft.leave(reason)
    before = draft.copy()
    count_by_mask(draft, pasts, padding[layers[0].mask])
    _rewrite(draft, layers, windows, padding[layers[0].mask])
    uses = {use.node.op_type for name in pasts for use in draft.scope.uses(name)}
    if uses != {"GroupQueryAttention"}:
        draft.adopt(before)
        return draft.leave("something else reads the cache")
    return [Site.of(draft.scope, node) for _, node in draft.scope.nodes("GroupQueryAttention")]


def _rewrite(
    draft: Draft, layers: Sequence[_Layer], windows: Mapping[str, int | None], padding: str
) -> None:
    """Carries the rewrite out; ``windows``: mask -> how many keys it shows."""
    last, total = _lengths(draft, padding)
    for layer in layers:
        draft.replace(layer.end, _nodes(draft, layer, windows[layer.mask], last, total))
        for join in layer.joins:
            draft.replace(join, [])
    draft.settle()


def _nodes(
    draft: Draft, layer: _Layer, window: int | None, last: str, total: str
) -> list[NodeProto]:
    """The operator and what brings heads together before it."""
    nodes: list[NodeProto] = []
    flat = []
    parts = ((layer.query, layer.heads), (layer.key, layer.groups), (layer.value, layer.groups))
    for name, heads in parts:
        flat.append(pack(draft, name, heads * layer.size, nodes))
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
        local_window_size=window or -1,
    )
    return [*nodes, node]


def pack(draft: Draft, heads: str, width: int, nodes: list[NodeProto]) -> str:
    """``heads`` (B,N,S,D) as (B,S,N*D), of that ``width``; ``nodes`` get what has to be done."""
    packed = unsplit(draft.scope, heads, SPLIT)
    if packed is None:
        turned, packed = draft.name("turned"), draft.name("packed")
        shape = draft.constant(draft.scope, "shape", np.array([0, 0, width], np.int64))
        nodes.append(helper.make_node("Transpose", [heads], [turned], perm=SPLIT))
        nodes.append(helper.make_node("Reshape", [turned, shape], [packed]))
    return packed


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


def _layer(scope: Scope, softmax: NodeProto) -> _Layer:
    """The attention around ``softmax`` with its caches; UnfitError if it is otherwise."""
    end, value, _ = after_softmax(scope, softmax)
    scores, bias, scale = scores_of(scope, softmax.input[0])
    if not bias:
        raise UnfitError("scores have no mask")
    query, factor = scaled(scope, scores.input[0])
    key, other = scaled(scope, scores.input[1])
    swapped = made_here(scope, key, "Transpose")
    if swapped is None or attributes(swapped).get("perm") != SWAP:
        raise UnfitError("keys are turned before they are cached")
    joins = (_join(scope, swapped.input[0]), _join(scope, value))
    dims = [_dims(scope, join.input[0]) for join in joins]
    if dims[0] != dims[1]:
        raise UnfitError("keys and values differ in size")
    groups, size = dims[0]
    heads = _heads(scope, query, end, size)
    if heads % groups:
        raise UnfitError(f"{heads} heads of queries for {groups} of keys")
    new_key, new_value = (join.input[1] for join in joins)
    whole = scale * factor * other
    mask = stripped(scope, bias)
    return _Layer(end, query, new_key, new_value, joins, mask, whole, heads, groups, size)


def _join(scope: Scope, name: str) -> NodeProto:
    """The ``Concat`` of a cache and new rows behind ``name``, its heads repeated or not."""
    repeated = made_here(scope, name, "Reshape")
    if repeated is not None:
        spread = made_here(scope, repeated.input[0], "Expand")
        raised = made_here(scope, spread.input[0], "Unsqueeze") if spread is not None else None
        axes = scope.value(raised.input[1]) if raised is not None else None
        if raised is None or axes is None or axes.tolist() != [2]:
            raise UnfitError("keys or values change between the cache and the product")
        name = raised.input[0]
    join = made_here(scope, name, "Concat")
    if join is None or len(join.input) != 2 or attributes(join).get("axis") not in (-2, 2):
        raise UnfitError("keys or values change between the cache and the product")
    if join.output[0] not in scope.outputs:
        raise UnfitError("what is attended to is not what is cached")
    return join


def _heads(scope: Scope, query: str, end: NodeProto, size: int) -> int:
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
            break
        query = computed[0]
    raise UnfitError("nothing tells how many heads the queries have")


def _dims(scope: Scope, past: str) -> tuple[int, int]:
    """The heads and head size of a cache input (B,K,P,D)."""
    dims = scope.input_dims(past) or ()
    heads, size = (dims[1], dims[3]) if len(dims) == 4 else (None, None)
    if isinstance(heads, int) and isinstance(size, int) and heads and size:
        return heads, size
    raise UnfitError("a cache's heads or their size are not written down")
