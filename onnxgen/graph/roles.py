"""What each input of a decoder is for.

The names that all exporters share are taken at their word where dtype and rank agree; an input
of another name gets its role from the operator that reads it.
"""

from collections.abc import Mapping

from onnx import NodeProto

from onnxgen.graph.proto import VIEWS, Graph, Port, Scope

INTEGERS = frozenset({"int32", "int64"})

# Input name -> role. Names are those of transformers, optimum, transformers.js, genai and mobius.
NAMES: Mapping[str, str] = {
    "input_ids": "ids",
    "inputs_embeds": "embeds",
    "per_layer_inputs": "per_layer_inputs",
    "attention_mask": "mask",
    "decoder_attention_mask": "mask",
    "position_ids": "positions",
    "token_type_ids": "token_types",
    "use_cache_branch": "use_cache",
    "num_logits_to_keep": "keep",
    "logits_to_keep": "keep",
    "cache_position": "cache_position",
    "encoder_hidden_states": "encoder_states",
    "encoder_attention_mask": "encoder_mask",
    "seqlens_k": "last_index",
    "total_sequence_length": "total_length",
    "past_sequence_length": "past_length",
    "write_indices": "write_index",
    "nonpad_kv_seqlen": "row_length",
}

# Roles whose values follow from the tokens and the state of the cache.
FED = frozenset({
    "ids", "embeds", "per_layer_inputs", "mask", "positions", "token_types", "use_cache", "keep",
    "cache_position", "last_index", "total_length", "past_length", "write_index", "row_length",
})  # fmt: skip

# Roles whose values come from the encoder.
ENCODED = frozenset({"encoder_states", "encoder_mask"})

# (operator, input number) -> role of the graph input that feeds it directly.
READERS: Mapping[tuple[str, int], str] = {
    ("GroupQueryAttention", 5): "last_index",
    ("GroupQueryAttention", 6): "total_length",
    ("GroupQueryAttention", 9): "positions",
    ("RotaryEmbedding", 1): "positions",  # com.microsoft
    ("RotaryEmbedding", 3): "positions",  # ai.onnx
    ("MultiHeadAttention", 4): "mask",
    ("MultiHeadAttention", 8): "past_length",
    ("DecoderMaskedMultiHeadAttention", 7): "past_length",
    ("Attention", 3): "mask",
    ("Attention", 6): "row_length",
    ("TensorScatter", 2): "write_index",
    ("ReduceSum", 0): "mask",
}


def roles(graph: Graph) -> dict[str, str]:
    """Input name -> role, for the inputs that are no caches; unknown ones are left out."""
    found: dict[str, str] = {}
    for port in graph.inputs.values():
        role = NAMES.get(port.name) or _read_as(graph, port)
        if role and role not in found.values():
            found[port.name] = role
    fed = {"ids", "embeds"} & set(found.values())
    if not fed and (ids := _embedded(graph, found)):
        found[ids] = "ids"
    return found


def _read_as(graph: Graph, port: Port) -> str | None:
    """The role of an input with an unknown name, from its first telling reader."""
    if port.dtype not in INTEGERS | {"bool", "float32"} or len(port.shape) > 3:
        return None
    for node, index in readers(graph.scope, port.name):
        if role := READERS.get((node.op_type, index)):
            return role
    return None


def readers(scope: Scope, name: str) -> list[tuple[NodeProto, int]]:
    """The nodes that read tensor ``name``, views seen through, each with its input number."""
    found = []
    for use in scope.uses(name):
        if use.node.op_type in VIEWS and use.index == 0:
            found += readers(use.scope, use.node.output[0])
        else:
            found.append((use.node, use.index))
    return found


def _embedded(graph: Graph, taken: Mapping[str, str]) -> str | None:
    """The integer input that indexes the largest table: the token ids."""
    rows: dict[str, int] = {}
    for port in graph.inputs.values():
        if port.name in taken or port.dtype not in INTEGERS:
            continue
        for node, index in readers(graph.scope, port.name):
            if node.op_type in {"Gather", "GatherBlockQuantized"} and index == 1:
                dims = graph.scope.dims(node.input[0])
                rows[port.name] = max(rows.get(port.name, 0), dims[0] if dims else 0)
    return max(rows, key=lambda name: rows[name]) if rows else None
