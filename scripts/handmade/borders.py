"""What varies at a graph's borders: the form of logits, dtypes, files, branches, functions."""

from dataclasses import replace

import onnx

from .append import concat_body
from .blocks import embed, ids_input, logits, mask_input, positions_input
from .builder import Builder
from .gqa import WIDE, counted, gqa_decoder
from .variant import Variant, finish, start, variant
from .weights import Spec


@variant
def pruned_logits() -> Variant:
    """Logits of the last column only, [B, 1, V]."""
    return counted(gqa_decoder(WIDE, tail="last"), logits="last")


@variant
def rank2_logits() -> Variant:
    """Logits of the last column only, [B, V]."""
    return counted(gqa_decoder(WIDE, tail="rank2"), logits="rank2")


@variant
def num_logits_to_keep() -> Variant:
    """The number of logits is an input of rank 0; 0 means all."""
    return counted(gqa_decoder(WIDE, tail="keep0"), num_logits_to_keep=0)


@variant
def num_logits_to_keep_1d() -> Variant:
    """The number of logits is an input of shape [1]; 0 means all."""
    return counted(gqa_decoder(WIDE, tail="keep1"), num_logits_to_keep=1)


@variant
def fp16() -> Variant:
    """Weights, caches and logits in half precision."""
    return counted(gqa_decoder(replace(WIDE, precision="float16")))


@variant
def external_data() -> Variant:
    """Weights in two files, model.onnx_data and model.onnx_data_1."""
    made = counted(gqa_decoder(WIDE))
    made.parts = 2
    return made


@variant
def symbolic_head_size() -> Variant:
    """The caches' last dim has a name, not a number."""
    return counted(gqa_decoder(WIDE, size="kv_cache_dim"))


@variant
def merged_branches() -> Variant:
    """An If on use_cache_branch: both branches in one graph, the weights at its top."""
    b = start(Spec())
    ids_input(b)
    mask_input(b)
    positions_input(b)
    flag = b.input("use_cache_branch", "bool", [1])
    for layer in b.spec.layers:
        for kind, width in (("key", layer.key_size), ("value", layer.value_size)):
            dims = ["batch_size", layer.kv_heads, "past_sequence_length", width]
            past, present = f"past_key_values.{layer.index}.{kind}", f"present.{layer.index}.{kind}"
            b.cache(past, dims, present, [*dims[:2], "total_sequence_length", width])
    b.output("logits", b.dtype, ["batch_size", "sequence_length", b.spec.vocab])
    with_past, without = _branch(b, cached=True), _branch(b, cached=False)
    outputs = [value.name for value in with_past.output]
    b.scope = "optimum"
    b.node("If", flag, out=outputs, then_branch=with_past, else_branch=without)
    return finish(b, "append", padding="any")


def _branch(main: Builder, cached: bool) -> onnx.GraphProto:
    """One branch: its weights go to ``main``, its names are its own."""
    b = Builder(main.spec, main.weights, main.opset, initializers={})
    pairs = [(past if cached else "", present) for past, present in main.pairs]
    caches = {s.index: (pairs[2 * n], pairs[2 * n + 1]) for n, s in enumerate(b.spec.layers)}
    past = b.size(main.pairs[0][0], 2) if cached else b.constant(0)
    logits(b, concat_body(b, embed(b, "input_ids"), caches, past))
    b.outputs += [value for value in main.outputs if value.name != "logits"]
    main.initializers |= b.initializers
    b.initializers.clear()
    return b.graph("with_past" if cached else "no_past")
