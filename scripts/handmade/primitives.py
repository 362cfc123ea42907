"""Attention written out in MatMul and Softmax, as exporters trace it from PyTorch."""

import numpy as np

from .blocks import rope_angles
from .builder import Builder
from .weights import Layer

Pair = tuple[str, str]
LOWEST = float(np.finfo(np.float32).min)


def past_size(b: Builder, axis: int = 2) -> str:
    """P, from the dim ``axis`` of the first cache; rank 0."""
    return b.size(b.pairs[0][0], axis)


def columns(b: Builder, past: str, new: str) -> Pair:
    """Indices of the new tokens [S] and of all rows [T] of the cache, from P and S of rank 0."""
    total, one = b.node("Add", past, new), b.constant(1)
    return b.node("Range", past, total, one), b.node("Range", b.constant(0), total, one)


def mask_bias(b: Builder, rows: Pair, window: int = 0, mask: str = "attention_mask") -> str:
    """The additive mask [B, 1, S, T]: 0 where a token sees a row, else the lowest number.

    A token sees the rows up to its own, of those the last ``window`` if that is not 0, where the
    mask [B, T] is not 0.
    """
    new, every = b.unsqueeze(rows[0], 1), b.unsqueeze(rows[1], 0)  # [S, 1], [1, T]
    seen = b.node("LessOrEqual", every, new)  # [S, T]
    if window:
        recent = b.node("Greater", every, b.node("Sub", new, b.constant(window)))
        seen = b.node("And", seen, recent)
    kept = b.unsqueeze(b.cast(mask, "bool"), 1, 2)  # [B, 1, 1, T]
    return b.node("Where", b.node("And", seen, kept), b.real(0.0), b.real(LOWEST))


def angles(b: Builder, positions: str, size: int) -> Pair:
    """cos and sin [B, 1, S, D] for heads of ``size`` D at ``positions`` [B, S]."""
    steps = b.real(rope_angles(size)[None, None])  # [1, 1, D/2]
    turns = b.node("Mul", b.unsqueeze(b.cast(positions, b.dtype), 2), steps)
    both = b.unsqueeze(b.node("Concat", turns, turns, axis=-1), 1)
    return b.node("Cos", both), b.node("Sin", both)


def angles3(b: Builder, positions: str, size: int, sections: tuple[int, ...]) -> Pair:
    """cos and sin [B, 1, S, D] at ``positions`` [3, B, S]; each row turns its section of D/2."""
    steps = b.real(rope_angles(size)[None, None, None])  # [1, 1, 1, D/2]
    turns = b.node("Mul", b.unsqueeze(b.cast(positions, b.dtype), 3), steps)  # [3, B, S, D/2]
    parts = [f"{b.scope}/Split_output_{n}" for n in range(3)]
    b.node("Split", turns, b.constant(sections), out=parts, axis=-1)
    chosen = [b.node("Gather", part, b.constant(n), axis=0) for n, part in enumerate(parts)]
    both = b.unsqueeze(b.node("Concat", *chosen, *chosen, axis=-1), 1)
    return b.node("Cos", both), b.node("Sin", both)


def rotate(b: Builder, x: str, turn: Pair, size: int) -> str:
    """``x`` [B, H, S, D] rotated: x cos + (its halves swapped, one negated) sin."""
    first, second = b.slice(x, 0, size // 2, -1), b.slice(x, size // 2, size, -1)
    swapped = b.node("Concat", b.node("Neg", second), first, axis=-1)
    return b.node("Add", b.node("Mul", x, turn[0]), b.node("Mul", swapped, turn[1]))


def heads(b: Builder, x: str, count: int, size: int) -> str:
    """[B, S, H*D] -> [B, H, S, D]."""
    return b.node("Transpose", b.reshape(x, 0, 0, count, size), perm=[0, 2, 1, 3])


def project(b: Builder, layer: Layer, x: str, part: str) -> str:
    """The query, key or value [B, H, S, D] of ``x`` [B, S, M]."""
    count = layer.heads if part == "query" else layer.kv_heads
    size = layer.value_size if part == "value" else layer.key_size
    return heads(b, b.linear(x, f"{layer.index}.{part}"), count, size)


def repeat(b: Builder, x: str, layer: Layer, size: int) -> str:
    """[B, K, T, D] -> [B, H, T, D], each head as often as queries share it."""
    group = layer.heads // layer.kv_heads
    if group == 1:
        return x
    wide = b.node("Expand", b.unsqueeze(x, 2), b.constant([1, 1, group, 1, 1]))
    return b.reshape(wide, 0, layer.heads, -1, size)


def attend(b: Builder, layer: Layer, query: str, keys_t: str, value: str, bias: str) -> str:
    """Softmax attention and its output projection: [B, S, M].

    ``query`` [B, H, S, D], ``keys_t`` [B, H, D, T], ``value`` [B, H, T, E], ``bias`` [B, ., S, T].
    """
    scores = b.node("Mul", b.node("MatMul", query, keys_t), b.real(layer.key_size**-0.5))
    weights = b.node("Softmax", b.node("Add", scores, bias), axis=-1)
    mixed = b.node("Transpose", b.node("MatMul", weights, value), perm=[0, 2, 1, 3])
    flat = b.reshape(mixed, 0, 0, layer.heads * layer.value_size)
    return b.linear(flat, f"{layer.index}.out")


def grown(b: Builder, new: str, pair: Pair, axis: int) -> str:
    """``new`` after the cache's past along ``axis``: the cache's present.

    Either may be "": without a past the present is what is new, without both there is no cache.
    """
    past, present = pair
    if not past:
        return b.node("Identity", new, out=[present]) if present else new
    return b.node("Concat", past, new, out=[present], axis=axis)


def attention(
    b: Builder, layer: Layer, x: str, caches: tuple[Pair, Pair], bias: str, turn: Pair | None
) -> str:
    """A layer's attention with caches [B, K, P, D] that grow by Concat."""
    query, key, value = (project(b, layer, x, part) for part in ("query", "key", "value"))
    if turn:
        query, key = (rotate(b, part, turn, layer.key_size) for part in (query, key))
    key, value = grown(b, key, caches[0], 2), grown(b, value, caches[1], 2)
    return over(b, layer, query, key, value, bias)


def over(b: Builder, layer: Layer, query: str, key: str, value: str, bias: str) -> str:
    """Attention of ``query`` [B, H, S, D] over ``key`` and ``value`` [B, K, T, D]."""
    keys_t = b.node("Transpose", repeat(b, key, layer, layer.key_size), perm=[0, 1, 3, 2])
    return attend(b, layer, query, keys_t, repeat(b, value, layer, layer.value_size), bias)
