"""The NumPy reference: a decoder that keeps no cache and computes everything anew, in float64.

It shares no code with the graphs, only the weights; what it computes is written as in the papers,
one head and one token at a time where that is the plainest form.
"""

import numpy as np

from .weights import ROPE_BASE, Array, Layer, Spec, Weights


def greedy(
    spec: Spec, weights: Weights, prompt: list[int], steps: int
) -> tuple[list[int], list[float]]:
    """The ``steps`` likeliest next tokens, and by how much each won over the second best."""
    ids, tokens, margins = list(prompt), [], []
    for _ in range(steps):
        logits = forward(spec, weights, ids)[-1]  # (V,)
        second, first = np.sort(logits)[-2:]
        tokens.append(int(logits.argmax()))
        margins.append(float(first - second))
        ids.append(tokens[-1])
    return tokens, margins


def forward(spec: Spec, weights: Weights, ids: list[int]) -> Array:
    """Logits (S, V) of the tokens ``ids`` (S,), float64."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    x = w["embed"][ids]  # (S, M)
    if spec.positions == "learned":
        x = x + w["place"][: len(ids)]
    shared: dict[int, tuple[Array, Array]] = {}
    for layer in spec.layers:
        own = _own(w, layer)
        x = x + _mix(spec, layer, own, _norm(spec, own, "norm", x), shared)
        inner = _norm(spec, own, "mlp.norm", x) @ own["mlp.up"]  # (S, inner)
        x = x + (inner * _sigmoid(inner)) @ own["mlp.down"]
    return _norm(spec, w, "norm", x) @ w["head"]


def rotate(x: Array, positions: Array) -> Array:
    """Rotary embedding of ``x`` (S, D) at ``positions`` (S,): halves, not pairs, are rotated."""
    half = x.shape[1] // 2
    angles = positions[:, None] * ROPE_BASE ** (-np.arange(half) / half)  # (S, D/2)
    first, second = x[:, :half], x[:, half:]
    turned = [first * np.cos(angles) - second * np.sin(angles)]
    turned.append(second * np.cos(angles) + first * np.sin(angles))
    return np.concatenate(turned, axis=1)


def slopes(heads: int) -> Array:
    """ALiBi slopes (H,): a geometric series that ends at 2**-8; ``heads`` is a power of two."""
    return 2.0 ** (-8 * np.arange(1, heads + 1) / heads)


def attention(query: Array, key: Array, value: Array, slope: float = 0.0, window: int = 0) -> Array:
    """One head's causal attention: query (S, D), key (S, D), value (S, E) -> (S, E).

    Each token sees itself and what came before, the last ``window`` tokens only if that is not 0;
    ``slope`` takes that much off a score per token of distance.
    """
    scores = query @ key.T / np.sqrt(query.shape[1])  # (S, S)
    distance = np.arange(len(query))[:, None] - np.arange(len(key))
    seen = (distance >= 0) & ((distance < window) if window else True)
    scores = np.where(seen, scores - slope * distance, -np.inf)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    mixed: Array = (powers / powers.sum(axis=1, keepdims=True)) @ value
    return mixed


def causal_filter(x: Array, taps: Array) -> Array:
    """Depthwise filter of ``x`` (S, M) with ``taps`` (M, L), whose last meets the newest token."""
    length = taps.shape[1]
    padded = np.concatenate([np.zeros((length - 1, x.shape[1])), x])  # (L-1+S, M)
    return np.stack([(padded[t : t + length] * taps.T).sum(axis=0) for t in range(len(x))])


def recurrence(query: Array, key: Array, value: Array, decay: Array) -> Array:
    """Gated linear attention of one head: a state (D, E) decays, takes in k v^T, is read by q.

    query, key (S, D), value (S, E), ``decay`` (S,) the factors in (0, 1) -> (S, E).
    """
    state = np.zeros((key.shape[1], value.shape[1]))
    out = []
    for q, k, v, factor in zip(query, key, value, decay, strict=True):
        state = factor * state + np.outer(k, v)
        out.append(q @ state / np.sqrt(len(q)))
    return np.stack(out)


def _mix(
    spec: Spec, layer: Layer, w: Weights, x: Array, shared: dict[int, tuple[Array, Array]]
) -> Array:
    if layer.kind == "conv":
        gate, out_gate, inner = np.split(x @ w["in"], 3, axis=1)
        return (out_gate * causal_filter(gate * inner, w["filter"])) @ w["out"]
    query = _heads(x @ w["query"], layer.heads)  # H arrays of (S, D)
    if layer.kind == "recurrent":
        return _recur(layer, w, x, query)
    if layer.kind == "shared":
        key, value = shared[layer.source]
    else:
        key = _place(spec, _heads(x @ w["key"], layer.kv_heads))
        value = _heads(x @ w["value"], layer.kv_heads)
        shared[layer.index] = key, value
    query, group = _place(spec, query), layer.heads // layer.kv_heads
    slope = slopes(layer.heads) if spec.positions == "alibi" else np.zeros(layer.heads)
    rows = [
        attention(query[h], key[h // group], value[h // group], slope[h], layer.window)
        for h in range(layer.heads)
    ]
    return np.concatenate(rows, axis=1) @ w["out"]


def _recur(layer: Layer, w: Weights, x: Array, query: Array) -> Array:
    key, value = _heads(x @ w["key"], layer.kv_heads), _heads(x @ w["value"], layer.kv_heads)
    decay = _sigmoid(x @ w["decay"])  # (S, K)
    group = layer.heads // layer.kv_heads
    rows = [
        recurrence(query[h], key[h // group], value[h // group], decay[:, h // group])
        for h in range(layer.heads)
    ]
    return np.concatenate(rows, axis=1) @ w["out"]


def _heads(x: Array, heads: int) -> Array:
    return np.stack(np.split(x, heads, axis=1))  # (S, H*D) -> (H, S, D)


def _place(spec: Spec, heads: Array) -> Array:
    if spec.positions != "rope":
        return heads
    return np.stack([rotate(head, np.arange(len(head))) for head in heads])


def _norm(spec: Spec, w: Weights, name: str, x: Array) -> Array:
    if spec.norm == "layer":
        x = x - x.mean(axis=1, keepdims=True)
    scaled: Array = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + spec.epsilon) * w[name]
    return scaled + w[f"{name}.bias"] if spec.norm == "layer" else scaled


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _own(w: Weights, layer: Layer) -> Weights:
    """The weights of one layer, by their names in it."""
    prefix = f"{layer.index}."
    return {name.removeprefix(prefix): w[name] for name in w if name.startswith(prefix)}
