"""Runs a part of a graph in NumPy, where the values of its weights do not matter.

Letters: B batch, S new tokens, P past, T = P+S.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from onnxgen.graph.proto import elem_name, port_of
from onnxgen.graph.rewrites.editing import MICROSOFT, Draft, Site
from onnxgen.graph.rewrites.excerpt import excerpt
from onnxgen.graph.rewrites.sizes import size_of

Array = NDArray[Any]


class DequantizeLinear(OpRun):
    """Its shape; onnx has the operator itself for some of its versions only."""

    op_domain = ""

    def _run(self, x: Array, *_: Any, **__: Any) -> tuple[Array]:
        return (np.zeros(x.shape, np.float32),)


class GatherBlockQuantized(OpRun):
    """Its shape, for rows of a table of (packed) numbers of 4 or 8 bits."""

    op_domain = MICROSOFT

    def _run(self, data: Array, indices: Array, *_: Any, **__: Any) -> tuple[Array]:
        return (np.zeros((*indices.shape, *data.shape[1:]), np.float32),)


class Part:
    """What leads to the tensor ``output``, of whose inputs ``padding`` alone has values.

    Of constants in other files the values are read if they are ``needed``; else they are zeros, so
    that what is computed for its shape alone costs no reading of weights.
    """

    def __init__(self, draft: Draft, output: str, padding: str, needed: Collection[str]) -> None:
        model = excerpt(draft, [Site((), output)])
        self._padding, self._fixed = padding, dict[str, Array]()
        for tensor in list(model.graph.initializer):
            if tensor.data_location != TensorProto.EXTERNAL:
                continue
            if tensor.name in needed:
                load_external_data_for_tensor(tensor, str(draft.folder))
                self._fixed[tensor.name] = numpy_helper.to_array(tensor)
            else:
                dtype = elem_name(tensor.data_type)
                self._fixed[tensor.name] = np.zeros(tuple(tensor.dims), dtype)
            model.graph.initializer.remove(tensor)
        infos = [info for info in model.graph.input if info.name not in self._fixed]
        self._ports = [port_of(info) for info in infos]
        self._evaluator = ReferenceEvaluator(
            model, new_ops=[DequantizeLinear, GatherBlockQuantized]
        )

    def run(self, valid: Array, new: int) -> Array:
        """The output for ``new`` (S) tokens of a padding mask ``valid`` (B,T), the rest zeros."""
        sizes = {"B": len(valid), "S": new, "P": valid.shape[1] - new, "T": 1}
        feeds = dict(self._fixed)
        for port in self._ports:
            shape = tuple(size_of(dim, sizes) for dim in port.shape)
            zeros = np.zeros(shape, port.dtype)
            feeds[port.name] = valid.astype(port.dtype) if port.name == self._padding else zeros
        results: Any = self._evaluator.run(None, feeds)
        found: Array = results[0]
        return found
