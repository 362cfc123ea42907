"""Layers whose state has a fixed size: a filter's last inputs, a linear attention's matrix."""

from .blocks import decoder, embed, ids_input, logits, mask_input
from .builder import Builder
from .gqa import counted, gqa, values
from .variant import Variant, start, variant
from .weights import Layer, Spec

ATTENTION = Layer(1, key_size=16, value_size=16)


def hybrid(spec: Spec) -> Builder:
    """A decoder whose layers are of any kind; attention is GroupQueryAttention."""
    b = start(spec)
    ids = ids_input(b)
    mask_input(b)
    x = embed(b, ids)
    rows = values(b)

    def mix(layer: Layer, h: str) -> str:
        if layer.kind == "conv":
            return conv(b, layer, h)
        if layer.kind == "recurrent":
            return recurrent(b, layer, h)
        return gqa(b, layer, h, rows)

    logits(b, decoder(b, x, mix))
    return b


def conv(b: Builder, layer: Layer, x: str) -> str:
    """A gated causal filter over ``x`` [B, S, M]; the state [B, M, L] is its last L inputs."""
    i, hidden, length = layer.index, b.spec.hidden, b.spec.kernel
    flat = b.node("Transpose", b.linear(x, f"{i}.in"), perm=[0, 2, 1])  # [B, 3*M, S]
    parts = [f"{b.scope}/Split_output_{n}" for n in range(3)]
    b.node("Split", flat, b.constant([hidden] * 3), out=parts, axis=1)
    dims = ["batch_size", hidden, length]
    past, present = b.cache(f"past_conv.{i}", dims, f"present_conv.{i}", dims)
    inner = b.node("Concat", past, b.node("Mul", parts[0], parts[2]), axis=2)  # [B, M, L+S]
    bounds = (b.constant([value]) for value in (-length, 2**31 - 1, 2))
    b.node("Slice", inner, *bounds, out=[present])
    taps = b.table(f"model.{i}.filter.weight", b.weights[f"{i}.filter"][:, None])  # [M, 1, L]
    recent = b.slice(inner, 1, 2**31 - 1, 2)  # [B, M, L-1+S]
    filtered = b.node("Conv", recent, taps, group=hidden, kernel_shape=[length])  # [B, M, S]
    mixed = b.node("Transpose", b.node("Mul", parts[1], filtered), perm=[0, 2, 1])
    return b.linear(mixed, f"{i}.out")


def recurrent(b: Builder, layer: Layer, x: str) -> str:
    """Gated linear attention over ``x`` [B, S, M]; the state is [B, K, D, E]."""
    i = layer.index
    query, key, value = (b.linear(x, f"{i}.{part}") for part in ("query", "key", "value"))
    decay = b.node("Log", b.node("Sigmoid", b.linear(x, f"{i}.decay")))  # [B, S, K]
    dims = ["batch_size", layer.kv_heads, layer.key_size, layer.value_size]
    past, present = b.cache(f"past_recurrent.{i}", dims, f"present_recurrent.{i}", dims)
    mixed = b.node(
        "LinearAttention",
        *(query, key, value, past, decay),
        out=[f"{b.scope}/LinearAttention_output", present],
        q_num_heads=layer.heads,
        kv_num_heads=layer.kv_heads,
        update_rule="gated",
        scale=layer.key_size**-0.5,
    )
    return b.linear(mixed, f"{i}.out")


@variant
def conv_state() -> Variant:
    """A layer with the last inputs of its filter as state, and one of attention."""
    b = hybrid(Spec(layers=(Layer(0, "conv"), ATTENTION)))
    return counted(b, padding=None)


@variant
def recurrent_state() -> Variant:
    """A layer of linear attention with a matrix as state, and one of attention."""
    b = hybrid(Spec(layers=(Layer(0, "recurrent"), ATTENTION)))
    return counted(b, padding=None)
