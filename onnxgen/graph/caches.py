"""Which inputs are caches, and which output replaces each in the next step.

A cache input is paired with the output that the same operator makes of it: the attention that
appends to it, the ``Concat``, the scatter, or, for a recurrent state, the nearest output of the
same shape. Only what structure leaves open is paired by name.

Letters: B batch, P past, H heads, D head size.
"""

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from onnx import NodeProto

from onnxgen.errors import UnsupportedModelError
from onnxgen.graph.lengths import sources
from onnxgen.graph.proto import VIEWS, Graph, Port, Scope, Use, attributes


class Join(StrEnum):
    """How new rows meet a cache."""

    GQA = "GroupQueryAttention"  # writes behind the valid rows of a shared buffer
    SHARED_MHA = "MultiHeadAttention with past_sequence_length"  # likewise, one length for all
    SCATTER = "scatter"  # writes where write_indices says
    ATTENTION = "Attention"  # appends, the result is one longer
    CONCAT = "Concat"  # appends
    STATE = "state"  # replaces: convolution and recurrent states
    CROSS = "cross-attention"  # computed once from the encoder, then kept


SHARED = frozenset({Join.GQA, Join.SHARED_MHA, Join.SCATTER})
GROWN = frozenset({Join.ATTENTION, Join.CONCAT})

# Operator -> {input that takes a cache: output that returns it}, see the operators' schemas.
ATTENTIONS = {
    ("com.microsoft", "GroupQueryAttention"): {3: 1, 4: 2},
    ("com.microsoft", "MultiHeadAttention"): {6: 1, 7: 2},
    ("com.microsoft", "DecoderMaskedMultiHeadAttention"): {5: 1, 6: 2},
    ("com.microsoft", "SparseAttention"): {3: 1, 4: 2},
    ("com.microsoft", "Attention"): {4: 1},
    ("com.microsoft", "DecoderMaskedSelfAttention"): {4: 1},
    ("ai.onnx", "Attention"): {4: 1, 5: 2},
}
PAST_LENGTH_INPUT = {"MultiHeadAttention": 8, "DecoderMaskedMultiHeadAttention": 7}
STATEFUL = {"LinearAttention": {3: 1}, "CausalConvWithState": {3: 1}}


@dataclass(frozen=True, slots=True)
class Path:
    """The way of a cache from its input to an output."""

    output: str  # "" for a cross-attention cache that another graph computes
    join: Join
    node: NodeProto | None  # the operator that joins old and new
    scope: Scope
    seq_axis: int | None  # of the input, None for states and where a reshape hides it


@dataclass(frozen=True, slots=True)
class _Reach:
    """A tensor on the way: ``axes[i]`` is the axis of the input that its axis i was."""

    scope: Scope
    name: str
    axes: tuple[int, ...] | None
    join: Join | None = None
    node: NodeProto | None = None
    seq_axis: int | None = None


def pair(graph: Graph, role_of: Mapping[str, str]) -> dict[str, Path]:
    """Every cache input of ``graph`` with its path; ``role_of`` names the inputs of other roles."""
    floats = [p for p in graph.inputs.values() if p.name not in role_of and len(p.shape) >= 3]
    tokens = {name for name, role in role_of.items() if role in {"ids", "embeds"}}
    paths = {p.name: path for p in floats if (path := _join_path(graph, p))}
    twice = {o for o, n in Counter(path.output for path in paths.values()).items() if n > 1}
    paths = {name: path for name, path in paths.items() if path.output not in twice}
    free = set(graph.outputs) - {path.output for path in paths.values()}
    for port in floats:
        if port.name not in paths and (path := _cross_path(graph, port, free, tokens)):
            paths[port.name] = path
            free.discard(path.output)
    for port in floats:
        if port.name not in paths and (output := _nearest(graph, port, free)):
            paths[port.name] = Path(output, Join.STATE, None, graph.scope, None)
            free.discard(output)
    for port in floats:
        if port.name not in paths and (output := _namesake(graph, port, free)):
            paths[port.name] = Path(output, *_by_dims(port, graph.outputs[output], graph.scope))
            free.discard(output)
    for port in floats:
        if port.name not in paths and re.search(r"past|cache", port.name):
            raise UnsupportedModelError(
                f"cache input {port.name!r} of {graph.path.name} has no output that returns it",
                wanted="for each cache input an output with the cache after the step",
                do="export the model again with its present outputs",
            )
    return paths


def _join_path(graph: Graph, port: Port) -> Path | None:
    """The shortest path of views from ``port`` through one joining operator to an output."""
    start = _Reach(graph.scope, port.name, tuple(range(len(port.shape))))
    queue, seen = deque([start]), {port.name}
    while queue:
        here = queue.popleft()
        if here.scope is graph.scope and here.name in graph.outputs and here.join:
            out = graph.outputs[here.name]
            if out.elem_type == port.elem_type and len(out.shape) == len(port.shape):
                return Path(here.name, here.join, here.node, graph.scope, here.seq_axis)
        for use in here.scope.uses(here.name):
            for reach in _onward(here, use):
                key = f"{id(reach.scope)}:{reach.name}"
                if key not in seen:
                    seen.add(key)
                    queue.append(reach)
        queue.extend(_out_of_body(here))
    return None


def _cross_path(graph: Graph, port: Port, free: set[str], tokens: set[str]) -> Path | None:
    """The path of a cross-attention cache: no new token ever reaches what it holds.

    The graph of the first step gives it; the branch, or the graph, of later steps hands it back,
    gives something empty in its place, or nothing.
    """
    output = _namesake(graph, port, free)
    if output is None:
        if not re.search(r"past|cache", port.name) or _meets_join(graph, port):
            return None
    elif any(how == "value" and name in tokens for how, name in sources(graph.scope, output)):
        return None
    symbolic = [axis for axis, dim in enumerate(port.shape) if axis and not isinstance(dim, int)]
    usual = len(port.shape) - 2
    axis = usual if usual in symbolic or not symbolic else symbolic[0]
    return Path(output or "", Join.CROSS, None, graph.scope, axis)


def _meets_join(graph: Graph, port: Port) -> bool:
    """Whether an operator joins new rows to the cache ``port``."""
    start = _Reach(graph.scope, port.name, tuple(range(len(port.shape))))
    queue, seen = deque([start]), {port.name}
    while queue:
        here = queue.popleft()
        for use in here.scope.uses(here.name):
            for reach in _onward(here, use):
                if reach.join:
                    return True
                key = f"{id(reach.scope)}:{reach.name}"
                if key not in seen:
                    seen.add(key)
                    queue.append(reach)
    return False


def _onward(here: _Reach, use: Use) -> Iterator[_Reach]:
    """Where the tensor ``here`` goes through ``use``, if it stays the cache."""
    node, op = use.node, use.node.op_type
    ports = ATTENTIONS.get((node.domain or "ai.onnx", op)) or STATEFUL.get(op)
    if ports:
        if use.index in ports and len(node.output) > ports[use.index]:
            join = _attention_join(node)
            axis = None if join is Join.STATE else (3 if ports == {4: 1} else 2)
            axis = here.axes[axis] if here.axes and axis is not None else axis
            yield _Reach(use.scope, node.output[ports[use.index]], here.axes, join, node, axis)
    elif op == "Transpose" and here.axes:
        perm = attributes(node).get("perm") or tuple(reversed(range(len(here.axes))))
        axes = tuple(here.axes[p] for p in perm)
        yield _Reach(use.scope, node.output[0], axes, here.join, here.node, here.seq_axis)
    elif op in {"Identity", "Cast"}:
        yield _Reach(use.scope, node.output[0], here.axes, here.join, here.node, here.seq_axis)
    elif op in VIEWS and use.index == 0:
        yield _Reach(use.scope, node.output[0], None, here.join, here.node, here.seq_axis)
    elif op == "Concat" and here.join is None:
        axis = here.axes[attributes(node)["axis"]] if here.axes else None
        yield _Reach(use.scope, node.output[0], here.axes, Join.CONCAT, node, axis)
    elif op == "Concat":  # parts stacked again into one output
        yield _Reach(use.scope, node.output[0], None, here.join, here.node, here.seq_axis)
    elif op in {"TensorScatter", "ScatterND", "ScatterElements"} and use.index == 0:
        axis = attributes(node).get("axis", -2 if op == "TensorScatter" else 1)
        axis = here.axes[axis] if here.axes else None
        yield _Reach(use.scope, node.output[0], here.axes, Join.SCATTER, node, axis)
    elif op == "Slice" and use.index == 0 and here.join is Join.CONCAT:
        yield _Reach(use.scope, node.output[0], here.axes, Join.STATE, node, None)
    elif op in {"Split", "Gather", "Slice"} and use.index == 0 and here.join is None:
        for output in node.output:
            yield _Reach(use.scope, output, None, None, None, None)


def _attention_join(node: NodeProto) -> Join:
    if node.op_type == "GroupQueryAttention":
        return Join.GQA
    if node.op_type in STATEFUL:
        return Join.STATE
    index = PAST_LENGTH_INPUT.get(node.op_type)
    if index is not None and len(node.input) > index and node.input[index]:
        return Join.SHARED_MHA
    return Join.ATTENTION


def _out_of_body(here: _Reach) -> Iterator[_Reach]:
    """The output of the ``If`` whose body ends in the tensor ``here``."""
    parent = here.scope.parent
    if parent is None or here.name not in here.scope.outputs:
        return
    index = here.scope.outputs.index(here.name)
    for node, _, child in parent.children:
        if child is here.scope:
            name = node.output[index]
            yield _Reach(parent, name, here.axes, here.join, here.node, here.seq_axis)


def _nearest(graph: Graph, port: Port, free: set[str]) -> str | None:
    """The one output of the port's shape that is fewest operators away, through any operator."""
    fits = {
        name
        for name in free
        if graph.outputs[name].elem_type == port.elem_type
        and [d for d in graph.outputs[name].shape if isinstance(d, int)]
        == [d for d in port.shape if isinstance(d, int)]
        and len(graph.outputs[name].shape) == len(port.shape)
    }
    frontier, seen = {port.name}, {port.name}
    while frontier and fits:
        if found := frontier & fits:
            return found.pop() if len(found) == 1 else None
        step = {
            output
            for name in frontier
            for use in graph.scope.uses(name)
            if use.node.op_type != "Shape"
            for output in use.node.output
        }
        frontier = step - seen
        seen |= frontier
    return None


def _namesake(graph: Graph, port: Port, free: set[str]) -> str | None:
    found = [name for name in free if stem(name) == stem(port.name)]
    return found[0] if len(found) == 1 else None


def stem(name: str) -> tuple[str, ...]:
    """What past and present of one cache share: ``past_key_values.3.key`` -> ("3", "key")."""
    name = name.replace("past_key_values", "").replace("present", "").replace("past", "")
    words = re.findall(r"[A-Za-z]+|\d+", name)
    return tuple(sorted(w for w in words if w not in {"updated", "cache", "out", "in", "new"}))


def _by_dims(port: Port, out: Port, scope: Scope) -> tuple[Join, None, Scope, int | None]:
    """How a cache paired by name grows: along the one axis where past and present differ."""
    differ = [i for i, (a, b) in enumerate(zip(port.shape, out.shape, strict=False)) if a != b]
    if not differ:
        return Join.STATE, None, scope, None
    return Join.CONCAT, None, scope, differ[-1]
