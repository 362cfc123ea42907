"""The small inputs of a run (ids, mask, positions, lengths), as the graph declares them.

Letters: B rows, S columns of new tokens, P columns in the cache, T = P+S.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxgen.graph.decoder import DecoderGraph
from onnxgen.graph.proto import Port
from onnxgen.runtime.caches import Layout

Array = NDArray[Any]

# Role -> its value. ``shown`` is what a row that gets no token in this run counts as valid: one
# token more, see ``right_padded``.
VALUES: Mapping[str, Callable[[Layout], Array]] = {
    "ids": lambda layout: layout.ids,  # (B,S)
    "mask": lambda layout: layout.mask,  # (B,T)
    "positions": lambda layout: layout.positions,  # (B,S)
    "token_types": lambda layout: _types(layout),  # (B,S)
    "use_cache": lambda layout: np.array([layout.columns > 0]),  # (1,)
    "cache_position": lambda layout: layout.columns + np.arange(layout.ids.shape[1]),  # (S,)
    "past_length": lambda layout: np.array(layout.columns),  # ()
    "total_length": lambda layout: np.array(layout.mask.shape[1]),  # ()
    "last_index": lambda layout: layout.mask.sum(axis=1) - 1,  # (B,)
    "write_index": lambda layout: layout.before,  # (B,)
    "row_length": lambda layout: layout.mask.sum(axis=1),  # (B,)
}


def feeds(graph: DecoderGraph, layout: Layout, last_column: bool) -> Iterator[tuple[str, Array]]:
    """Input names with the arrays that feed them; caches and embeddings are bound elsewhere.

    ``last_column``: only the logits of the last column are wanted, where the graph can choose.
    """
    for role, port in graph.inputs.items():
        if role == "keep":
            yield port.name, conform(np.array(int(last_column)), port)
        elif role in VALUES:
            yield port.name, conform(VALUES[role](layout), port)


def _types(layout: Layout) -> Array:
    """1 for the tokens of images, 0 for text (B,S)."""
    if layout.places is None:
        return np.zeros_like(layout.ids)
    return (layout.places >= 0).astype(np.int64)


def conform(values: Array, port: Port) -> Array:
    """``values`` in the dtype and rank of ``port``.

    Ranks differ among exporters: lengths as (), (1,), (B,) or (B,1), and positions as (B,S) or,
    with one row for each of several axes, (N,B,S).
    """
    rank = len(port.shape)
    if values.ndim == 3 and rank == 2:  # (1,B,S) -> (B,S)
        values = values[0]
    if values.ndim == 2 and rank == 3:  # (B,S) -> (N,B,S)
        axes = port.shape[0] if isinstance(port.shape[0], int) else 3
        values = np.broadcast_to(values, (axes, *values.shape))
    elif values.ndim == 2 and rank == 4:  # (B,T) -> (B,1,1,T)
        values = values[:, None, None, :]
    while values.ndim < rank:
        values = values[..., None]
    if values.ndim > rank:
        values = values.reshape(values.shape[:rank])
    return values if values.dtype.name == port.dtype else values.astype(port.dtype)
