"""Runs a part of a graph in NumPy, where the values of its weights do not matter.

Letters: B batch, S new tokens, P past, T = P+S.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor

from onnxgen.graph.proto import attributes, elem_name, port_of
from onnxgen.graph.rewrites.editing import Draft, Site
from onnxgen.graph.rewrites.excerpt import excerpt
from onnxgen.graph.rewrites.operators import OPERATORS
from onnxgen.graph.rewrites.sizes import size_of

Array = NDArray[Any]


class Part:
    """What leads to the tensor ``output``, of whose inputs ``padding`` alone has values.

    Of constants in other files the values are read if they are ``needed``; else they are zeros, so
    that what is computed for its shape alone costs no reading of weights. KeyError for an operator
    that :data:`OPERATORS` has not.
    """

    def __init__(self, draft: Draft, output: str, padding: str, needed: Collection[str]) -> None:
        graph = excerpt(draft, [Site((), output)]).graph
        self._output, self._padding = output, padding
        self._fixed = dict[str, Array]()
        for tensor in graph.initializer:
            self._fixed[tensor.name] = _values(tensor, draft, tensor.name in needed)
        self._ports = [port_of(info) for info in graph.input if info.name not in self._fixed]
        self._steps = [_step(node) for node in graph.node]

    def run(self, valid: Array, new: int) -> Array:
        """The output for ``new`` (S) tokens of a padding mask ``valid`` (B,T), the rest zeros."""
        sizes = {"B": len(valid), "S": new, "P": valid.shape[1] - new, "T": 1}
        values = dict(self._fixed)
        for port in self._ports:
            shape = tuple(size_of(dim, sizes) for dim in port.shape)
            zeros = np.zeros(shape, port.dtype)
            values[port.name] = valid.astype(port.dtype) if port.name == self._padding else zeros
        with np.errstate(all="ignore"):  # numbers that do not fit are no fault of the model's
            for operator, inputs, made in self._steps:
                given = [values[name] if name else None for name in inputs]
                values[made] = np.asarray(operator(*given))
        return values[self._output]


def _step(node: NodeProto) -> tuple[Callable[..., Any], list[str], str]:
    """What ``node`` does, the names of what it takes, and of what it makes."""
    operator = OPERATORS[node.domain.removeprefix("ai.onnx")][node.op_type]
    return partial(operator, **attributes(node)), list(node.input), node.output[0]


def _values(tensor: TensorProto, draft: Draft, needed: bool) -> Array:
    """The elements of ``tensor``, or zeros in their place."""
    if tensor.data_location == TensorProto.EXTERNAL:
        if not needed:
            return np.broadcast_to(np.zeros((), elem_name(tensor.data_type)), tuple(tensor.dims))
        load_external_data_for_tensor(tensor, str(draft.folder))
    return numpy_helper.to_array(tensor)
