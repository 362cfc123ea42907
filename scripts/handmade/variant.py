"""What one hand-written fixture is: graphs, facts, and the list of all of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import onnx

from .builder import Builder
from .reference import forward, greedy
from .weights import Spec, Weights, make_weights

STEPS = 32
PROMPT_LENGTHS = (1, 4, 9, 17)
Padding = Literal["right", "left", "any"]


@dataclass
class Variant:
    """One fixture: ``model`` and other graphs by file name, the facts, and how to check it.

    ``padding`` is the side on which unequal rows may be padded in one batch; None if neither.
    ``parts`` is how many external data files the weights go to, ``config`` what config.json says
    beside or in place of the common keys. ``buffer`` says that no past may be shorter than what
    it will hold.
    """

    spec: Spec
    model: onnx.ModelProto
    pairs: list[tuple[str, str]]
    facts: dict[str, Any]
    padding: Padding | None = None
    others: dict[str, onnx.ModelProto] = field(default_factory=dict)
    parts: int = 0
    buffer: bool = False
    config: dict[str, int] = field(default_factory=dict)


VARIANTS: dict[str, Callable[[], Variant]] = {}


def variant(make: Callable[[], Variant]) -> Callable[[], Variant]:
    """Enter ``make`` in the list under its own name."""
    VARIANTS[make.__name__] = make
    return make


def finish(
    b: Builder,
    mode: str,
    *,
    lengths: str | None = None,
    padding: Padding | None = None,
    **facts: Any,
) -> Variant:
    """The variant of a finished builder; facts that follow from its spec are filled in.

    ``ragged`` says whether the graph's own mode lets rows of unequal length share a batch; a graph
    that must grow by exact lengths may still have a ``padding`` side where a shift changes nothing.
    """
    cached = [layer for layer in b.spec.layers if layer.kind == "attention" and mode != "none"]
    states = sum(layer.kind in ("conv", "recurrent") for layer in b.spec.layers)
    found = {
        "mode": mode,
        "lengths": lengths,
        "total": None,
        "ragged": padding is not None and mode != "grow",
        "padding": padding,
        "layers": len(cached),
        "layer_indices": [layer.index for layer in cached],
        "heads": [layer.kv_heads for layer in cached],
        "key_size": [layer.key_size for layer in cached],
        "value_size": [layer.value_size for layer in cached],
        "windows": [layer.window or None for layer in cached],
        "states": states,
        "mask": _mask_role(b, lengths),
        "positions": _rank(b, "position_ids"),
        "capacity": None,
        "empty_past": True,
        "logits": "full",
        "num_logits_to_keep": None,
        "cache_dtype": b.dtype if cached else None,
        "pairs": [list(pair) for pair in b.pairs],
        "batch_axis": [_axis(b, past, "batch_size") for past, _ in b.pairs],
        "seq_axis": [_axis(b, past, "past_sequence_length") for past, _ in b.pairs],
        "inputs": [value.name for value in b.inputs],
    }
    unknown = set(facts) - set(found)
    assert not unknown, unknown
    return Variant(b.spec, b.model(), b.pairs, found | facts, padding)


def _mask_role(b: Builder, lengths: str | None) -> str | None:
    """What is read of the mask: its values, its length, none of it; None without a mask."""
    if _rank(b, "attention_mask") is None:
        return None
    return {"mask_length": "length", "positions": "length", "past_length": "none"}.get(
        lengths or "", "values"
    )


def _rank(b: Builder, name: str) -> int | None:
    found = [value for value in b.inputs if value.name == name]
    return len(found[0].type.tensor_type.shape.dim) if found else None


def _axis(b: Builder, name: str, start: str) -> int | None:
    """The axis of the input ``name`` whose dim is named ``start...``; None if it has no such."""
    dims = next(value for value in b.inputs if value.name == name).type.tensor_type.shape.dim
    return next((i for i, dim in enumerate(dims) if dim.dim_param.startswith(start)), None)


def start(spec: Spec, opset: int = 18) -> Builder:
    """A builder with the weights that :func:`settle` finds for ``spec``."""
    settled = settle(spec)
    return Builder(settled, make_weights(settled), opset)


def prompts(spec: Spec) -> list[list[int]]:
    """Four prompts, the same for every decoder; none holds the stop token."""
    rng = np.random.default_rng(2024)
    return [rng.integers(0, spec.eos, length).tolist() for length in PROMPT_LENGTHS]


@lru_cache
def expected(spec: Spec) -> tuple[list[list[int]], list[list[float]]]:
    """Greedy tokens and their margins for each prompt of a settled ``spec``."""
    weights = make_weights(spec)
    rows = [greedy(spec, weights, prompt, STEPS) for prompt in prompts(spec)]
    return [tokens for tokens, _ in rows], [margins for _, margins in rows]


@lru_cache
def settle(spec: Spec) -> Spec:
    """``spec`` with the first seed whose tokens vary, win clearly and hang on what came before."""
    for seed in range(1000):
        found = replace(spec, seed=seed)
        if _worth(found, make_weights(found)):
            return found
    raise ValueError(f"no seed under 1000 gives a decoder worth testing: {spec}")


def _worth(spec: Spec, weights: Weights) -> bool:
    clear = 0.03 if spec.precision == "float16" else 0.005
    for prompt in prompts(spec):
        tokens, margins = greedy(spec, weights, prompt, STEPS)
        if len(set(tokens)) < 10 or min(margins) < clear or spec.eos in tokens:
            return False
        if not _hangs_on_past(spec, weights, prompt + tokens):
            return False
    return True


def _hangs_on_past(spec: Spec, weights: Weights, ids: list[int]) -> bool:
    """Whether most tokens would differ if the model saw nothing but the token before."""
    whole = forward(spec, weights, ids)[-STEPS:].argmax(axis=1)
    alone = [forward(spec, weights, [token])[-1].argmax() for token in ids[-STEPS:]]
    return bool(np.mean(whole != alone) > 0.5)


def names(wanted: Iterable[str], known: Iterable[str]) -> list[str]:
    """The fixtures asked for, or all that are known."""
    known = list(known)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise SystemExit(f"no such fixture: {', '.join(unknown)}; known: {', '.join(known)}")
    return list(wanted) or known
