"""Caches that are not two tensors [B, K, P, D] a layer."""

import numpy as np

from . import primitives as p
from .blocks import decoder, embed, ids_input, logits, mask_input, positions_input
from .builder import CONTRIB, Builder
from .reference import slopes
from .variant import Variant, finish, start, variant
from .weights import CAPACITY, Layer, Spec


@variant
def transposed_key() -> Variant:
    """As old Bloom: keys [B*H, D, P], values [B*H, P, D]; ALiBi counts the ones of the mask."""
    layers = (Layer(0, kv_heads=4), Layer(1, kv_heads=4))
    b = start(Spec(layers=layers, positions="alibi", norm="layer"))
    ids = ids_input(b)
    mask_input(b)
    rows, many = {}, "batch_size * num_heads"
    for layer in layers:
        for kind, axis in (("key", 2), ("value", 1)):
            before, after = [many, layer.key_size], [many, layer.key_size]
            before.insert(axis, "past_sequence_length")
            after.insert(axis, "total_sequence_length")
            past, present = f"past_key_values.{layer.index}.{kind}", f"present.{layer.index}.{kind}"
            rows[layer.index, kind] = b.cache(past, before, present, after)
    new, past = b.size(ids, 1), p.past_size(b, axis=2)
    bias = p.mask_bias(b, p.columns(b, past, new))
    bias = b.node("Add", bias, alibi_of_mask(b, layers[0].heads))
    new, total = b.unsqueeze(new, 0), b.size("attention_mask", 1, keep=True)

    def mix(layer: Layer, h: str) -> str:
        n, d = layer.heads, layer.key_size
        query, key, value = (p.project(b, layer, h, part) for part in ("query", "key", "value"))
        query = _shape(b, query, -1, new, d)  # [B*H, S, D]
        key = _shape(b, b.node("Transpose", key, perm=[0, 1, 3, 2]), -1, d, new)  # [B*H, D, S]
        key = p.grown(b, key, rows[layer.index, "key"], 2)
        value = p.grown(b, _shape(b, value, -1, new, d), rows[layer.index, "value"], 1)
        scores = b.node("Mul", b.node("MatMul", query, key), b.real(d**-0.5))
        scores = b.node("Add", _shape(b, scores, -1, n, new, total), bias)  # [B, H, S, T]
        weights = _shape(b, b.node("Softmax", scores, axis=-1), -1, new, total)
        mixed = _shape(b, b.node("MatMul", weights, value), -1, n, new, d)
        flat = b.reshape(b.node("Transpose", mixed, perm=[0, 2, 1, 3]), 0, 0, n * d)
        return b.linear(flat, f"{layer.index}.out")

    logits(b, decoder(b, embed(b, ids), mix))
    made = finish(b, "append", padding="any")
    made.config["n_head"] = layers[0].heads  # dim 0 of the caches has no number
    return made


def _shape(b: Builder, x: str, *dims: int | str) -> str:
    """``x`` reshaped to dims that are numbers or tensors [1]."""
    parts = [b.constant([dim]) if isinstance(dim, int) else dim for dim in dims]
    return b.node("Reshape", x, b.node("Concat", *parts, axis=0))


def alibi_of_mask(b: Builder, heads: int) -> str:
    """ALiBi [B, H, 1, T]: how many ones of the mask came before a key, times the slope."""
    count = b.node("CumSum", "attention_mask", b.constant(1))
    place = b.node("Mul", b.node("Sub", count, b.constant([[1]])), "attention_mask")  # [B, T]
    slope = b.real(slopes(heads)[None, :, None, None])
    return b.node("Mul", slope, b.unsqueeze(b.cast(place, b.dtype), 1, 2))


@variant
def packed_key_value() -> Variant:
    """As old GPT-BigCode: one key and value head in one cache [B, P, 2*D] a layer."""
    layers = (Layer(0, kv_heads=1), Layer(1, kv_heads=1))
    b = start(Spec(layers=layers, positions="learned", norm="layer"))
    ids = ids_input(b)
    mask_input(b)
    places = positions_input(b)
    pairs = {}
    for layer in layers:
        width, name = layer.key_size + layer.value_size, f"{layer.index}.key_value"
        before = ["batch_size", "past_sequence_length", width]
        after = ["batch_size", "total_sequence_length", width]
        pairs[layer.index] = b.cache(f"past_key_values.{name}", before, f"present.{name}", after)
    bias = p.mask_bias(b, p.columns(b, p.past_size(b, axis=1), b.size(ids, 1)))

    def mix(layer: Layer, h: str) -> str:
        query = p.project(b, layer, h, "query")
        new = [b.linear(h, f"{layer.index}.{part}") for part in ("key", "value")]
        both = p.grown(b, b.node("Concat", *new, axis=-1), pairs[layer.index], 1)  # [B, T, 2*D]
        parts = [f"{b.scope}/Split_output_{n}" for n in range(2)]
        widths = b.constant([layer.key_size, layer.value_size])
        b.node("Split", b.unsqueeze(both, 1), widths, out=parts, axis=-1)  # [B, 1, T, D] each
        keys_t = b.node("Transpose", parts[0], perm=[0, 1, 3, 2])
        return p.attend(b, layer, query, keys_t, parts[1], bias)

    x = b.node("Add", embed(b, ids), b.node("Gather", b.weight("place"), places))
    logits(b, decoder(b, x, mix))
    made = finish(b, "append", padding="any", capacity=CAPACITY)
    made.config["max_position_embeddings"] = CAPACITY
    return made


@variant
def packed_past() -> Variant:
    """As ONNX Runtime's GPT-2 tools: contrib Attention, past [2, B, H, P, D], an int32 mask."""
    layers = (Layer(0, kv_heads=4), Layer(1, kv_heads=4))
    b = start(Spec(layers=layers, positions="learned", norm="layer"))
    ids = ids_input(b)
    mask_input(b, "int32")
    places = positions_input(b)

    def mix(layer: Layer, h: str) -> str:
        i = layer.index
        before: list[int | str] = [2, "batch_size", layer.heads, "past_sequence_length"]
        after: list[int | str] = [2, "batch_size", layer.heads, "total_sequence_length"]
        size = layer.key_size
        past, present = b.cache(f"past_{i}", [*before, size], f"present_{i}", [*after, size])
        parts = [b.weights[f"{i}.{part}"] for part in ("query", "key", "value")]
        weight = b.table(f"model.{i}.qkv.weight", np.concatenate(parts, axis=1))  # [M, 3*M]
        zeros = b.table(f"model.{i}.qkv.bias", np.zeros(3 * b.spec.hidden, b.dtype))
        mixed = b.node(
            "Attention",
            *(h, weight, zeros, "attention_mask", past),
            out=[f"{b.scope}/Attention_output", present],
            domain=CONTRIB,
            num_heads=layer.heads,
            unidirectional=1,
        )
        return b.linear(mixed, f"{i}.out")

    x = b.node("Add", embed(b, ids), b.node("Gather", b.weight("place"), places))
    logits(b, decoder(b, x, mix))
    made = finish(b, "append", padding="any", capacity=CAPACITY)
    made.config["max_position_embeddings"] = CAPACITY
    return made
