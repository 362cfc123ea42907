"""Embeddings fed from outside, where their table is that of the head, turned over.

Exports that tie the two keep one table (H,V) and turn it over to look tokens up. ONNX Runtime does
that once, when it loads the model, and holds the table twice from then on: packed for the head, and
as rows. The model's file holds it too: there a token is a column.

Letters: B batch, S new tokens, H hidden size, V vocabulary.
"""

import os
from itertools import islice

import numpy as np
from onnx import NodeProto, TensorProto, helper

from onnxgen.files.columns import Table
from onnxgen.graph.proto import Scope, attributes, elem_name
from onnxgen.graph.rewrites.editing import Draft, Site
from onnxgen.graph.roles import NAMES

INPUT = "inputs_embeds"  # this name has its role, see ``graph/roles.py``
# Bytes of a table below which reading a file in each step costs more than the table does.
LEAST = 32 << 20
_DTYPES = frozenset({"float32", "float16"})


def feed_columns(draft: Draft) -> list[Site]:
    """Has the graph take embeddings in place of the ids that look them up; where.

    Not where ids or the turned table are read for more than that, nor where the table is for that
    alone: then it is held once.
    """
    scope = draft.scope
    for own, node in scope.nodes("Gather"):
        made = scope.maker(node.input[0])
        if own is not scope or made is None or not _is_tied(scope, node, made[1]):
            continue
        table = _table(draft, made[1].input[0])
        if table is None:
            continue
        dims = [*(scope.input_dims(node.input[1]) or ()), table.rows]  # (B,S,H)
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(table.dtype))
        draft.model.graph.input.append(helper.make_tensor_value_info(INPUT, kind, dims))
        for use in list(scope.uses(node.output[0])):
            use.node.input[use.index] = INPUT
        draft.retire(node.input[1])
        draft.table = table
        return [Site.of(scope, node)]
    return []


def _is_tied(scope: Scope, gather: NodeProto, turn: NodeProto) -> bool:
    """Whether ``gather`` looks ids up in what ``turn`` makes, for it alone, of a shared table."""
    if turn.op_type != "Transpose" or attributes(turn).get("perm", [1, 0]) != [1, 0]:
        return False
    if NAMES.get(gather.input[1]) != "ids" or attributes(gather).get("axis", 0):
        return False
    free = scope.input_dims(INPUT) is None and gather.output[0] not in scope.outputs
    alone = not any(_is_shared(scope, name) for name in (turn.output[0], gather.input[1]))
    return free and alone and _is_shared(scope, turn.input[0])


def _is_shared(scope: Scope, name: str) -> bool:
    """Whether ``name`` is read more than once."""
    return len(list(islice(scope.uses(name), 2))) > 1


def _table(draft: Draft, name: str) -> Table | None:
    """Where the constant ``name`` (H,V) lies; None if it cannot be read there, or is small."""
    tensor = draft.scope.tensor(name)
    if tensor is None or tensor.data_location != TensorProto.EXTERNAL or draft.folder is None:
        return None
    dtype, entries = elem_name(tensor.data_type), {e.key: e.value for e in tensor.external_data}
    if len(tensor.dims) != 2 or dtype not in _DTYPES or not hasattr(os, "pread"):
        return None
    rows, columns = tensor.dims
    path, offset = draft.folder / entries["location"], int(entries.get("offset", 0))
    table = Table(path, offset, rows, columns, dtype)
    return table if table.nbytes >= LEAST else None
