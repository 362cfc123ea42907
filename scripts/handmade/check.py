"""Runs a graph with plain ONNX Runtime, naively, against the tokens of the reference.

Every graph is run in several ways: all tokens anew in each step with an empty past; a prompt and
then one token a step, the presents becoming the pasts; the same with one buffer as past and
present, where the mode is in place; and, where unequal rows may share a batch, all prompts
together, padded on the side that the graph allows. A side that it excludes must go wrong.
"""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from .reference import forward
from .variant import Variant, expected, prompts
from .weights import CAPACITY, Array, make_weights

NUMPY = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.object_,
}
TOLERANCE = {"float32": 2e-3, "float16": 8e-2}


class WrongLogitsError(Exception):
    """A graph does not say what the reference says."""


class Naive:
    """A session and its pasts, as NumPy arrays or as buffers that are also the presents."""

    def __init__(self, variant: Variant, folder: Path) -> None:
        self.variant = variant
        self.sessions = {path.name: session(path) for path in sorted(folder.glob("*.onnx"))}
        self.main = self.sessions["model.onnx"]
        self.inputs = {value.name: value for value in self.main.get_inputs()}
        self.pasts: dict[str, Array] = {}
        self.buffers: dict[str, ort.OrtValue] = {}

    def restart(self, batch: int, rows: int = 0, shared: bool = False) -> None:
        """Empty pasts for ``batch`` rows; with ``rows`` they are buffers of that length.

        A ``shared`` buffer is also the present; states have a fixed size and are never shared.
        """
        self.pasts, self.buffers = {}, {}
        rows = CAPACITY if self.variant.buffer else rows
        facts = self.variant.facts
        for (past, _), *axes in zip(
            self.variant.pairs, facts["batch_axis"], facts["seq_axis"], strict=True
        ):
            dims = self._dims(self.inputs[past].shape, axes, batch, rows)
            empty: Array = np.zeros(dims, NUMPY[self.inputs[past].type])
            if shared and axes[1] is not None:
                self.buffers[past] = ort.OrtValue.ortvalue_from_numpy(empty)
            else:
                self.pasts[past] = empty

    def _dims(self, shape: list[Any], axes: list[int | None], batch: int, rows: int) -> list[int]:
        """A cache's dims; ``axes`` are those of the batch and of the tokens."""
        layer = self.variant.spec.layers[0]
        dims = [dim if isinstance(dim, int) else layer.key_size for dim in shape]
        many = "num_heads" in str(shape[0])
        for axis, size in zip(axes, (batch * layer.kv_heads if many else batch, rows), strict=True):
            if axis is not None and not isinstance(shape[axis], int):
                dims[axis] = size
        return dims

    def step(self, ids: Array, mask: Array, positions: Array) -> Array:
        """Logits [B, S, V] (or [B, 1, V]) of ``ids`` [B, S], ``mask`` [B, T], ``positions`` [B, S].

        The presents become the pasts.
        """
        outputs = self._run(self._feed(ids, mask, positions))
        for past, present in self.variant.pairs:
            if past in self.pasts:
                self.pasts[past] = outputs[present]
        got = outputs["logits"].astype(np.float64)
        return got[:, None] if got.ndim == 2 else got

    def _run(self, feed: dict[str, Any]) -> dict[str, Array]:
        presents, binding = dict(self.variant.pairs), self.main.io_binding()
        for name, array in feed.items():
            binding.bind_cpu_input(name, np.array(array, order="C"))
        for past, buffer in self.buffers.items():
            binding.bind_ortvalue_input(past, buffer)
            binding.bind_ortvalue_output(presents[past], buffer)
        held = [presents[past] for past in self.buffers]
        others = [o.name for o in self.main.get_outputs() if o.name not in held]
        for name in others:
            binding.bind_output(name)
        self.main.run_with_iobinding(binding)
        outputs = dict(zip(held + others, binding.get_outputs(), strict=True))  # in binding order
        return {name: outputs[name].numpy() for name in others}

    def _feed(self, ids: Array, mask: Array, positions: Array) -> dict[str, Any]:
        total = mask.shape[1]
        known: dict[str, Any] = {
            "input_ids": ids,
            "attention_mask": mask,
            "position_ids": positions,
            "num_logits_to_keep": 0,
            "use_cache_branch": [any(v.shape[-2] for v in self.pasts.values())],
            "seqlens_k": mask.sum(axis=1) - 1,
            "total_sequence_length": total,
            "past_sequence_length": [total - ids.shape[1]],
            "write_indices": positions[:, 0],
        }
        if "inputs_embeds" in self.inputs:
            embed = self.sessions["embed_tokens.onnx"]
            known["inputs_embeds"] = embed.run(None, {"input_ids": ids})[0]
        feed: dict[str, Any] = dict(self.pasts)
        for name, value in self.inputs.items():
            if name in self.pasts or name in self.buffers:
                continue
            array: Array = np.asarray(known[name], NUMPY[value.type])
            if array.ndim < len(value.shape):  # positions [3, B, S], a number of shape [1]
                array = np.broadcast_to(array, (value.shape[0], *array.shape))
            feed[name] = array
        return feed


def check(variant: Variant, folder: Path) -> float:
    """Run the graphs in ``folder``; return how far logits are from the reference at most."""
    naive = Naive(variant, folder)
    worst = max(_recompute(naive), _cached(naive) if variant.pairs else 0.0)
    if variant.facts["mode"] == "in_place":
        worst = max(worst, _cached(naive, shared=True))
    if not variant.pairs:
        return max(worst, _ragged_recompute(naive))
    for side in ("right", "left"):
        if variant.padding in (side, "any"):
            worst = max(worst, _ragged(naive, side))
        else:
            _must_fail(partial(_ragged, naive, side), f"padding {side}")
    if variant.facts["total"] == "values":
        worst = max(worst, _ragged(naive, "right", static=True))
    if variant.facts["lengths"] == "past_length":
        _must_fail(partial(_cached, naive, shared=True), "a buffer longer than the past")
    return worst


def _must_fail(run: Callable[[], float], what: str) -> None:
    """What the facts exclude gives other logits, or an error of the operator."""
    try:
        run()
    except (WrongLogitsError, RuntimeError):
        return
    raise AssertionError(f"{what} is exact, though the facts exclude it")


def _recompute(naive: Naive) -> float:
    rows = []
    for prompt, want in zip(prompts(naive.variant.spec), _tokens(naive), strict=True):
        row = []
        for step in range(len(want)):
            ids = np.array([prompt + want[:step]])
            naive.restart(1)
            row.append(naive.step(ids, np.ones_like(ids), _arange(ids))[0, -1])
        rows.append(row)
    return _compare(naive, rows, "full recomputation")


def _cached(naive: Naive, shared: bool = False) -> float:
    rows = []
    for prompt, want in zip(prompts(naive.variant.spec), _tokens(naive), strict=True):
        # The same row twice: a batch axis in the wrong place would show.
        naive.restart(2, CAPACITY if shared else 0, shared)
        ids = np.array([prompt, prompt])
        row = [naive.step(ids, np.ones_like(ids), _arange(ids))[1, -1]]
        for step, token in enumerate(want[:-1]):
            total = len(prompt) + step + 1
            mask, one = np.ones((2, total), np.int64), np.ones((2, 1), np.int64)
            row.append(naive.step(one * token, mask, one * (total - 1))[1, -1])
        rows.append(row)
    return _compare(naive, rows, "one buffer" if shared else "cached steps")


def _ragged(naive: Naive, side: str, static: bool = False) -> float:
    """All prompts in one batch; the mask may be ``static``, as long as the buffer.

    Right: where the graph counts rows (a buffer, left-justified mask) the pads are written over;
    else they stay as masked holes. Left: positions count from each row's first real token.
    """
    spec, want = naive.variant.spec, np.array(_tokens(naive))  # (B, steps)
    lengths = np.array([len(prompt) for prompt in prompts(spec)])
    longest, batch = lengths.max(), len(lengths)
    in_place = naive.variant.facts["mode"] == "in_place"
    column = np.arange(longest)
    if side == "right":
        mask = (column < lengths[:, None]).astype(np.int64)
        if static:
            mask = np.pad(mask, ((0, 0), (0, CAPACITY - longest)))
    else:
        mask = (column >= longest - lengths[:, None]).astype(np.int64)
    positions = np.maximum(mask.cumsum(axis=1) - 1, 0)[:, :longest]
    ids = np.full((batch, longest), 1)
    ids[mask[:, :longest] == 1] = np.concatenate(prompts(spec))
    if naive.variant.facts["logits"] == "full" or side == "left":
        naive.restart(batch, CAPACITY if in_place else 0, shared=in_place)
        got = naive.step(ids, mask, positions)
        last = lengths - 1 if side == "right" else np.full(batch, -1)
        steps = [got[np.arange(batch), last]]
    else:
        steps = [_row_by_row(naive)]
    for step in range(want.shape[1] - 1):
        if in_place and side == "right":
            total = CAPACITY if static else longest + step + 1
            mask = (np.arange(total) < lengths[:, None] + step + 1).astype(np.int64)
        else:
            mask = np.concatenate([mask, np.ones((batch, 1), np.int64)], axis=1)
        positions = lengths[:, None] + step
        steps.append(naive.step(want[:, step : step + 1], mask, positions)[:, -1])
    return _compare(naive, np.stack(steps, axis=1), f"ragged batch, padded {side}")


def _ragged_recompute(naive: Naive) -> float:
    """All prompts in one batch, padded right, without a cache."""
    rows, want = [], _tokens(naive)
    for step in range(len(want[0])):
        whole = [a + b[:step] for a, b in zip(prompts(naive.variant.spec), want, strict=True)]
        lengths = np.array([len(row) for row in whole])
        ids = np.array([row + [1] * (lengths.max() - len(row)) for row in whole])
        mask = (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int64)
        rows.append(naive.step(ids, mask, _arange(ids))[np.arange(len(ids)), lengths - 1])
    return _compare(naive, np.stack(rows, axis=1), "ragged recomputation")


def _row_by_row(naive: Naive) -> Array:
    """Run each prompt alone into a buffer, then put the buffers together: first logits [B, V]."""
    logits, pasts = [], []
    for prompt in prompts(naive.variant.spec):
        ids = np.array([prompt])
        naive.restart(1, CAPACITY)
        logits.append(naive.step(ids, np.ones_like(ids), _arange(ids))[0, -1])
        pasts.append(naive.pasts)
    naive.pasts = {name: np.concatenate([row[name] for row in pasts]) for name in pasts[0]}
    return np.stack(logits)


def _compare(naive: Naive, rows: Iterable[Any], how: str) -> float:
    spec, want = naive.variant.spec, _tokens(naive)
    worst = 0.0
    for prompt, tokens, row in zip(prompts(spec), want, rows, strict=True):
        found = np.stack(row)  # (steps, V)
        if found.argmax(axis=1).tolist() != tokens:
            raise WrongLogitsError(f"{how}: other tokens than the reference")
        truth = forward(spec, make_weights(spec), prompt + tokens[:-1])[len(prompt) - 1 :]
        worst = max(worst, float(np.abs(found - truth).max()))
    if worst > TOLERANCE[spec.precision]:
        raise WrongLogitsError(f"{how}: logits are off by {worst:.2g}")
    return worst


def _tokens(naive: Naive) -> list[list[int]]:
    return expected(naive.variant.spec)[0]


def _arange(ids: Array) -> Array:
    return np.broadcast_to(np.arange(ids.shape[1]), ids.shape)


def session(path: Path) -> ort.InferenceSession:
    """A session of the graph at ``path`` on the CPU."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
