"""How attention counts its valid rows, and what else the graph derives from its inputs.

GroupQueryAttention reads ``seqlens_k`` (its input 5: valid rows - 1, new ones included) and writes
new keys behind the valid rows. Whether the mask's *values* or only its *length* stand behind that
number decides whether rows of unequal length may share a batch.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from onnx import NodeProto

from onnxgen.graph.proto import VIEWS, Scope, attributes

FEW = 8  # rows of a table that may be another thing than one of positions


class Lengths(StrEnum):
    """What stands behind the count of valid rows."""

    VALUES = "mask values"  # ones are counted per row
    MASK_LENGTH = "mask length"  # the mask's second dim: equal for all rows
    PAST_LENGTH = "past length"  # the cache's own dim: a longer buffer would count as valid
    HOST = "host"  # an input of the graph
    POSITIONS = "positions"  # the last position + 1


def sources(scope: Scope, name: str) -> set[tuple[str, str]]:
    """The graph inputs that tensor ``name`` comes from, each with how: by ``value`` or ``shape``.

    ``shape`` where every way from the input passes a ``Shape`` operator.
    """
    found: set[tuple[str, str]] = set()
    stack, seen = [(scope, name, "value")], set()
    while stack:
        here, tensor, how = stack.pop()
        if (tensor, how) in seen or not tensor:
            continue
        seen.add((tensor, how))
        made = here.maker(tensor)
        if made is None:
            if here.tensor(tensor) is None:
                found.add((how, tensor))
            continue
        where, node = made
        how = "shape" if node.op_type in {"Shape", "Size"} else how
        stack.extend((where, source, how) for source in node.input)
        if node.op_type == "If":
            index = list(node.output).index(tensor)
            for owner, _, body in where.children:
                if owner is node:
                    stack.append((body, body.outputs[index], how))
    values = {name for how, name in found if how == "value"}
    return {(how, name) for how, name in found if how == "value" or name not in values}


def count_of(scope: Scope, name: str, roles: Mapping[str, str]) -> Lengths | None:
    """What the tensor ``name`` (a ``seqlens_k`` or a total) counts; ``roles`` maps inputs to roles.

    None where it counts nothing that grows, which no sound export does.
    """
    found = {(how, roles.get(source, "host")) for how, source in sources(scope, name)}
    if ("value", "mask") in found:
        return Lengths.VALUES
    if ("value", "positions") in found:
        return Lengths.POSITIONS
    if any(how == "value" for how, _ in found):
        return Lengths.HOST
    if ("shape", "cache") in found:
        return Lengths.PAST_LENGTH
    if ("shape", "mask") in found:
        return Lengths.MASK_LENGTH
    return None


def reads_values(scope: Scope, name: str) -> bool:
    """Whether anything but the shape of tensor ``name`` is used."""
    for use in scope.uses(name):
        if use.node.op_type in {"Shape", "Size"}:
            continue
        if use.node.op_type in VIEWS | {"Slice", "Gather"} and use.index == 0:
            if any(reads_values(use.scope, output) for output in use.node.output):
                return True
            continue
        return True
    return False


def counts_mask(scope: Scope, mask: str) -> bool:
    """Whether the graph takes its positions from the running sum of the mask's values.

    Not so if an angle of a rotary embedding comes from the shapes alone: these see no mask.
    """
    sums = [sources(where, node.input[0]) for where, node in scope.nodes("CumSum")]
    return any(("value", mask) in found for found in sums) and not _by_shape(_angles(scope))


def counts_shapes(scope: Scope) -> bool:
    """Whether positions come from shapes alone and so are those of all rows of a batch."""
    rows = [(w, node.input[1]) for w, node in scope.nodes("Gather") if places(w, node.input[0])]
    return _by_shape([*_angles(scope), *rows])


def places(scope: Scope, name: str) -> int:
    """How many positions ``name`` has a row for; 0 if it is no table, or one of a few rows."""
    dims = scope.dims(name) or ()
    return dims[0] if len(dims) == 2 and dims[0] >= FEW else 0


def _angles(scope: Scope) -> list[tuple[Scope, str]]:
    return [(where, node.input[0]) for where, node in scope.nodes("Cos", "Sin")]


def _by_shape(tensors: Iterable[tuple[Scope, str]]) -> bool:
    found = (sources(where, name) for where, name in tensors)
    return any(ways and all(how == "shape" for how, _ in ways) for ways in found)


def table_rows(scope: Scope, name: str) -> list[int]:
    """Row counts of the table ``name``, one for each branch where an ``If`` chooses it."""
    dims = scope.dims(name)
    if dims:
        return [dims[0]]
    made = scope.maker(name)
    if made is None:
        return []
    where, node = made
    if node.op_type == "If":
        index = list(node.output).index(name)
        bodies = [body for owner, _, body in where.children if owner is node]
        return [rows for body in bodies for rows in table_rows(body, body.outputs[index])]
    if node.op_type in VIEWS:
        return table_rows(where, node.input[0])
    return []


def width_of(scope: Scope, name: str) -> int | None:
    """The last dim of tensor ``name``, read from the weights that made it."""
    for _ in range(32):
        made = scope.maker(name)
        if made is None:
            return None
        scope, node = made
        if width := _made_width(scope, node, name):
            return width
        name = node.input[0]
    return None


def _made_width(scope: Scope, node: NodeProto, output: str) -> int | None:
    """The width that ``node`` gives its ``output`` by its own weights or attributes."""
    if node.op_type == "Split":
        sizes = scope.value(node.input[1]) if len(node.input) > 1 else attributes(node).get("split")
        return int(sizes[list(node.output).index(output)]) if sizes is not None else None
    if node.op_type in {"MatMulNBits", "MatMulBnb4"}:
        return next((a.i for a in node.attribute if a.name == "N"), None)
    if node.op_type in {"MatMul", "MatMulInteger", "DynamicQuantizeMatMul", "Gemm"}:
        dims = scope.dims(node.input[1])
        transposed = any(a.name == "transB" and a.i for a in node.attribute)
        return (dims[-2] if transposed else dims[-1]) if dims else None
    return None
