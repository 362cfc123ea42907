"""Attention of many small operators made one ``MultiHeadAttention``.

The pattern is ``softmax(scale * Q K^T + bias) V`` with heads split before and joined after it,
whatever makes the bias: a causal mask, padding, relative positions. Caches stay as they are, so
the graph's interface does too.

Letters: B batch, S queries, T keys, N heads, D head size.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from onnxgen.graph.lengths import sources
from onnxgen.graph.proto import Scope, attributes
from onnxgen.graph.rewrites.editing import MICROSOFT, Draft, Site, UnfitError
from onnxgen.graph.rewrites.reshapes import elements, is_number

SPLIT, SPLIT_KEY, SWAP = [0, 2, 1, 3], [0, 2, 3, 1], [0, 1, 3, 2]  # permutations of axes
_OTHERWISE = "attention weights are used for more than a product with values"


@dataclass(frozen=True, slots=True)
class Core:
    """One attention: ``end`` is the node that gives (B,S,N*D); key and value are both (B,T,N*D)
    or, ``split``, (B,N,T,D)."""

    scope: Scope
    end: NodeProto
    query: str
    key: str
    value: str
    split: bool
    bias: str
    scale: float
    heads: int


def fuse(draft: Draft) -> list[Site]:
    """Replaces attentions by ``MultiHeadAttention``; where.

    Not in graphs of half precision: sums in another order are other numbers there, and on the CPU,
    where they run in single precision between casts, nothing is gained.
    """
    cores = []
    for scope, node in draft.scope.nodes("Softmax"):
        try:
            if draft.half:
                raise UnfitError("weights of half precision round otherwise in another order")
            cores.append(_core(scope, node))
        except UnfitError as reason:
            draft.leave(reason)
    for core in cores:
        inputs = [core.query, core.key, core.value, "", "", core.bias]
        node = helper.make_node(
            "MultiHeadAttention",
            inputs if core.bias else inputs[:3],
            list(core.end.output),
            draft.name("attention"),
            domain=MICROSOFT,
            num_heads=core.heads,
            scale=core.scale,
        )
        draft.replace(core.end, [node])
    return [Site.of(core.scope, core.end) for core in cores]


def _core(scope: Scope, softmax: NodeProto) -> Core:
    """The attention around ``softmax``; UnfitError if something of it is otherwise."""
    if attributes(softmax).get("axis", -1) not in (-1, 3):
        raise UnfitError("a softmax over another axis than the last")
    end, value, guarded = after_softmax(scope, softmax)
    scores, bias, scale = scores_of(scope, softmax.input[0])
    if bias and guarded and _masks_rows(scope, bias):
        raise UnfitError("a query that attends to nothing gives 0, the operator a mean")
    query, factor = scaled(scope, scores.input[0])
    key, other = scaled(scope, scores.input[1])
    if (packed := unsplit(scope, query, SPLIT)) is None:
        raise UnfitError("queries change after their heads were split")
    flat_key, flat_value = unsplit(scope, key, SPLIT_KEY), unsplit(scope, value, SPLIT)
    swapped = made_here(scope, key, "Transpose")
    if flat_key and flat_value:
        heads = heads_of(scope, query)
        pair, split = (flat_key, flat_value), False
        alike = heads_of(scope, value)
    elif swapped is not None and attributes(swapped).get("perm") == SWAP:
        pair, split = (swapped.input[0], value), True
        alike, heads = heads_of(scope, value), heads_of(scope, swapped.input[0])
        query_heads = heads_of(scope, query)
        if query_heads is not None and query_heads != heads:
            raise UnfitError("queries have other heads than keys")
    else:
        raise UnfitError("keys or values change after their heads were split")
    if heads is None or heads != alike:
        raise UnfitError("nothing tells how many heads the keys have")
    whole = scale * factor * other
    return Core(scope, end, packed, *pair, split, bias, whole, heads)


def after_softmax(scope: Scope, softmax: NodeProto) -> tuple[NodeProto, str, bool]:
    """The node that joins the heads again, the values, and whether NaN became 0 in between."""
    probabilities, guarded = softmax.output[0], False
    readers = [use.node for use in scope.uses(probabilities)]
    # A cast to what they are changes nothing; weights that are an output stay where they are.
    while probabilities not in scope.outputs and [*map(_casts_to, readers)] == [TensorProto.FLOAT]:
        probabilities = readers[0].output[0]
        readers = [use.node for use in scope.uses(probabilities)]
    if sorted(node.op_type for node in readers) == ["IsNaN", "Where"]:
        guard = next(node for node in readers if node.op_type == "Where")
        zero = scope.value(guard.input[1])
        if zero is None or zero.any() or guard.input[2] != probabilities:
            raise UnfitError(_OTHERWISE)
        probabilities, guarded = guard.output[0], True
    product = _only_reader(scope, probabilities, "MatMul")
    if product.input[0] != probabilities:
        raise UnfitError(_OTHERWISE)
    joined = _only_reader(scope, product.output[0], "Transpose")
    if attributes(joined).get("perm") != SPLIT:
        raise UnfitError("heads are not joined behind the values")
    end = _only_reader(scope, joined.output[0], "Reshape")
    if len(elements(scope, end.input[1]) or ()) != 3:
        raise UnfitError("heads are not joined behind the values")
    return end, product.input[1], guarded


def _casts_to(node: NodeProto) -> int | None:
    """The type that ``node`` casts to, None if it is no cast."""
    return attributes(node)["to"] if node.op_type == "Cast" else None


def scores_of(scope: Scope, name: str) -> tuple[NodeProto, str, float]:
    """The product of queries and keys, what is added to it, and what it is multiplied with."""
    bias = ""
    added = made_here(scope, name, "Add")
    if added is not None:
        first, second = added.input
        products = [made_here(scope, scaled(scope, side)[0], "MatMul") for side in (first, second)]
        if (products[0] is None) == (products[1] is None):
            raise UnfitError("scores are not a product and what is added to it")
        name, bias = (first, second) if products[0] is not None else (second, first)
    name, scale = scaled(scope, name)
    product = made_here(scope, name, "MatMul")
    if product is None:
        raise UnfitError("scores are not a product and what is added to it")
    return product, bias, scale


def scaled(scope: Scope, name: str) -> tuple[str, float]:
    """The tensor before multiplications with numbers, and their product."""
    scale = 1.0
    while (made := scope.maker(name)) is not None and made[0] is scope:
        node = made[1]
        number: np.ndarray[Any, Any] | None = None
        if node.op_type in {"Mul", "Div"}:
            number, rest = scope.value(node.input[1]), node.input[0]
            if number is None and node.op_type == "Mul":
                number, rest = scope.value(node.input[0]), node.input[1]
        if number is None or number.size != 1:
            break
        factor = float(number.reshape(-1)[0])
        scale, name = scale * (factor if node.op_type == "Mul" else 1 / factor), rest
    return name, scale


def unsplit(scope: Scope, name: str, perm: list[int]) -> str | None:
    """The (B,S,N*D) tensor whose heads were split to make ``name``; None if it was not so."""
    moved = made_here(scope, name, "Transpose")
    if moved is None or attributes(moved).get("perm") != perm:
        return None
    split = made_here(scope, moved.input[0], "Reshape")
    if split is None or len(elements(scope, split.input[1]) or ()) != 4:
        return None
    source = str(split.input[0])
    return source if _width(scope, source) is not None else None  # else it may have other axes


def heads_of(scope: Scope, name: str) -> int | None:
    """How many heads the tensor ``name`` (B,N,T,D) has, if the graph says so."""
    made = scope.maker(name)
    if made is None:
        dims = scope.input_dims(name) or ()
        return dims[1] or None if len(dims) == 4 and isinstance(dims[1], int) else None
    node = made[1]
    if node.op_type == "Concat":
        found = {heads_of(made[0], part) for part in node.input} - {None}
        return found.pop() if len(found) == 1 else None
    if node.op_type != "Transpose" or attributes(node).get("perm") not in (SPLIT, SPLIT_KEY):
        return None
    split = made_here(made[0], node.input[0], "Reshape")
    parts = elements(made[0], split.input[1]) if split is not None else None
    if split is None or not parts or len(parts) != 4:
        return None
    if isinstance(parts[2], int) and parts[2] > 0:
        return parts[2]
    width = _width(made[0], split.input[0])
    size = parts[3]
    return width // size if width and isinstance(size, int) and size > 0 else None


def _width(scope: Scope, name: str) -> int | None:
    """The last dim of ``name``, from the weights that made it."""
    while (made := scope.maker(name)) is not None:
        node = made[1]
        if node.op_type in {"MatMul", "MatMulInteger"}:
            dims = scope.dims(node.input[1])
            return dims[-1] if dims else None
        if node.op_type not in {"Add", "Mul", "Cast", "Identity"}:
            return None
        sides = [scope.dims(side) for side in node.input]
        for dims in sides:
            if dims and len(dims) == 1 and dims[0] > 1:
                return dims[0]
        computed = [
            side
            for side, dims in zip(node.input, sides, strict=True)
            if dims is None and not is_number(scope, side)
        ]
        if len(computed) != 1 and node.op_type != "Cast":
            return None
        name = computed[0] if computed else node.input[0]
    return None


def _masks_rows(scope: Scope, bias: str) -> bool:
    """Whether ``bias`` may hide every key of a query, which then attends to nothing.

    The values of an input have to say so; a causal mask alone leaves each query itself.
    """
    return any(how == "value" for how, _ in sources(scope, bias))


def made_here(scope: Scope, name: str, op_type: str) -> NodeProto | None:
    """The node of this body that makes ``name``, if it is of this operator."""
    made = scope.maker(name)
    if made is None or made[0] is not scope or made[1].op_type != op_type:
        return None
    return made[1]


def _only_reader(scope: Scope, name: str, op_type: str) -> NodeProto:
    """The one node that reads ``name`` and is of this operator; outputs are read by callers."""
    readers = [use.node for use in scope.uses(name)]
    if len(readers) != 1 or readers[0].op_type != op_type or name in scope.outputs:
        raise UnfitError(_OTHERWISE)
    return readers[0]
