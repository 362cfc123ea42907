"""The exported graphs of a speech model in plain onnxruntime, compared with torch step by step."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from transformers import PreTrainedModel

from .speech_exporters import ENCODER


class Graphs:
    """An encoder and a decoder: one file for its first step and one, maybe the same, for others."""

    def __init__(self, folder: Path, first: str, later: str) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        opened = {
            name: ort.InferenceSession(folder / name, options, providers=["CPUExecutionProvider"])
            for name in {ENCODER, first, later}
        }
        self.encoder, self.first, self.later = opened[ENCODER], opened[first], opened[later]

    def encode(self, heard: np.ndarray) -> np.ndarray:
        """States (1,T,H) of features (1,80,3000) or samples (1,N)."""
        feed = {self.encoder.get_inputs()[0].name: heard}
        if len(self.encoder.get_inputs()) > 1:
            feed["attention_mask"] = np.ones(heard.shape, np.int64)
        return self.encoder.run(None, feed)[0]

    def decode(self, heard: np.ndarray, steps: list[list[int]]) -> dict[str, np.ndarray]:
        """Logits (1,S,V) and any cross-attentions (1,heads,S,T), over all tokens of the steps."""
        states, past, done = self.encode(heard), dict[str, np.ndarray](), 0
        found: dict[str, list[np.ndarray]] = {}
        for ids in steps:
            session = self.later if past else self.first
            feed: dict[str, Any] = {}
            for value in session.get_inputs():
                known = {
                    "input_ids": np.array([ids]),
                    "encoder_hidden_states": states,
                    "encoder_attention_mask": np.ones(heard.shape, np.int64),
                    "cache_position": np.arange(done, done + len(ids)),
                    "use_cache_branch": np.array([bool(past)]),
                }
                if value.name in known:
                    feed[value.name] = known[value.name]
                else:
                    shape = [1 if axis == 0 else dim if isinstance(dim, int) else 0
                             for axis, dim in enumerate(value.shape)]  # fmt: skip
                    feed[value.name] = past.get(value.name, np.zeros(shape, np.float32))
            names = [output.name for output in session.get_outputs()]
            for name, array in zip(names, session.run(names, feed), strict=True):
                if not name.startswith("present."):
                    found.setdefault(name, []).append(array)
                elif not (done and ".encoder." in name):  # later steps leave those empty
                    past[name.replace("present.", "past_key_values.")] = array
            done += len(ids)
        return {name: np.concatenate(arrays, axis=-2) for name, arrays in found.items()}


@torch.inference_mode()
def compare(model: PreTrainedModel, graphs: Graphs, heard: torch.Tensor, ids: list[int]) -> float:
    """The largest difference over `ids`, fed in one step of three and in many of one."""
    wanted = model(
        heard, decoder_input_ids=torch.tensor([ids]), use_cache=False, output_attentions=True
    )
    steps = [ids[:3], *([token] for token in ids[3:])]
    got = graphs.decode(heard.numpy(), steps)
    worst = float(np.abs(got["logits"] - wanted.logits.numpy()).max())
    for layer, seen in enumerate(wanted.cross_attentions):
        name = f"cross_attentions.{layer}"
        if name in got:
            worst = max(worst, float(np.abs(got[name] - seen.numpy()).max()))
    return worst
