"""Graphs that ONNX Runtime runs and that still are no decoder to generate with."""

from collections.abc import Callable

import onnx

from . import primitives as p
from .append import concat_body, concat_decoder
from .blocks import cache_pair, decoder, embed, ids_input, logits, mask_input, positions_input
from .variant import start
from .weights import Layer, Spec

Make = Callable[[], onnx.ModelProto]
REFUSED: dict[str, tuple[str, Make]] = {}


def refused(reason: str) -> Callable[[Make], Make]:
    """Enter a graph in the list, with the ``reason`` why it cannot be run."""

    def enter(make: Make) -> Make:
        REFUSED[make.__name__] = reason, make
        return make

    return enter


@refused("no logits: an encoder")
def encoder_only() -> onnx.ModelProto:
    """As BERT: each token sees all others, and hidden states come out."""
    b = start(Spec(positions="learned", norm="layer"))
    dims = ["batch_size", "sequence_length"]
    ids = ids_input(b)
    b.input("attention_mask", "int64", dims)
    kinds = b.input("token_type_ids", "int64", dims)
    kept = b.unsqueeze(b.cast("attention_mask", "bool"), 1, 2)  # [B, 1, 1, S]
    bias = b.node("Where", kept, b.real(0.0), b.real(p.LOWEST))
    x = b.node("Add", embed(b, ids), b.node("Gather", b.weight("place"), kinds))
    none = (("", ""), ("", ""))
    hidden = decoder(b, x, lambda layer, h: p.attention(b, layer, h, none, bias, None))
    b.node("Identity", hidden, out=["last_hidden_state"])
    b.output("last_hidden_state", b.dtype, [*dims, b.spec.hidden])
    return b.model()


@refused("caches go in and do not come out")
def cache_without_present() -> onnx.ModelProto:
    """The new keys and values are lost after each step."""
    b = concat_decoder(Spec(), positions=True)
    b.outputs = [value for value in b.outputs if value.name == "logits"]
    return b.model()


@refused("caches come out and do not go in: the first half of a split pair")
def present_without_past() -> onnx.ModelProto:
    """A prompt can be run, and nothing after it."""
    b = start(Spec())
    ids = ids_input(b)
    b.input("attention_mask", "int64", ["batch_size", "sequence_length"])
    positions_input(b)
    caches = {layer.index: cache_pair(b, layer) for layer in b.spec.layers}
    b.inputs = [value for value in b.inputs if not value.name.startswith("past")]
    caches = {i: (("", key[1]), ("", value[1])) for i, (key, value) in caches.items()}
    logits(b, concat_body(b, embed(b, ids), caches, b.constant(0)))
    return b.model()


@refused("logits of rank 4")
def rank4_logits() -> onnx.ModelProto:
    """Logits [B, 1, S, V], as of a model with several codebooks."""
    b = concat_decoder(Spec(), positions=True)
    b.nodes[-1].output[0] = "flat_logits"
    b.node("Unsqueeze", "flat_logits", b.constant([1]), out=["logits"])
    b.outputs = [value for value in b.outputs if value.name != "logits"]
    b.output("logits", b.dtype, ["batch_size", 1, "sequence_length", b.spec.vocab])
    return b.model()


@refused("a cache of strings")
def string_cache() -> onnx.ModelProto:
    """Keys and values are kept as text, which ONNX Runtime runs without complaint."""
    b = start(Spec())
    ids = ids_input(b)
    mask_input(b)
    positions_input(b)
    caches = {layer.index: cache_pair(b, layer) for layer in b.spec.layers}
    for value in [*b.inputs, *b.outputs]:
        if value.name.startswith(("past", "present")):
            value.type.tensor_type.elem_type = onnx.TensorProto.STRING
    bias = p.mask_bias(b, p.columns(b, p.past_size(b), b.size(ids, 1)))
    turn = p.angles(b, "position_ids", b.spec.layers[0].key_size)

    def mix(layer: Layer, h: str) -> str:
        query, key, value = (p.project(b, layer, h, part) for part in ("query", "key", "value"))
        query, key = (p.rotate(b, x, turn, layer.key_size) for x in (query, key))
        key, value = (
            b.cast(p.grown(b, b.cast(new, "string"), pair, 2), b.dtype)
            for new, pair in zip((key, value), caches[layer.index], strict=True)
        )
        return p.over(b, layer, query, key, value, bias)

    logits(b, decoder(b, embed(b, ids), mix))
    return b.model()
