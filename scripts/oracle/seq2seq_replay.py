"""Naive runs of exported encoder-decoders with plain onnxruntime, behind transformers' own loop.

The caches of every prefix met are kept, so that beams need no reordering.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from .replay import DTYPES, present_name

Arrays = dict[str, np.ndarray]


def session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


@dataclass
class Replay:
    """The files of one export: `first` makes the caches, `later` takes them; merged, they are one.

    `mode` is `recompute` (the whole decoder sequence in each step), `cached` (a row at a time, with
    its cache), or `batched` (the rows of a step together; they have the same length).
    """

    encoder: ort.InferenceSession
    first: ort.InferenceSession
    later: ort.InferenceSession
    mode: str
    seen: dict[tuple[Any, ...], Arrays] = field(default_factory=dict)

    def encode(self, feed: dict[str, Any]) -> BaseModelOutput:
        """The states (1, T, H) of one input."""
        wanted = {value.name: DTYPES[value.type] for value in self.encoder.get_inputs()}
        arrays = {name: feed[name].numpy().astype(dtype) for name, dtype in wanted.items()}
        states = self.encoder.run(["last_hidden_state"], arrays)[0]
        return BaseModelOutput(last_hidden_state=torch.from_numpy(states))

    def logits(self, states: np.ndarray, mask: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """(B, V): the scores after decoder ids (B, L), for states (B, T, H) and mask (B, T)."""
        size = len(ids) if self.mode == "batched" else 1
        parts = [slice(i, i + size) for i in range(0, len(ids), size)]
        return np.concatenate([self.rows(states[p], mask[p], ids[p]) for p in parts])

    def rows(self, states: np.ndarray, mask: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """The same for rows that go into one run; keeps the caches of each."""
        sources = [(states[i].tobytes(), mask[i].tobytes()) for i in range(len(ids))]
        keys = [(source, *row) for source, row in zip(sources, ids.tolist(), strict=True)]
        pasts = [self.seen[key[:-1]] for key in keys if key[:-1] in self.seen]
        past = None
        if len(pasts) == len(ids):
            past = {name: np.concatenate([row[name] for row in pasts]) for name in pasts[0]}
        outputs = self.step(states, mask, ids if past is None else ids[:, -1:], past)
        if self.mode != "recompute":
            kept = self.kept(outputs, past)
            for i, key in enumerate(keys):
                self.seen[key] = {name: value[i : i + 1] for name, value in kept.items()}
        return outputs["logits"][:, -1].astype(np.float32)

    def step(
        self, states: np.ndarray, mask: np.ndarray, ids: np.ndarray, past: Arrays | None
    ) -> Arrays:
        """All outputs by name; `past` has an array for each cache input."""
        run = self.first if past is None else self.later
        feed: Arrays = {}
        for value in run.get_inputs():
            dtype = DTYPES[value.type]
            if value.name == "input_ids":
                feed[value.name] = ids.astype(dtype)  # (B, S)
            elif value.name == "encoder_hidden_states":
                feed[value.name] = states.astype(dtype)
            elif value.name == "encoder_attention_mask":
                feed[value.name] = mask.astype(dtype)
            elif value.name == "use_cache_branch":
                feed[value.name] = np.array([past is not None])
            elif past is not None:
                feed[value.name] = past[value.name]
            else:
                _, heads, _, width = value.shape
                feed[value.name] = np.zeros((len(ids), heads, 0, width), dtype)
        names = [output.name for output in run.get_outputs()]
        return dict(zip(names, run.run(names, feed), strict=True))

    def kept(self, outputs: Arrays, past: Arrays | None) -> Arrays:
        """The caches after a step; those of the encoder are made by the first step alone."""
        caches = {}
        for value in self.later.get_inputs():
            if value.name.startswith("past_key_values"):
                old = past is not None and ".encoder." in value.name
                caches[value.name] = past[value.name] if old else outputs[present_name(value.name)]
        return caches


@contextmanager
def behind(model: PreTrainedModel, replay: Replay) -> Iterator[None]:
    """While it lasts, `generate` of the model asks the exported files for its numbers."""

    def forward(
        _self: PreTrainedModel,
        decoder_input_ids: torch.Tensor,
        encoder_outputs: BaseModelOutput,
        attention_mask: torch.Tensor | None = None,
        **_others: Any,
    ) -> Seq2SeqLMOutput:
        states = encoder_outputs[0]
        mask = torch.ones(states.shape[:2]) if attention_mask is None else attention_mask
        rows = replay.logits(states.numpy(), mask.numpy(), decoder_input_ids.numpy())
        return Seq2SeqLMOutput(logits=torch.from_numpy(rows)[:, None])  # (B, 1, V)

    model.forward = MethodType(forward, model)
    try:
        yield
    finally:
        del model.forward
