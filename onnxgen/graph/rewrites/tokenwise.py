"""Which nodes compute each token's numbers from that token's alone.

Letters: B batch, S new tokens, H hidden size.
"""

from collections.abc import Iterable

from onnx import NodeProto

from onnxgen.graph.proto import Scope, attributes
from onnxgen.graph.rewrites.masks import numbers_of
from onnxgen.graph.roles import NAMES

_ONE = frozenset({
    "Cast", "Erf", "FastGelu", "Gelu", "Identity", "Neg", "QuickGelu", "Reciprocal", "Relu",
    "Sigmoid", "Sqrt", "Tanh",
})  # fmt: skip
_TWO = frozenset({"Add", "Div", "Mul", "Pow", "Sub"})
_NORMS = frozenset({"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"})
_SKIPS = frozenset({"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})
_INDICES = frozenset({"ids", "positions", "token_types"})


class Tokens:
    """The ``names`` of tensors (B,S,...), of a graph's main body, with a place for each new token.

    Only those of which that is certain: a graph's dims may be unsaid, or wrong.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._copies: dict[str, tuple[int, ...]] = {}  # dims of constants in other types
        self.names = {p.name for p in scope.graph.input if NAMES.get(p.name) == "embeds"}
        for node in scope.graph.node:  # in topological order
            dims = self._dims(node.input[0]) if node.op_type in {"Cast", "Identity"} else None
            if dims is not None:
                self._copies[node.output[0]] = dims
            if self._begins(node) or self.computes(node):
                self.names.update(name for name in node.output[:1] if name)
                self.names.update(name for name in node.output[3:] if name and _skips(node))

    def _begins(self, node: NodeProto) -> bool:
        """Whether ``node`` makes such a tensor of others: embeddings, and what attention gives."""
        if node.op_type in {"Gather", "GatherBlockQuantized"}:
            told, ids = attributes(node), node.input[1]
            if NAMES.get(ids) not in _INDICES or told.get("axis") or told.get("gather_axis"):
                return False
            return len(self._scope.input_dims(ids) or ()) == 2 and self._is_table(node.input[0])
        if node.op_type in {"MultiHeadAttention", "RotaryEmbedding"}:
            return node.input[0] in self.names
        return node.op_type == "GroupQueryAttention"

    def computes(self, node: NodeProto) -> bool:
        """Whether ``node`` makes such a tensor of such, for each token from its numbers alone."""
        name, given = node.op_type, node.input
        if name in _ONE or name in _TWO:
            return self._fit(given)
        if name in _NORMS:
            last = attributes(node).get("axis", -1) in (-1, 2)
            return last and given[0] in self.names and self._fit(given)
        if _skips(node):
            return all(one in self.names for one in given[:2]) and self._fit(given)
        if name == "ReduceMean":
            told = attributes(node)
            axes = told.get("axes") or (numbers_of(self._scope, given[1]) if given[1:] else [])
            kept = told.get("keepdims", 1) and list(axes) in ([-1], [2])
            return bool(kept) and given[0] in self.names
        if name == "MatMul":
            return given[0] in self.names and self._is_table(given[1])
        return name == "MatMulNBits" and given[0] in self.names

    def _is_table(self, name: str) -> bool:
        """Whether ``name`` is a constant of two dims: as it is, turned over, or shaped so."""
        made = self._scope.maker(name)
        if made is not None and made[1].op_type == "Reshape":
            return len(numbers_of(self._scope, made[1].input[1])) == 2
        if made is not None and made[1].op_type == "Transpose":
            name = made[1].input[0]
        return len(self._dims(name) or ()) == 2

    def _dims(self, name: str) -> tuple[int, ...] | None:
        """The dims of the constant ``name``, None for what is computed.

        What was noted of the nodes before serves: chains of casts may be of any length.
        """
        tensor = self._scope.tensor(name)
        return self._copies.get(name) if tensor is None else tuple(tensor.dims)

    def _fit(self, given: Iterable[str]) -> bool:
        """Whether one is such a tensor, and so are the others, or alike for all tokens."""
        others = [self._dims(name) for name in given if name and name not in self.names]
        alike = all(dims is not None and all(dim == 1 for dim in dims[:-1]) for dims in others)
        return alike and any(name in self.names for name in given)


def _skips(node: NodeProto) -> bool:
    return node.op_type in _SKIPS


def last_of(scope: Scope, reader: NodeProto, tokens: Tokens) -> list[NodeProto]:
    """``reader``, and before it the nodes that work for it alone, token by token; in order."""
    late, found, told = {id(reader)}, [reader], set(scope.outputs)
    for node in reversed(scope.graph.node):
        uses = [use for name in node.output if name for use in scope.uses(name)]
        own = bool(uses) and all(id(use.node) in late for use in uses)
        if own and told.isdisjoint(node.output) and tokens.computes(node):
            late.add(id(node))
            found.append(node)
    return found[::-1]
