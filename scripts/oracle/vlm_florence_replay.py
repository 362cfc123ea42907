"""Naive runs of Florence-2's exported sessions with plain onnxruntime and NumPy.

Letters: B rows, T rows of the encoder, L decoder ids, H width, V ids.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from transformers import Florence2ForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from .exporters import MERGED
from .seq2seq_replay import Arrays, Replay, session
from .vlm_florence_export import EMBED, ENCODER, VISION
from .vlm_florence_tokens import IDS, VOCAB

CLOSE = 1e-4  # between logits of torch and of the files
START, BEGIN, END = IDS["decoder_start_token_id"], IDS["bos_token_id"], IDS["eos_token_id"]


@dataclass(kw_only=True)
class Sessions(Replay):
    """The four files; `mode` as in Replay."""

    embed: ort.InferenceSession
    vision: ort.InferenceSession

    def encode(self, feed: dict[str, Any]) -> BaseModelOutput:
        """The states (B, T, H) of a batch; features take the places of image tokens."""
        ids = feed["input_ids"].numpy()  # (B, T)
        embeds = self.embed.run(None, {"input_ids": ids})[0]
        if "pixel_values" in feed:
            pixels = feed["pixel_values"].numpy()
            features = self.vision.run(["image_features"], {"pixel_values": pixels})[0]
            embeds[ids == VOCAB - 1] = features.reshape(-1, features.shape[-1])
        given = {"inputs_embeds": embeds, "attention_mask": feed["attention_mask"].numpy()}
        states = self.encoder.run(["last_hidden_state"], given)[0]
        return BaseModelOutput(last_hidden_state=torch.from_numpy(states))

    def step(
        self, states: np.ndarray, mask: np.ndarray, ids: np.ndarray, past: Arrays | None
    ) -> Arrays:
        """All outputs by name after ids (B, L); `past` has an array for each cache input."""
        feed: Arrays = {
            "inputs_embeds": self.embed.run(None, {"input_ids": ids})[0],
            "encoder_hidden_states": states,
            "encoder_attention_mask": mask.astype(np.int64),
            "use_cache_branch": np.array([past is not None]),
        }
        for value in self.first.get_inputs():
            if value.name not in feed:
                _, heads, _, width = value.shape
                empty = np.zeros((len(ids), heads, 0, width), np.float32)
                feed[value.name] = empty if past is None else past[value.name]
        names = [output.name for output in self.first.get_outputs()]
        return dict(zip(names, self.first.run(names, feed), strict=True))

    def greedy(self, feed: dict[str, Any], count: int) -> list[list[int]]:
        """The best token each time, the first and the last forced: up to `count` of each row."""
        states, mask = self.encode(feed)[0].numpy(), feed["attention_mask"].numpy()
        ids = np.full((len(mask), 1), START)
        rows: list[list[int]] = [[] for _ in mask]
        past = None
        for step in range(count):
            outputs = self.step(states, mask, ids, past)
            past = self.kept(outputs, past)
            best = outputs["logits"][:, -1].argmax(-1)  # (B,)
            forced = BEGIN if step == 0 else END if step == count - 1 else None
            ids = (best if forced is None else np.full_like(best, forced))[:, None]
            for row, token in zip(rows, ids[:, 0].tolist(), strict=True):
                if END not in row:
                    row.append(token)
        return rows


def load(folder: Path, mode: str) -> Sessions:
    decoder = session(folder / MERGED)
    return Sessions(
        encoder=session(folder / ENCODER), first=decoder, later=decoder, mode=mode,
        embed=session(folder / EMBED), vision=session(folder / VISION),
    )  # fmt: skip


def compare(model: Florence2ForConditionalGeneration, sessions: Sessions) -> None:
    """Features, states and logits must be torch's for any number of rows, steps and images."""
    generator = torch.Generator().manual_seed(0)
    for rows, length, before, now in ((1, 1, 1, 1), (2, 7, 3, 1), (3, 40, 2, 5)):
        ids = torch.randint(4, VOCAB - 1, (rows, length), generator=generator)
        mask = torch.ones_like(ids)
        mask[0, length - length // 3 :] = 0
        decoder = torch.randint(4, VOCAB - 1, (rows, before + now), generator=generator)
        side = sessions.vision.get_inputs()[0].shape[-1]
        pixels = torch.randn(rows, 3, side, side, generator=generator)
        with torch.inference_mode():
            features = model.get_image_features(pixels)
            found = model(input_ids=ids, attention_mask=mask, decoder_input_ids=decoder)
        close(sessions.vision.run(None, {"pixel_values": pixels.numpy()})[0], features)
        states = sessions.encode({"input_ids": ids, "attention_mask": mask})[0].numpy()
        first = sessions.step(states, mask.numpy(), decoder[:, :before].numpy(), None)
        past = sessions.kept(first, None)
        later = sessions.step(states, mask.numpy(), decoder[:, before:].numpy(), past)
        close(np.concatenate([first["logits"], later["logits"]], axis=1), found.logits)


def close(got: np.ndarray, wanted: torch.Tensor) -> None:
    """RuntimeError if arrays of one shape are apart."""
    if got.shape != wanted.shape or np.abs(got - wanted.numpy()).max() > CLOSE:
        raise RuntimeError(f"a file gives other numbers than torch: {got.shape}, {wanted.shape}")
