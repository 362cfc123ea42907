"""Graphs whose blocks are model-local functions, called once a layer."""

from collections.abc import Sequence

from . import primitives as p
from .blocks import block, cache_pair, embed, ids_input, logits, mask_input, norm, positions_input
from .builder import FunctionBuilder
from .gqa import WIDE, counted, gqa, values
from .variant import Variant, finish, start, variant
from .weights import Spec

CACHES = (("past_key", "present_key"), ("past_value", "present_value"))


@variant
def function_concat() -> Variant:
    """A block with growing caches as a function; the Concat is inside."""
    b = start(Spec())
    x = embed(b, ids_input(b))
    mask_input(b)
    places = positions_input(b)
    layer, caches = b.spec.layers[0], [cache_pair(b, layer) for layer in b.spec.layers]
    bias = p.mask_bias(b, p.columns(b, p.past_size(b), b.size(x, 1)))
    turn = p.angles(b, places, layer.key_size)
    f = FunctionBuilder(b, "DecoderBlock")
    y = block(f, layer, "x", lambda s, h: p.attention(f, s, h, CACHES, "bias", ("cos", "sin")))
    _call_each(f, x, y, {"bias": bias, "cos": turn[0], "sin": turn[1]}, caches)
    return finish(b, "append", padding="any")


@variant
def function_gqa() -> Variant:
    """A block of GroupQueryAttention as a function; the lengths are counted outside."""
    b = start(WIDE)
    x = embed(b, ids_input(b))
    mask_input(b)
    caches = [cache_pair(b, layer) for layer in b.spec.layers]
    rows = values(b)
    f = FunctionBuilder(b, "DecoderBlock")
    y = block(f, b.spec.layers[0], "x", lambda s, h: gqa(f, s, h, ("rows", "all"), caches=CACHES))
    _call_each(f, x, y, {"rows": rows[0], "all": rows[1]}, caches)
    return counted(b)


def _call_each(
    f: FunctionBuilder,
    x: str,
    y: str,
    common: dict[str, str],
    caches: Sequence[tuple[p.Pair, p.Pair]],
) -> None:
    """End the function ``f`` that makes ``y`` of "x", call it for each layer, add the head.

    ``common`` maps parameters to what every layer gets.
    """
    pasts, presents = zip(*CACHES, strict=True)
    f.define(["x", *common, *pasts], [y, *presents])
    b = f.outer
    b.scope = "/model"
    for layer, pairs in zip(b.spec.layers, caches, strict=True):
        before, after = zip(*pairs, strict=True)
        out = [f"/model/layers.{layer.index}/output", *after]
        x = f.call(layer.index, [x, *common.values(), *before], out)
    logits(b, norm(b, "norm", x))
