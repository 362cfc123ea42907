"""Naive runs of an exported file with plain onnxruntime: one row, the obvious loops."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort

FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(int8)": np.int8}
DTYPES = FLOATS | INTEGERS | {"tensor(uint8)": np.uint8, "tensor(bool)": np.bool_}
PLAIN = {"input_ids", "attention_mask", "position_ids", "use_cache_branch", "inputs_embeds"}


@dataclass
class Greedy:
    """Tokens of one prompt and the gap of the two best logits in each step."""

    tokens: list[int]
    margins: list[float]


class Replay:
    """One exported decoder.

    `first` is the file for the empty cache where the export is a pair, `table` (V, hidden) what
    turns ids into `inputs_embeds`, `dims` the sizes of symbolic cache dims that start above 0.
    """

    def __init__(
        self,
        path: Path,
        first: Path | None = None,
        table: np.ndarray | None = None,
        dims: dict[str, int] | None = None,
    ) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.first = self.session
        if first is not None:
            self.first = ort.InferenceSession(first, options, providers=["CPUExecutionProvider"])
        self.table = table
        self.dims = dims or {}
        self.caches = [i for i in self.session.get_inputs() if i.name not in PLAIN]

    def run(
        self, ids: list[int], past: dict[str, np.ndarray] | None, done: int
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Feeds `ids` after `done` cached tokens; returns the last logits (V,) and the cache."""
        session = self.session if past is not None else self.first
        feed: dict[str, np.ndarray] = {}
        for value in session.get_inputs():
            dtype = DTYPES[value.type]
            if value.name == "input_ids":
                feed[value.name] = np.array([ids], dtype)  # (1, S)
            elif value.name == "inputs_embeds":
                assert self.table is not None
                feed[value.name] = self.table[ids][None].astype(dtype)  # (1, S, hidden)
            elif value.name == "attention_mask":
                feed[value.name] = np.ones((1, done + len(ids)), dtype)  # (1, T)
            elif value.name == "position_ids":
                feed[value.name] = np.arange(done, done + len(ids), dtype=dtype)[None]  # (1, S)
            elif value.name == "use_cache_branch":
                feed[value.name] = np.array([past is not None])
            else:
                feed[value.name] = past[value.name] if past else self.empty(value)
        names = [output.name for output in session.get_outputs()]
        outputs = dict(zip(names, session.run(names, feed), strict=True))
        logits = outputs.pop("logits")[0]  # (S, V), (1, V) or (V,)
        cache = {value.name: outputs[present_name(value.name)] for value in self.caches}
        return logits.reshape(-1, logits.shape[-1])[-1].astype(np.float32), cache

    def empty(self, value: ort.NodeArg) -> np.ndarray:
        """The first cache of one row: a batch of 1, no positions yet, states of zeros."""
        shape = [1] + [
            dim if isinstance(dim, int) else self.dims.get(dim, 0) for dim in value.shape[1:]
        ]
        return np.zeros(shape, DTYPES[value.type])

    def recompute(self, prompt: list[int], new: int) -> Greedy:
        """Greedy tokens with the whole sequence and an empty cache in every step."""
        ids, margins = list(prompt), []
        for _ in range(new):
            logits, _ = self.run(ids, None, 0)
            ids.append(int(logits.argmax()))
            margins.append(gap(logits))
        return Greedy(ids[len(prompt) :], margins)

    def cached(self, prompt: list[int], new: int) -> Greedy:
        """Greedy tokens with each present fed back as the next past, where there is a cache."""
        if not self.caches:
            return self.recompute(prompt, new)
        logits, cache = self.run(prompt, None, 0)
        tokens, margins = [int(logits.argmax())], [gap(logits)]
        for done in range(len(prompt), len(prompt) + new - 1):
            logits, cache = self.run([tokens[-1]], cache, done)
            tokens.append(int(logits.argmax()))
            margins.append(gap(logits))
        return Greedy(tokens, margins)


def gap(logits: np.ndarray) -> float:
    """Distance of the two best of (V,)."""
    second, first = np.partition(logits, -2)[-2:]
    return float(first - second)


def present_name(past: str) -> str:
    """What the exporters here call the output that belongs to a cache input."""
    if past.startswith("past_key_values."):
        return past.replace("past_key_values.", "present.", 1)
    return past.replace("past", "present", 1)
