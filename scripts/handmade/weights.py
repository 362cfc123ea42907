"""Tiny random decoders: their shape, and weights large enough that greedy tokens vary."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Weights = dict[str, Array]

CAPACITY = 64  # rows of the position tables, where a graph has one
ROPE_BASE = 100.0  # small: the fastest and the slowest angle both move within 49 tokens


@dataclass(frozen=True)
class Layer:
    """One block. ``index`` is its number in the names of its weights and caches.

    ``window`` counts the current token; 0 means none. A ``shared`` layer has queries of its own
    and attends to the keys and values of layer ``source``.
    """

    index: int
    kind: Literal["attention", "shared", "conv", "recurrent"] = "attention"
    heads: int = 4
    kv_heads: int = 2
    key_size: int = 8
    value_size: int = 8
    window: int = 0
    source: int = -1


@dataclass(frozen=True)
class Spec:
    """A decoder: sizes, layers, how it knows positions, and the seed of its weights.

    ``precision`` is the dtype that the weights are rounded to before anyone computes with them.
    """

    layers: tuple[Layer, ...] = (Layer(0), Layer(1))
    positions: Literal["rope", "alibi", "learned"] = "rope"
    norm: Literal["rms", "layer"] = "rms"
    vocab: int = 97
    hidden: int = 32
    inner: int = 48
    kernel: int = 3  # taps of a conv layer's filter
    eos: int = 96
    precision: Literal["float32", "float16"] = "float32"
    seed: int = 0
    epsilon: float = 1e-5


def make_weights(spec: Spec) -> Weights:
    """All weights of ``spec`` by name; a matrix is [in, out], as MatMul takes it.

    The column of the stop token in ``head`` is zero, so that it never wins.
    """
    rng = np.random.default_rng(spec.seed)
    shapes = _shapes(spec)
    weights = {name: _draw(rng, name, shape) for name, shape in shapes.items()}
    weights["head"][:, spec.eos] = 0
    return {name: value.astype(spec.precision) for name, value in weights.items()}


def _draw(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    values = rng.standard_normal(shape)
    if name.endswith("norm"):
        return 1 + 0.2 * values
    if name.endswith("bias"):
        return 0.2 * values
    if name in ("embed", "place"):
        return values
    gain = 2.0 if name.endswith(("query", "key", "head")) else 1.0
    scaled: Array = gain * values / np.sqrt(shape[-1] if name.endswith("filter") else shape[0])
    return scaled


def _shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    m = spec.hidden
    shapes: dict[str, tuple[int, ...]] = {"embed": (spec.vocab, m)}
    if spec.positions == "learned":
        shapes["place"] = (CAPACITY, m)
    for layer in spec.layers:
        own = _mixer_shapes(spec, layer) | _norm_shapes(spec, "norm")
        own |= _norm_shapes(spec, "mlp.norm") | {
            "mlp.up": (m, spec.inner),
            "mlp.down": (spec.inner, m),
        }
        shapes |= {f"{layer.index}.{name}": shape for name, shape in own.items()}
    return shapes | _norm_shapes(spec, "norm") | {"head": (m, spec.vocab)}


def _norm_shapes(spec: Spec, name: str) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {name: (spec.hidden,)}
    return shapes | {f"{name}.bias": (spec.hidden,)} if spec.norm == "layer" else shapes


def _mixer_shapes(spec: Spec, layer: Layer) -> dict[str, tuple[int, ...]]:
    m = spec.hidden
    if layer.kind == "conv":
        return {"in": (m, 3 * m), "filter": (m, spec.kernel), "out": (m, m)}
    query, key = layer.heads * layer.key_size, layer.kv_heads * layer.key_size
    value = layer.kv_heads * layer.value_size
    shapes: dict[str, tuple[int, ...]]
    shapes = {"query": (m, query), "out": (layer.heads * layer.value_size, m)}
    if layer.kind != "shared":
        shapes |= {"key": (m, key), "value": (m, value)}
    return shapes | {"decay": (m, layer.kv_heads)} if layer.kind == "recurrent" else shapes
