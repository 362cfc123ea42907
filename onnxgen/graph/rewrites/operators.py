"""ONNX operators in NumPy: those that masks and positions are made of.

Each takes its inputs, None where one is left out, and the attributes of its node by their names;
what older operators have as attributes are inputs of newer ones, so either may be given. Weights
are of no value here: what makes floats of them gives zeros of the right shape.

``onnx.reference`` knows all of ONNX, but reading a model's masks by it costs 16 MB and two tenths
of a second with every load.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from onnxgen.graph.rewrites.editing import MICROSOFT

Array = NDArray[Any]
Numbers = Array | Sequence[int]  # of an input or an attribute


def _cast(x: Array, to: int, **_: Any) -> Array:
    return x.astype(helper.tensor_dtype_to_np_dtype(to))


def _concat(*xs: Array, axis: int) -> Array:
    return np.concatenate(xs, axis)


def _constant(value: TensorProto | None = None, **attributes: Any) -> Array:
    if value is not None:
        return numpy_helper.to_array(value)
    ((name, numbers),) = attributes.items()
    return np.array(numbers, np.int64 if name.startswith("value_int") else np.float32)


def _constant_of_shape(shape: Array, value: TensorProto | None = None) -> Array:
    fill = np.zeros(1, np.float32) if value is None else numpy_helper.to_array(value)
    return np.full(shape, fill[0])


def _div(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    return np.asarray(np.sign(a) * np.sign(b) * (abs(a) // abs(b)))  # towards zero


def _expand(x: Array, shape: Array) -> Array:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape)))


def _flatten(x: Array, axis: int = 1) -> Array:
    return x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:]))


def _gather(x: Array, indices: Array, axis: int = 0) -> Array:
    # Not by np.take, which would write zeros down that are there only once.
    return np.asarray(x[(slice(None),) * (axis % x.ndim) + (indices,)])


def _range(start: Array, limit: Array, delta: Array) -> Array:
    return np.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)


def _reshape(x: Array, shape: Array, allowzero: int = 0) -> Array:
    sizes = [x.shape[i] if size == 0 and not allowzero else size for i, size in enumerate(shape)]
    return x.reshape(sizes)


def _scatter_nd(x: Array, indices: Array, updates: Array, reduction: str = "none") -> Array:
    if reduction != "none":
        raise NotImplementedError(reduction)
    x = x.copy()
    x[tuple(np.moveaxis(indices, -1, 0))] = updates
    return x


def _shape(x: Array, start: int = 0, end: int | None = None) -> Array:
    return np.array(x.shape[start:end], np.int64)


def _slice(
    x: Array,
    starts: Numbers,
    ends: Numbers,
    axes: Numbers | None = None,
    steps: Numbers | None = None,
) -> Array:
    cuts = [slice(None)] * x.ndim
    places = range(len(starts)) if axes is None else axes
    strides = [1] * len(starts) if steps is None else steps
    for axis, start, end, step in zip(places, starts, ends, strides, strict=True):
        cuts[axis] = slice(start, end, step)
    return x[tuple(cuts)]


def _squeeze(x: Array, axes: Numbers | None = None) -> Array:
    return np.squeeze(x, None if axes is None else tuple(axes))


def _sum(
    x: Array, axes: Numbers | None = None, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Array:
    if axes is None or not len(axes):
        axes = () if noop_with_empty_axes else range(x.ndim)
    return np.asarray(np.sum(x, tuple(axes), x.dtype, keepdims=bool(keepdims)))


def _transpose(x: Array, perm: Sequence[int] | None = None) -> Array:
    return np.transpose(x, perm)


def _trilu(x: Array, k: Array | None = None, upper: int = 1) -> Array:
    return (np.triu if upper else np.tril)(x, 0 if k is None else int(k))


def _unsqueeze(x: Array, axes: Numbers) -> Array:
    return np.expand_dims(x, tuple(axes))


def _floats_of(x: Array, *_: Array, **__: Any) -> Array:
    return np.zeros(x.shape, np.float32)


def _rows_of(table: Array, indices: Array, *_: Array, **__: Any) -> Array:
    # Of two numbers a byte the rows are twice as long; what is counted are rows.
    return np.zeros((*indices.shape, *table.shape[1:]), np.float32)


# Domain -> name -> what it does.
OPERATORS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "": {
        "Add": np.add,
        "And": np.logical_and,
        "Cast": _cast,
        "Concat": _concat,
        "Constant": _constant,
        "ConstantOfShape": _constant_of_shape,
        "DequantizeLinear": _floats_of,
        "Div": _div,
        "Equal": np.equal,
        "Expand": _expand,
        "Flatten": _flatten,
        "Gather": _gather,
        "Greater": np.greater,
        "GreaterOrEqual": np.greater_equal,
        "Identity": np.asarray,
        "Less": np.less,
        "LessOrEqual": np.less_equal,
        "Max": lambda *xs: reduce(np.maximum, xs),
        "Min": lambda *xs: reduce(np.minimum, xs),
        "Mul": np.multiply,
        "Neg": np.negative,
        "Not": np.logical_not,
        "Or": np.logical_or,
        "Range": _range,
        "ReduceSum": _sum,
        "Reshape": _reshape,
        "ScatterND": _scatter_nd,
        "Shape": _shape,
        "Size": np.size,
        "Slice": _slice,
        "Squeeze": _squeeze,
        "Sub": np.subtract,
        "Tile": np.tile,
        "Transpose": _transpose,
        "Trilu": _trilu,
        "Unsqueeze": _unsqueeze,
        "Where": np.where,
        "Xor": np.logical_xor,
    },
    MICROSOFT: {"GatherBlockQuantized": _rows_of},
}
