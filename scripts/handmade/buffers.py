"""Operators other than GroupQueryAttention that write into a buffer."""

from .blocks import cache_pair, decoder, embed, ids_input, logits, positions_input, rope_tables
from .builder import CONTRIB, Builder
from .variant import Variant, finish, start, variant
from .weights import CAPACITY, Layer, Spec

PARTS = ("query", "key", "value")


@variant
def static_scatter() -> Variant:
    """TensorScatter into caches [B, 64, K*D], Attention over them; no mask.

    Each row writes at its own ``write_indices``; what counts as valid is that plus the new tokens.
    """
    b = start(Spec(), opset=24)
    ids = ids_input(b)
    positions_input(b)
    at = b.input("write_indices", "int64", ["batch_size"])
    tables = rope_tables(b, b.spec.layers[0].key_size)
    valid = b.node("Add", at, b.size(ids, 1))  # [B]

    def store(layer: Layer, kind: str, new: str) -> str:
        width = layer.kv_heads * (layer.key_size if kind == "key" else layer.value_size)
        dims = ["batch_size", CAPACITY, width]
        name = f"{kind}_cache.{layer.index}"
        past, present = b.cache(name, dims, f"updated_{name}", dims)
        return b.node("TensorScatter", past, new, at, out=[present], axis=1)

    def mix(layer: Layer, h: str) -> str:
        query, key, value = (b.linear(h, f"{layer.index}.{part}") for part in PARTS)
        query = b.node("RotaryEmbedding", query, *tables, "position_ids", num_heads=layer.heads)
        key = b.node("RotaryEmbedding", key, *tables, "position_ids", num_heads=layer.kv_heads)
        key, value = store(layer, "key", key), store(layer, "value", value)
        mixed = b.node(
            "Attention",
            *(query, key, value, "", "", "", valid),
            q_num_heads=layer.heads,
            kv_num_heads=layer.kv_heads,
            is_causal=1,
        )
        return b.linear(mixed, f"{layer.index}.out")

    logits(b, decoder(b, embed(b, ids), mix))
    axes = {"seq_axis": [1] * len(b.pairs), "empty_past": False}
    made = finish(b, "in_place", lengths="host", padding="right", capacity=CAPACITY, **axes)
    made.buffer = True
    return made


@variant
def mha_past_length() -> Variant:
    """MultiHeadAttention into a buffer, with one past_sequence_length for all rows; no mask."""
    layers = (Layer(0, kv_heads=4), Layer(1, kv_heads=4))
    b = start(Spec(layers=layers))
    ids = ids_input(b)
    positions_input(b)
    b.input("past_sequence_length", "int32", [1])
    tables = rope_tables(b, layers[0].key_size)

    def mix(layer: Layer, h: str) -> str:
        query, key, value = (b.linear(h, f"{layer.index}.{part}") for part in PARTS)
        query, key = (_rotate(b, x, tables, layer.heads) for x in (query, key))
        (past_key, present_key), (past_value, present_value) = cache_pair(b, layer)
        mixed = b.node(
            "MultiHeadAttention",
            *(query, key, value, "", "", "", past_key, past_value, "past_sequence_length"),
            out=[f"{b.scope}/MultiHeadAttention_output", present_key, present_value],
            num_heads=layer.heads,
            unidirectional=1,
        )
        return b.linear(mixed, f"{layer.index}.out")

    logits(b, decoder(b, embed(b, ids), mix))
    made = finish(b, "in_place", lengths="host", capacity=CAPACITY, empty_past=False)
    made.buffer = True
    return made


def _rotate(b: Builder, x: str, tables: tuple[str, str], heads: int) -> str:
    """``x`` [B, S, H*D] rotated by the contrib operator, which takes positions second."""
    inputs = (x, "position_ids", *tables)
    return b.node("RotaryEmbedding", *inputs, domain=CONTRIB, num_heads=heads)
