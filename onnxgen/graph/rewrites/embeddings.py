"""Embeddings fed from outside, read from the model's file.

A table (V,H) lies there with a token in each row. ONNX Runtime maps it, and each row that it looks
up counts as 64 kB of memory from then on. Exports that tie embeddings and head may keep (H,V)
instead and turn it over to look tokens up. ONNX Runtime does that once, when it loads the model,
and holds the table twice from then on: packed for the head, and as rows.

Letters: B batch, S new tokens, H hidden size, V vocabulary.
"""

import os
from itertools import islice

import numpy as np
from onnx import NodeProto, TensorProto, helper

from onnxgen.files.lookup import Table
from onnxgen.graph.proto import Scope, attributes, elem_name
from onnxgen.graph.rewrites.editing import Draft, Site
from onnxgen.graph.roles import NAMES

INPUT = "inputs_embeds"  # this name has its role, see ``graph/roles.py``
# Bytes of a table below which reading a file in each step costs more than the table does.
LEAST = 32 << 20
_DTYPES = frozenset({"float32", "float16"})


def feed(draft: Draft) -> list[Site]:
    """Has the graph take embeddings in place of the ids that look them up; where.

    Not where ids, or a table that was turned, are read for more than that, nor where a table is
    turned for that alone: then it is held once.
    """
    scope = draft.scope
    for own, node in scope.nodes("Gather"):
        table = _table(draft, node) if own is scope and _is_lookup(scope, node) else None
        if table is None:
            continue
        dims = [*(scope.input_dims(node.input[1]) or ()), table.hidden]  # (B,S,H)
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(table.dtype))
        draft.model.graph.input.append(helper.make_tensor_value_info(INPUT, kind, dims))
        for use in list(scope.uses(node.output[0])):
            use.node.input[use.index] = INPUT
        draft.retire(node.input[1])
        draft.table = table
        return [Site.of(scope, node)]
    return []


def _is_lookup(scope: Scope, gather: NodeProto) -> bool:
    """Whether ``gather`` looks up ids that nothing else reads, and no embeddings are taken yet."""
    if NAMES.get(gather.input[1]) != "ids" or attributes(gather).get("axis", 0):
        return False
    free = scope.input_dims(INPUT) is None and gather.output[0] not in scope.outputs
    return free and not _is_shared(scope, gather.input[1])


def _table(draft: Draft, gather: NodeProto) -> Table | None:
    """What ``gather`` looks tokens up in; None if it cannot be read from the file, or is small."""
    scope, name = draft.scope, gather.input[0]
    made = scope.maker(name)
    if made is not None and not _is_turn(scope, made[1]):
        return None
    turned = made is not None
    tensor = scope.tensor(made[1].input[0] if made else name)
    if tensor is None or tensor.data_location != TensorProto.EXTERNAL or draft.folder is None:
        return None
    dtype, entries = elem_name(tensor.data_type), {e.key: e.value for e in tensor.external_data}
    if len(tensor.dims) != 2 or dtype not in _DTYPES or not hasattr(os, "pread"):
        return None
    hidden, tokens = tensor.dims if turned else reversed(tensor.dims)
    path, offset = draft.folder / entries["location"], int(entries.get("offset", 0))
    table = Table(path, offset, tokens, hidden, dtype, turned)
    return table if table.nbytes >= LEAST else None


def _is_turn(scope: Scope, node: NodeProto) -> bool:
    """Whether ``node`` turns a shared table, for one reader."""
    if node.op_type != "Transpose" or attributes(node).get("perm", [1, 0]) != [1, 0]:
        return False
    return _is_shared(scope, node.input[0]) and not _is_shared(scope, node.output[0])


def _is_shared(scope: Scope, name: str) -> bool:
    """Whether ``name`` is read more than once."""
    return len(list(islice(scope.uses(name), 2))) > 1
