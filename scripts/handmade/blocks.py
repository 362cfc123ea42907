"""The parts that every hand-written decoder shares: embedding, norms, blocks, positions, logits."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from .builder import Builder
from .weights import CAPACITY, ROPE_BASE, Layer

Mixer = Callable[[Layer, str], str]
Tail = Literal["full", "last", "rank2", "keep0", "keep1"]


def ids_input(b: Builder) -> str:
    """The graph input with the new tokens [B, S]."""
    return b.input("input_ids", "int64", ["batch_size", "sequence_length"])


def mask_input(b: Builder, dtype: str = "int64") -> str:
    """The graph input with the mask [B, T]."""
    return b.input("attention_mask", dtype, ["batch_size", "total_sequence_length"])


def positions_input(b: Builder) -> str:
    """The graph input with the positions of the new tokens [B, S]."""
    return b.input("position_ids", "int64", ["batch_size", "sequence_length"])


def embed(b: Builder, ids: str) -> str:
    """Token embeddings [B, S, M] of ``ids`` [B, S]."""
    return b.node("Gather", b.weight("embed"), ids)


def decoder(b: Builder, x: str, mix: Mixer) -> str:
    """All blocks and the last norm over ``x`` [B, S, M]; ``mix`` writes a layer's token mixer."""
    for layer in b.spec.layers:
        x = block(b, layer, x, mix)
    b.scope = "/model"
    return norm(b, "norm", x)


def block(b: Builder, layer: Layer, x: str, mix: Mixer) -> str:
    """One block over ``x`` [B, S, M]: norm, mixer, sum; norm, feed-forward, sum."""
    b.scope = f"/model/layers.{layer.index}/mixer"
    x = b.node("Add", x, mix(layer, norm(b, f"{layer.index}.norm", x)))
    b.scope = f"/model/layers.{layer.index}/mlp"
    return b.node("Add", x, mlp(b, layer, norm(b, f"{layer.index}.mlp.norm", x)))


def mlp(b: Builder, layer: Layer, x: str) -> str:
    """The feed-forward part of a block: up, SiLU, down."""
    inner = b.linear(x, f"{layer.index}.mlp.up")
    inner = b.node("Mul", inner, b.node("Sigmoid", inner))
    return b.linear(inner, f"{layer.index}.mlp.down")


def norm(b: Builder, name: str, x: str) -> str:
    """The norm of ``x`` [B, S, M] in the form that the graph's opset has for it."""
    epsilon = b.spec.epsilon
    if b.spec.norm == "layer":
        bias = b.weight(f"{name}.bias")
        return b.node("LayerNormalization", x, b.weight(name), bias, axis=-1, epsilon=epsilon)
    if b.opset >= 23:
        return b.node("RMSNormalization", x, b.weight(name), axis=-1, epsilon=epsilon)
    square = b.node("ReduceMean", b.node("Mul", x, x), b.constant([-1]))
    root = b.node("Sqrt", b.node("Add", square, b.real(epsilon)))
    return b.node("Mul", b.node("Div", x, root), b.weight(name))


def logits(b: Builder, x: str, tail: Tail = "full") -> None:
    """The head over the normed ``x`` [B, S, M], and the output ``logits`` in the form ``tail``.

    ``last`` is [B, 1, V], ``rank2`` [B, V], both of the last column; ``keep0`` and ``keep1`` take
    the number of columns from the input ``num_logits_to_keep`` of rank 0 or shape [1], 0 for all.
    """
    columns: str | int = "sequence_length"
    if tail in ("last", "rank2"):
        x, columns = b.slice(x, -1, 2**31 - 1, 1), 1
    if tail in ("keep0", "keep1"):
        x, columns = _keep_columns(b, x, tail == "keep0"), "num_logits"
    if tail == "rank2":
        whole = b.linear(x, "head")
        b.node("Squeeze", whole, b.constant([1]), out=["logits"])
        b.output("logits", b.dtype, ["batch_size", b.spec.vocab])
        return
    b.node("MatMul", x, b.weight("head"), out=["logits"])
    b.output("logits", b.dtype, ["batch_size", columns, b.spec.vocab])


def _keep_columns(b: Builder, x: str, scalar: bool) -> str:
    kept = b.input("num_logits_to_keep", "int64", [] if scalar else [1])
    start = b.node("Neg", b.unsqueeze(kept, 0) if scalar else kept)  # -0 starts at the first
    return b.node("Slice", x, start, b.constant([2**31 - 1]), b.constant([1]))


def rope_angles(size: int) -> np.ndarray:
    """Angles of one position step for heads of ``size`` D: [D/2]."""
    half = size // 2
    return ROPE_BASE ** (-np.arange(half) / half)


def rope_tables(b: Builder, size: int) -> tuple[str, str]:
    """Initializers [C, D/2], the cos and sin of ``CAPACITY`` positions for heads of ``size``."""
    angles = np.arange(CAPACITY)[:, None] * rope_angles(size)
    tail = "" if size == b.spec.layers[0].key_size else f"_{size}"
    cos = b.table(f"cos_cache{tail}", np.cos(angles).astype(b.dtype))
    return cos, b.table(f"sin_cache{tail}", np.sin(angles).astype(b.dtype))


def cache_pair(
    b: Builder, layer: Layer, size: str | None = None
) -> tuple[tuple[str, str], tuple[str, str]]:
    """The key and value caches [B, K, P, D] of a layer, (past, present) each.

    ``size`` names the last dim where the graph leaves it open.
    """
    pairs = []
    for kind, width in (("key", layer.key_size), ("value", layer.value_size)):
        before = ["batch_size", layer.kv_heads, "past_sequence_length", size or width]
        after = ["batch_size", layer.kv_heads, "total_sequence_length", size or width]
        past = f"past_key_values.{layer.index}.{kind}"
        pairs.append(b.cache(past, before, f"present.{layer.index}.{kind}", after))
    return pairs[0], pairs[1]
