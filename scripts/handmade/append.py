"""Graphs whose caches grow by Concat: positions given, or counted from the cache."""

from . import primitives as p
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
from .builder import Builder
from .reference import slopes
from .variant import Variant, finish, start, variant
from .weights import CAPACITY, Layer, Spec

Caches = dict[int, tuple[p.Pair, p.Pair]]


def concat_decoder(spec: Spec, positions: bool, tail: Tail = "full") -> Builder:
    """A decoder with caches that grow; without ``positions`` they are counted from the past."""
    b = start(spec)
    ids = ids_input(b)
    mask_input(b)
    if positions:
        positions_input(b)
    caches = {s.index: cache_pair(b, s) for s in spec.layers if s.kind == "attention"}
    logits(b, concat_body(b, embed(b, ids), caches, p.past_size(b), positions), tail)
    return b


def concat_body(b: Builder, x: str, caches: Caches, past: str, positions: bool = True) -> str:
    """All blocks over the embeddings ``x`` [B, S, M], with ``past`` P rows in the caches.

    A shared layer attends to the presents of its source.
    """
    rows = p.columns(b, past, b.size(x, 1))
    layers = b.spec.layers
    bias = {window: p.mask_bias(b, rows, window) for window in {s.window for s in layers}}
    where = "position_ids" if positions else b.unsqueeze(rows[0], 0)  # [B, S] or [1, S]
    turn: dict[int, p.Pair] = {}
    if b.spec.positions == "rope":
        turn = {size: p.angles(b, where, size) for size in {s.key_size for s in layers}}
    elif b.spec.positions == "alibi":
        bias = {window: b.node("Add", one, key_slopes(b, rows)) for window, one in bias.items()}
    else:
        x = b.node("Add", x, b.node("Gather", b.weight("place"), where))

    def mix(layer: Layer, h: str) -> str:
        seen, angle = bias[layer.window], turn.get(layer.key_size)
        if layer.kind == "attention":
            return p.attention(b, layer, h, caches[layer.index], seen, angle)
        query = p.project(b, layer, h, "query")
        query = p.rotate(b, query, angle, layer.key_size) if angle else query
        key, value = (present for _, present in caches[layer.source])
        return p.over(b, layer, query, key, value, seen)

    return decoder(b, x, mix)


def key_slopes(b: Builder, rows: p.Pair) -> str:
    """ALiBi [1, H, 1, T]: each key's own index times the slope; a row's shift means nothing."""
    slope = b.real(slopes(b.spec.layers[0].heads)[None, :, None, None])
    return b.node("Mul", slope, b.unsqueeze(b.cast(rows[1], b.dtype), 0, 1, 2))


@variant
def concat_positions() -> Variant:
    """Masked attention, positions given: pads may lie anywhere."""
    return finish(concat_decoder(Spec(), positions=True), "append", padding="any")


@variant
def concat_no_positions_rope() -> Variant:
    """Rotary positions from the past's length: pads may lie only left."""
    return finish(concat_decoder(Spec(), positions=False), "grow", padding="left")


@variant
def concat_alibi() -> Variant:
    """ALiBi from the rows of the cache: pads may lie only left."""
    spec = Spec(positions="alibi", norm="layer")
    return finish(concat_decoder(spec, positions=False), "grow", padding="left")


@variant
def concat_learned_positions_from_past() -> Variant:
    """Learned positions from the past's length: equal rows only."""
    spec = Spec(positions="learned", norm="layer")
    made = finish(concat_decoder(spec, positions=False), "grow", capacity=CAPACITY)
    made.config["max_position_embeddings"] = CAPACITY
    return made


@variant
def k_ne_v() -> Variant:
    """Keys of width 8, values of width 12."""
    spec = Spec(layers=(Layer(0, value_size=12), Layer(1, value_size=12)))
    return finish(concat_decoder(spec, positions=True), "append", padding="any")


@variant
def concat_window() -> Variant:
    """The first layer sees five rows of the cache; masked holes would count: pads only left."""
    spec = Spec(layers=(Layer(0, window=5), Layer(1)))
    return finish(concat_decoder(spec, positions=True), "append", padding="left")


@variant
def shared_layer() -> Variant:
    """The second layer attends to the first one's keys and values: fewer caches than layers."""
    spec = Spec(layers=(Layer(0), Layer(1, "shared", source=0)))
    return finish(concat_decoder(spec, positions=True), "append", padding="any")


@variant
def no_cache() -> Variant:
    """Tokens and mask to logits; everything is computed anew in each step."""
    b = start(Spec())
    ids = ids_input(b)
    b.input("attention_mask", "int64", ["batch_size", "sequence_length"])
    none = ("", "")
    caches = {layer.index: (none, none) for layer in b.spec.layers}
    x = embed(b, ids)
    logits(b, concat_body(b, x, caches, b.constant(0), positions=False))
    return finish(b, "none", padding="right")


@variant
def inputs_embeds() -> Variant:
    """The decoder takes embeddings; a second graph, embed_tokens.onnx, makes them of tokens."""
    b = start(Spec())
    x = b.input("inputs_embeds", b.dtype, ["batch_size", "sequence_length", b.spec.hidden])
    mask_input(b)
    positions_input(b)
    caches = {layer.index: cache_pair(b, layer) for layer in b.spec.layers}
    logits(b, concat_body(b, x, caches, p.past_size(b)))
    other = Builder(b.spec, b.weights)
    other.node("Gather", other.weight("embed"), ids_input(other), out=["inputs_embeds"])
    other.output("inputs_embeds", b.dtype, ["batch_size", "sequence_length", b.spec.hidden])
    made = finish(b, "append", padding="any")
    made.others["embed_tokens.onnx"] = other.model()
    return made


@variant
def mrope() -> Variant:
    """Positions [3, B, S], one row each for time, height and width, as Qwen-VL has them."""
    b = start(Spec())
    ids = ids_input(b)
    mask_input(b)
    b.input("position_ids", "int64", [3, "batch_size", "sequence_length"])
    caches = {layer.index: cache_pair(b, layer) for layer in b.spec.layers}
    bias = p.mask_bias(b, p.columns(b, p.past_size(b), b.size(ids, 1)))
    turn = p.angles3(b, "position_ids", b.spec.layers[0].key_size, (2, 1, 1))

    def mix(layer: Layer, h: str) -> str:
        return p.attention(b, layer, h, caches[layer.index], bias, turn)

    logits(b, decoder(b, embed(b, ids), mix))
    return finish(b, "append", padding="any")


DYNAMO = {
    (0, 0): ("key_cache_0", "cat_3"),
    (0, 1): ("value_cache_0", "cat_4"),
    (1, 0): ("past_key_values_key_cache_1", "cat_10"),
    (1, 1): ("past_key_values_value_cache_1", "cat_8"),
}


@variant
def dynamo_names() -> Variant:
    """Caches and dims named as torch's exporter does: only the nodes say what belongs together."""
    b = start(Spec())
    ids = b.input("input_ids", "int64", ["s0", "s1"])
    b.input("attention_mask", "int64", ["s0", "s1 + s2"])
    b.input("position_ids", "int64", ["s0", "s1"])
    made: dict[tuple[int, int], p.Pair] = {}
    for (i, part), (past, present) in DYNAMO.items():
        layer = b.spec.layers[i]
        dims = ["s0", layer.kv_heads, "s2", layer.key_size]
        made[i, part] = b.cache(past, dims, present, [*dims[:2], "s1 + s2", layer.key_size])
    b.outputs.reverse()  # the last layer's value comes first
    caches = {i: (made[i, 0], made[i, 1]) for i in range(2)}
    logits(b, concat_body(b, embed(b, ids), caches, p.past_size(b)))
    many = len(b.pairs)
    return finish(b, "append", padding="any", batch_axis=[0] * many, seq_axis=[2] * many)


@variant
def attention23() -> Variant:
    """ai.onnx Attention of opset 23 with past and present, a bool mask from the padding mask."""
    b = start(Spec(), opset=23)
    ids = ids_input(b)
    mask_input(b)
    positions_input(b)
    tables = rope_tables(b, b.spec.layers[0].key_size)
    kept = b.unsqueeze(b.cast("attention_mask", "bool"), 1, 2)  # [B, 1, 1, T]
    new, total = b.size(ids, 1, keep=True), b.size("attention_mask", 1, keep=True)
    dims = b.node("Concat", b.constant([1, 1]), new, total, axis=0)
    mask = b.node("Expand", kept, dims)  # [B, 1, S, T]

    def mix(layer: Layer, h: str) -> str:
        query, key, value = (b.linear(h, f"{layer.index}.{part}") for part in PARTS)
        sides = ((query, layer.heads), (key, layer.kv_heads))
        query, key = (
            b.node("RotaryEmbedding", x, *tables, "position_ids", num_heads=n) for x, n in sides
        )
        (past_key, present_key), (past_value, present_value) = cache_pair(b, layer)
        mixed = b.node(
            "Attention",
            *(query, key, value, mask, past_key, past_value),
            out=[f"{b.scope}/Attention_output", present_key, present_value],
            q_num_heads=layer.heads,
            kv_num_heads=layer.kv_heads,
            is_causal=1,
        )
        return b.linear(mixed, f"{layer.index}.out")

    logits(b, decoder(b, embed(b, ids), mix))
    return finish(b, "append", padding="any", capacity=CAPACITY)


PARTS = ("query", "key", "value")
