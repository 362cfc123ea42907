"""Graphs around com.microsoft GroupQueryAttention: every way to count the valid rows."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .blocks import (
    Tail,
    cache_pair,
    decoder,
    embed,
    ids_input,
    logits,
    mask_input,
    positions_input,
    rope_tables,
)
from .builder import CONTRIB, Builder
from .primitives import LOWEST, Pair
from .variant import Variant, finish, start, variant
from .weights import CAPACITY, Layer, Spec

Lengths = Callable[[Builder], tuple[str, str]]
WIDE = Spec(layers=(Layer(0, key_size=16, value_size=16), Layer(1, key_size=16, value_size=16)))
"""The operator wants heads of a multiple of 16."""


def values(b: Builder) -> tuple[str, str]:
    """seqlens_k [B] from the ones of each mask row, the total from the mask's length."""
    ones = b.node("ReduceSum", "attention_mask", b.constant([1]), keepdims=0)
    last = b.node("Sub", ones, b.constant([1]))
    return b.cast(last, "int32"), mask_total(b)


def mask_total(b: Builder) -> str:
    """total_sequence_length from the mask's length."""
    return b.cast(b.size("attention_mask", 1), "int32")


def mask_length(b: Builder) -> tuple[str, str]:
    """Both lengths from the mask's length; its values are never read."""
    last = b.node("Sub", b.size("attention_mask", 1, keep=True), b.constant([1]))
    rows = b.node("Expand", last, b.size("attention_mask", 0, keep=True))
    return b.cast(rows, "int32"), mask_total(b)


def past_length(b: Builder) -> tuple[str, str]:
    """Both lengths from the past's length and the number of new tokens."""
    first = b.spec.layers[0].index
    past = b.size(f"past_key_values.{first}.key", 2, keep=True)
    total = b.node("Add", past, b.size("input_ids", 1, keep=True))
    last, batch = b.node("Sub", total, b.constant([1])), b.size("input_ids", 0, keep=True)
    rows = b.node("Expand", last, batch)
    return b.cast(rows, "int32"), b.cast(b.node("Squeeze", total, b.constant([0])), "int32")


def host(b: Builder) -> tuple[str, str]:
    """Both lengths are graph inputs."""
    rows = b.input("seqlens_k", "int32", ["batch_size"])
    return rows, b.input("total_sequence_length", "int32", [])


def positions(b: Builder) -> tuple[str, str]:
    """seqlens_k from each row's greatest position."""
    last = b.node("ReduceMax", "position_ids", b.constant([1]), keepdims=0)
    return b.cast(last, "int32"), mask_total(b)


def values_only(b: Builder) -> tuple[str, str]:
    """seqlens_k as in :func:`values`, the total from the longest row's ones."""
    ones = b.node("ReduceSum", "attention_mask", b.constant([1]), keepdims=0)  # [B]
    last = b.cast(b.node("Sub", ones, b.constant([1])), "int32")
    return last, b.cast(b.node("ReduceMax", ones, keepdims=0), "int32")


def mask_values_bias(b: Builder) -> str:
    """attention_bias [B, 1, S, T]: the lowest number where the mask is 0."""
    new, total = b.size("input_ids", 1, keep=True), b.size("attention_mask", 1, keep=True)
    dims = b.node("Concat", b.constant([1, 1]), new, total, axis=0)
    kept = b.node("Expand", b.unsqueeze(b.cast("attention_mask", "bool"), 1, 2), dims)
    return b.node("Where", kept, b.real(0.0), b.real(LOWEST))


def gqa(
    b: Builder,
    layer: Layer,
    x: str,
    lengths: tuple[str, str],
    *,
    fused: bool = True,
    packed: bool = False,
    bias: bool = False,
    size: str | None = None,
    caches: tuple[Pair, Pair] | None = None,
) -> str:
    """A layer's attention by one GroupQueryAttention node, and its output projection.

    The caches are declared here if they are not given.
    """
    i = layer.index
    query, key, value = (b.linear(x, f"{i}.{part}") for part in ("query", "key", "value"))
    cos, sin = rope_tables(b, layer.key_size)
    if not fused:
        query, key = (unfused(b, part, cos, sin, n) for part, n in _with_heads(layer, query, key))
    if packed:
        query, key, value = b.node("Concat", query, key, value, axis=-1), "", ""
    caches = caches or cache_pair(b, layer, size)
    (past_key, present_key), (past_value, present_value) = caches
    tables = (cos, sin) if fused else ("", "")
    more = mask_values_bias(b) if bias else ""
    inputs = [query, key, value, past_key, past_value, *lengths, *tables, "", more]
    while not inputs[-1]:
        inputs.pop()
    mixed = b.node(
        "GroupQueryAttention",
        *inputs,
        out=[f"{b.scope}/GroupQueryAttention/output_0", present_key, present_value],
        num_heads=layer.heads,
        kv_num_heads=layer.kv_heads,
        scale=layer.key_size**-0.5,
        local_window_size=layer.window or -1,
        do_rotary=int(fused),
        rotary_interleaved=0,
    )
    return b.linear(mixed, f"{i}.out")


def _with_heads(layer: Layer, query: str, key: str) -> list[tuple[str, int]]:
    return [(query, layer.heads), (key, layer.kv_heads)]


def unfused(b: Builder, x: str, cos: str, sin: str, heads: int) -> str:
    """``x`` [B, S, H*D] rotated by the contrib RotaryEmbedding at ``position_ids``."""
    return b.node("RotaryEmbedding", x, "position_ids", cos, sin, domain=CONTRIB, num_heads=heads)


def gqa_decoder(
    spec: Spec, lengths: Lengths = values, *, fused: bool = True, tail: Tail = "full", **wiring: Any
) -> Builder:
    """A whole decoder of GroupQueryAttention layers, ready for :func:`counted`.

    The lengths come last: a way to count may read any input, the caches too.
    """
    b = start(spec)
    ids = ids_input(b)
    if lengths is not host:
        mask_input(b)
    if not fused:
        positions_input(b)
    x = embed(b, ids)
    b.scope = "/model/lengths"
    rows = lengths(b)
    hidden = decoder(b, x, lambda layer, h: gqa(b, layer, h, rows, fused=fused, **wiring))
    logits(b, hidden, tail)
    return b


def counted(b: Builder, lengths: str = "values", **facts: Any) -> Variant:
    """The variant of a decoder that counts ``lengths``; unequal rows may be padded right."""
    usual: dict[str, Any] = {"padding": "right", "total": "mask_length", "capacity": CAPACITY}
    return finish(b, "in_place", lengths=lengths, **usual | facts)


@variant
def gqa_values() -> Variant:
    """Valid rows from the mask's values: ragged rows, padded right."""
    return counted(gqa_decoder(WIDE))


@variant
def gqa_mask_length() -> Variant:
    """Valid rows from the mask's length: equal rows only."""
    return counted(gqa_decoder(WIDE, mask_length), "mask_length", padding=None)


@variant
def gqa_past_length() -> Variant:
    """Valid rows from the past's length: a longer buffer would count as valid, so it grows."""
    b = gqa_decoder(WIDE, past_length)
    return finish(b, "grow", lengths="past_length", total="past_length", capacity=CAPACITY)


@variant
def gqa_host() -> Variant:
    """Both lengths are inputs; there is no mask."""
    return counted(gqa_decoder(WIDE, host), "host", total="host")


@variant
def gqa_positions() -> Variant:
    """Valid rows from the greatest position; the rotary embedding has its own nodes."""
    return counted(gqa_decoder(WIDE, positions, fused=False), "positions")


@variant
def gqa_total_from_values() -> Variant:
    """Both lengths from the mask's values: the mask may be as long as the buffer."""
    return counted(gqa_decoder(WIDE, values_only), total="values")


@variant
def gqa_window() -> Variant:
    """The first layer sees five tokens, its own among them."""
    first, second = WIDE.layers
    return counted(gqa_decoder(replace(WIDE, layers=(replace(first, window=5), second))))


@variant
def gqa_bias() -> Variant:
    """The mask's values also go into attention_bias: the ones must stand left, without holes."""
    return counted(gqa_decoder(WIDE, bias=True))


@variant
def gqa_packed_qkv() -> Variant:
    """Query, key and value in one tensor."""
    return counted(gqa_decoder(WIDE, packed=True))


@variant
def mixed_heads() -> Variant:
    """Layers 0 and 3, of different heads and sizes, each with cos and sin tables of its own."""
    layers = (
        Layer(0, heads=4, kv_heads=2, key_size=16, value_size=16),
        Layer(3, heads=2, kv_heads=1, key_size=32, value_size=32),
    )
    return counted(gqa_decoder(Spec(layers=layers)))
