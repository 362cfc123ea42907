"""How many tokens a graph can position: rows of its position tables, static cache lengths."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onnxgen.graph.lengths import places, sources, table_rows
from onnxgen.graph.proto import VIEWS, Graph, Port, Scope, attributes
from onnxgen.graph.shapes import CacheSlot


@dataclass(frozen=True, slots=True)
class Capacity:
    """The bound on a sequence's length, None where the graph sets none, and where it comes from.

    ``switch``: a sequence that starts within it must not cross it, since the graph then changes
    to another rotary table and the cached keys would no longer fit (LongRoPE).
    """

    rows: int | None
    reason: str
    switch: int | None = None


def bound(graph: Graph, inputs: Mapping[str, Port], slots: tuple[CacheSlot, ...]) -> Capacity:
    """The smallest of the bounds that the graph sets."""
    found: list[tuple[int, str]] = []
    switch = None
    for scope, node in graph.scope.nodes("GroupQueryAttention"):
        if attributes(node).get("do_rotary") and len(node.input) > 7 and node.input[7]:
            rows = table_rows(scope, node.input[7])
            if rows:
                found.append((max(rows), "rows of the rotary table"))
                switch = min(rows) if min(rows) < max(rows) else switch
    if "positions" in inputs:
        indexed = _indexed(graph.scope, inputs["positions"].name)
    else:
        indexed = _self_indexed(graph, inputs)
    found += [(rows, "rows of the position table") for rows in indexed]
    for slot in slots:
        if slot.fixed_length:
            found.append((slot.fixed_length, "the cache's static length"))
    if not found:
        return Capacity(None, "the graph sets no bound")
    return Capacity(*min(found), switch)


def _indexed(scope: Scope, name: str, offset: int = 0) -> Iterator[int]:
    """Rows of the constant tables that tensor ``name``, plus a constant, indexes."""
    for use in scope.uses(name):
        node = use.node
        if node.op_type in VIEWS and use.index == 0:
            yield from _indexed(use.scope, node.output[0], offset)
        elif node.op_type == "Add":
            value = use.scope.value(node.input[1 - use.index])
            if value is not None and value.size == 1:
                yield from _indexed(use.scope, node.output[0], offset + int(value.reshape(())))
        elif node.op_type in {"Gather", "RotaryEmbedding"}:
            # com.microsoft: input, position_ids, cos; ai.onnx: X, cos, sin, position_ids
            at = {"": 3, "ai.onnx": 3}.get(node.domain, 1) if node.op_type != "Gather" else 1
            table = {"Gather": 0}.get(node.op_type, 1 if at == 3 else 2)
            dims = use.scope.dims(node.input[table]) if use.index == at else None
            if dims and len(dims) == 2:
                yield dims[0] - offset


def _self_indexed(graph: Graph, inputs: Mapping[str, Port]) -> Iterator[int]:
    """Positions in the tables that are indexed by positions which the graph counts itself."""
    ids = inputs["ids"].name if "ids" in inputs else ""
    for scope, node in graph.scope.nodes("Gather"):
        rows = places(scope, node.input[0])
        if not rows:
            continue
        operators = _operators_behind(scope, node.input[1])
        found = sources(scope, node.input[1])
        counts = ("value", ids) not in found or "CumSum" in operators
        # A logarithm puts far positions into one bucket (T5): such tables have no end.
        if found and counts and "Log" not in operators:
            yield rows - _first(scope, node.input[1])


def _operators_behind(scope: Scope, name: str) -> set[str]:
    """All operators that tensor ``name`` comes from."""
    found, stack, seen = set(), [(scope, name)], set()
    while stack:
        here, tensor = stack.pop()
        made = here.maker(tensor) if tensor and tensor not in seen else None
        seen.add(tensor)
        if made is not None:
            found.add(made[1].op_type)
            stack.extend((made[0], source) for source in made[1].input)
    return found


def _first(scope: Scope, name: str) -> int:
    """Which row of its table the first position ``name`` takes, as far as constants say."""
    offset = 0
    while made := scope.maker(name):
        scope, node = made
        if node.op_type in VIEWS:
            name = node.input[0]
        elif node.op_type in {"Add", "Sub", "Mul"}:
            values = [scope.value(source) for source in node.input]
            number = next((v for v in values if v is not None and v.size == 1), None)
            if number is not None and node.op_type != "Mul":
                offset += int(number.reshape(())) * (1 if node.op_type == "Add" else -1)
            steps = (n for n in node.input if _operators_behind(scope, n) & {"CumSum", "Range"})
            name = next(steps, "")
        else:
            return offset + (node.op_type == "CumSum")  # a running sum starts at 1
    return offset
