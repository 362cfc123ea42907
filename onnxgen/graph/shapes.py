"""The shape of each cache: which axis is the batch, which grows, and the sizes of the others.

Sizes come from the declared dims; behind symbolic ones from the attention node's attributes and
the widths of its projections; config.json is the last resort.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from onnxgen.errors import UnsupportedModelError
from onnxgen.graph import lengths
from onnxgen.graph.caches import Join, Path
from onnxgen.graph.proto import Graph, Port, attributes

MAX_ROW_BYTES = 2**30  # of one token in one cache; what claims more means to exhaust the memory
ITEM_BYTES = {
    "float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "int8": 1, "uint8": 1,
    "float8e4m3fn": 1, "float8e5m2": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CacheSlot:
    """One cache: the pair of input and output, and its shape with the axes of B and P."""

    input: str
    output: str
    dtype: str
    elem_type: int
    join: Join
    layer: int
    kind: str  # "key", "value", "key_value", or the name of the state
    sizes: tuple[int, ...]  # 1 at the batch axis, 0 at the sequence axis
    batch_axis: int
    seq_axis: int | None
    batch_factor: int = 1  # cache rows per row of the batch: heads, where they are folded into B
    fixed_length: int | None = None  # a declared static length of the sequence axis
    window: int | None = None
    evicts: bool = False  # rows that leave the window are dropped from the cache

    def shape(self, batch: int, length: int = 0) -> tuple[int, ...]:
        """The shape for ``batch`` rows (B) and ``length`` cached tokens (P)."""
        return _shape(self.sizes, self.batch_axis, self.seq_axis, batch * self.batch_factor, length)

    def room(self, capacity: int) -> int:
        """Columns of a buffer in place for ``capacity`` tokens.

        A cache that drops what leaves its window wants room for the window at least.
        """
        return self.fixed_length or max(capacity, (self.window or 0) * self.evicts)

    def row_bytes(self, length: int) -> int:
        """Bytes of one row with ``length`` cached tokens."""
        return prod(self.shape(1, length)) * ITEM_BYTES[self.dtype]


@lru_cache(maxsize=1024)  # the slots of a model share few shapes, and each step asks for all
def _shape(
    sizes: tuple[int, ...], batch_axis: int, seq_axis: int | None, rows: int, length: int
) -> tuple[int, ...]:
    dims = list(sizes)
    dims[batch_axis] = rows
    if seq_axis is not None:
        dims[seq_axis] = length
    return tuple(dims)


def slot(graph: Graph, name: str, path: Path, config: Mapping[str, Any]) -> CacheSlot:
    """The cache that input ``name`` and ``path`` are the ends of."""
    port = graph.inputs[name]
    if port.dtype not in ITEM_BYTES:
        raise UnsupportedModelError(
            f"cache input {name!r} is of type {port.dtype}",
            wanted=f"one of {', '.join(ITEM_BYTES)}",
            do="export the model again with float caches",
        )
    seq = None if path.join is Join.STATE else _seq_axis(graph, port, path)
    batch = _batch_axis(port, seq)
    sizes, factor = [], 1
    for axis, dim in enumerate(port.shape):
        if axis == batch:
            factor = _batch_factor(graph, dim, config)
            sizes.append(1)
        elif axis == seq:
            sizes.append(0)
        elif isinstance(dim, int) and dim > 0:
            sizes.append(dim)
        else:
            sizes.append(_hidden_size(graph, port, axis, path, config))
    length = port.shape[seq] if seq is not None else None
    node = attributes(path.node) if path.node else {}
    window = node.get("local_window_size", -1)
    found = CacheSlot(
        input=name,
        output=path.output,
        dtype=port.dtype,
        elem_type=port.elem_type,
        join=path.join,
        layer=_layer(name),
        kind=_kind(name, path),
        sizes=tuple(sizes),
        batch_axis=batch,
        seq_axis=seq,
        batch_factor=factor,
        fixed_length=length if isinstance(length, int) and length > 0 else None,
        window=window if window > 0 else None,
        evicts=bool(node.get("sliding_window_cache", 0)),
    )
    if found.row_bytes(1) > MAX_ROW_BYTES:
        raise UnsupportedModelError(
            f"one token in the cache {name!r} takes {found.row_bytes(1)} bytes",
            wanted=f"at most {MAX_ROW_BYTES}",
            do="do not trust this model, or export it again",
        )
    return found


def _seq_axis(graph: Graph, port: Port, path: Path) -> int:
    """The axis of cached tokens: the joining operator's, else the one where the dims differ."""
    if path.seq_axis is not None:
        return path.seq_axis % len(port.shape)
    out = graph.outputs[path.output].shape
    differ = [
        i
        for i, (past, present) in enumerate(zip(port.shape, out, strict=True))
        if past != present and not isinstance(past, int)
    ]
    return differ[-1] if differ else len(port.shape) - 2


def _batch_axis(port: Port, seq: int | None) -> int:
    """The first axis of symbolic size that is not the sequence; axis 0 if all are static."""
    for axis, dim in enumerate(port.shape):
        if axis != seq and not isinstance(dim, int) and (axis == 0 or port.shape[0] == 2):
            return axis
    return 0


def _batch_factor(graph: Graph, dim: int | str | None, config: Mapping[str, Any]) -> int:
    """How many cache rows one row of the batch has, where heads are folded into the batch axis."""
    if isinstance(dim, int) or dim is None or not re.search(r"[*]| x |head", dim):
        return 1
    if number := re.search(r"(?:[*]|\bx\b)\s*(\d+)|(\d+)\s*(?:[*]|\bx\b)", dim):
        return int(number[1] or number[2])
    for key in ("num_attention_heads", "n_head", "num_heads", "n_heads"):
        if isinstance(config.get(key), int):
            return int(config[key])
    raise UnsupportedModelError(
        f"the batch axis {dim!r} of the caches holds heads, and their number is unsaid",
        wanted="num_attention_heads or n_head in config.json",
        do="put the model's config.json beside the graph",
    )


def _hidden_size(graph: Graph, port: Port, axis: int, path: Path, config: Mapping[str, Any]) -> int:
    """A size other than B and P behind a symbolic dim."""
    declared = graph.outputs[path.output].shape[axis] if path.output else None
    if isinstance(declared, int) and declared > 0:
        return declared
    node = attributes(path.node) if path.node else {}
    if axis == 1 and (heads := node.get("kv_num_heads") or node.get("num_heads")):
        return int(heads)
    if axis == len(port.shape) - 1 and path.node is not None:
        if size := _head_size(graph, port, path):
            return size
        if isinstance(config.get("head_dim"), int):
            return int(config["head_dim"])
        width, heads = config.get("hidden_size"), config.get("num_attention_heads")
        if isinstance(width, int) and isinstance(heads, int) and heads > 0:
            return width // heads
    raise UnsupportedModelError(
        f"the size of axis {axis} of cache input {port.name!r} {list(port.shape)} is unsaid",
        wanted="a declared size, or head_dim in config.json",
        do="put the model's config.json beside the graph, or export with fixed head sizes",
    )


def _head_size(graph: Graph, port: Port, path: Path) -> int | None:
    """D from the width of the projections behind the operator that joins old and new."""
    if path.node is None:
        return None
    if path.join is Join.CONCAT and isinstance(heads := port.shape[1], int):
        widths = [lengths.width_of(path.scope, name) for name in path.node.input]
        return next((width // heads for width in widths if width), None)
    if path.node.op_type != "GroupQueryAttention":
        return None
    node = attributes(path.node)
    heads, kv_heads = int(node["num_heads"]), int(node["kv_num_heads"])
    query, key = path.node.input[0], path.node.input[1]
    if key and (width := lengths.width_of(graph.scope, key)):
        return width // kv_heads
    width = lengths.width_of(graph.scope, query)
    return width // (heads if key else heads + 2 * kv_heads) if width else None


def _layer(name: str) -> int:
    numbers = re.findall(r"\d+", name)
    return int(numbers[-1]) if numbers else 0


def _kind(name: str, path: Path) -> str:
    words = [w for w in re.findall(r"[a-z_]+", name.replace("past_key_values", "").lower()) if w]
    text = "_".join(words).strip("_")
    for kind in ("key_value", "conv", "ssm", "recurrent", "key", "value"):
        if kind in text:
            return kind
    return "state" if path.join is Join.STATE else "cache"
