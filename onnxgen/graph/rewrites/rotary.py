"""Rotary embeddings of many operators made one, where ``GroupQueryAttention`` takes what they turn.

The pattern is that of transformers: ``x * cos + [-x2, x1] * sin``, x1 and x2 the halves of each
head. Cosines and sines stay as the graph computes them, from whatever positions; the operator takes
them as a table with a row for each token of a run.

Letters: B batch, S new tokens, N heads, D head size.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from onnxgen.graph.proto import Scope, attributes
from onnxgen.graph.rewrites.attention import SPLIT, made_here
from onnxgen.graph.rewrites.editing import MICROSOFT, Draft, Site, UnfitError
from onnxgen.graph.rewrites.group_query import pack
from onnxgen.graph.rewrites.masks import numbers_of

_OTHERWISE = "heads are turned in part, by pairs or by other angles"


@dataclass(frozen=True, slots=True)
class _Turn:
    """One embedding: of ``heads`` (B,N,S,D) by ``angles``, the cosines and sines (B,S,D)."""

    heads: str
    angles: tuple[str, str]
    count: int  # N
    size: int  # D


def turn(draft: Draft) -> list[Site]:
    """Replaces what turns the queries and keys of attentions by ``RotaryEmbedding``; where."""
    scope = draft.scope
    nodes = [node for _, node in scope.nodes("GroupQueryAttention")]
    if not nodes or scope.children or not _has_angles(scope):
        return []
    if draft.half:
        return draft.leave("weights of half precision round otherwise in another operator")
    turns: dict[str, _Turn] = {}  # by what the attention takes, (B,S,N*D)
    sites = []
    for node in nodes:
        try:
            turns |= dict(_turns(scope, node))
        except UnfitError as reason:
            draft.leave(reason)
            continue
        sites.append(Site.of(scope, node))
    tables: dict[tuple[str, str], list[str]] = {}
    for node in scope.graph.node:
        if found := turns.get(node.output[0]):
            made: list[NodeProto] = []
            if found.angles not in tables:
                tables[found.angles] = _tables(draft, found, made)
            draft.replace(node, [*made, *_nodes(draft, found, tables[found.angles], node.output)])
    return sites


def _has_angles(scope: Scope) -> bool:
    """Whether anything is turned here: by angles that are computed, or looked up in tables."""
    crossed = (use for _, node in scope.nodes("Neg") for use in scope.uses(node.output[0]))
    return any(use.node.op_type == "Concat" for use in crossed) or any(scope.nodes("Cos"))


def _turns(scope: Scope, attention: NodeProto) -> Iterator[tuple[str, _Turn]]:
    """What turns the queries and the keys of ``attention``; UnfitError if it is otherwise."""
    told, dims = attributes(attention), scope.input_dims(attention.input[3]) or ()
    for index, count in ((0, told["num_heads"]), (1, told["kv_num_heads"])):
        packed = made_here(scope, attention.input[index], "Reshape")
        turned = made_here(scope, packed.input[0], "Transpose") if packed is not None else None
        size = dims[3] if len(dims) == 4 else None
        if turned is None or attributes(turned).get("perm") != SPLIT or not isinstance(size, int):
            raise UnfitError(_OTHERWISE)
        yield attention.input[index], _Turn(*_parts(scope, turned.input[0]), count, size)


def _parts(scope: Scope, name: str) -> tuple[str, tuple[str, str]]:
    """The heads that ``name`` (B,N,S,D) are once turned, and the cosines and sines."""
    total = made_here(scope, name, "Add")
    sides = [made_here(scope, side, "Mul") for side in total.input] if total is not None else []
    for one, other in (sides, sides[::-1]) if len(sides) == 2 else ():
        if one is None or other is None:
            continue
        for heads, cosines in (one.input, one.input[::-1]):
            for crossed, sines in (other.input, other.input[::-1]):
                if _crosses(scope, crossed, heads):
                    return heads, (_angles(scope, cosines), _angles(scope, sines))
    raise UnfitError(_OTHERWISE)


def _crosses(scope: Scope, name: str, heads: str) -> bool:
    """Whether ``name`` joins two parts of ``heads``, the first of them negated.

    Where the parts begin is often computed: that they are halves, and turn by the same angles, is
    for the check to tell.
    """
    joined = made_here(scope, name, "Concat")
    if joined is None or attributes(joined).get("axis") not in (-1, 3) or len(joined.input) != 2:
        return False
    negated = made_here(scope, joined.input[0], "Neg")
    parts = [negated.input[0] if negated is not None else "", joined.input[1]]
    slices = [made_here(scope, part, "Slice") for part in parts]
    return all(part is not None and part.input[0] == heads for part in slices)


def _angles(scope: Scope, name: str) -> str:
    """The cosines or sines (B,S,D) that ``name`` (B,1,S,D) are."""
    raised = made_here(scope, name, "Unsqueeze")
    if raised is None or not raised.input[1:] or numbers_of(scope, raised.input[1]) != [1]:
        raise UnfitError(_OTHERWISE)
    angles: str = raised.input[0]
    return angles


def _tables(draft: Draft, found: _Turn, nodes: list[NodeProto]) -> list[str]:
    """Rows of tokens (B,S), and the tables (B*S,D/2) that they index, made by new ``nodes``."""

    def add(op_type: str, about: str, *inputs: str, **told: Any) -> str:
        name = draft.name(about)
        nodes.append(helper.make_node(op_type, list(inputs), [name], **told))
        return name

    def numbers(*values: int) -> str:
        return draft.constant(draft.scope, "numbers", np.array(values, np.int64))

    half = found.size // 2
    tables = []
    for angles in found.angles:
        halves = add("Slice", "half", angles, numbers(0), numbers(half), numbers(2))
        tables.append(add("Reshape", "table", halves, numbers(-1, half)))  # (B*S,D/2)
    zero, one = (draft.constant(draft.scope, "number", np.array(i, np.int64)) for i in (0, 1))
    dims = add("Slice", "dims", add("Shape", "shape", found.angles[0]), numbers(0), numbers(2))
    count = add("ReduceProd", "tokens", dims, keepdims=0)
    rows = add("Reshape", "rows", add("Range", "range", zero, count, one), dims)  # (B,S)
    return [rows, *tables]


def _nodes(draft: Draft, found: _Turn, tables: list[str], outputs: list[str]) -> list[NodeProto]:
    """The operator, on heads that are packed (B,S,N*D)."""
    nodes: list[NodeProto] = []
    packed = pack(draft, found.heads, found.count * found.size, nodes)
    operator = helper.make_node(
        "RotaryEmbedding", [packed, *tables], list(outputs), draft.name("turn"), domain=MICROSOFT
    )
    return [*nodes, operator]
