"""A naive loop over the exported graphs with plain onnxruntime and NumPy.

Letters: B rows, S tokens of the longest prompt, D the decoder's width, V ids.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .replay import DTYPES, present_name
from .seq2seq_replay import session
from .vlm_exporters import DECODER, EMBED, VISION

Arrays = dict[str, np.ndarray]


@dataclass
class Prompt:
    """A batch of prompts, padded on the left.

    `ids` and `mask` (B,S); `positions` (B,S) or (3,B,S) and `later` (B,), the first position after
    the prompt; `types` (B,S), 1 where an image is; `features` by the id of the token that they
    replace, (rows,D) each.
    """

    ids: np.ndarray
    mask: np.ndarray
    positions: np.ndarray
    later: np.ndarray
    types: np.ndarray
    features: dict[int, np.ndarray]


class Graphs:
    """The three graphs of a folder; `size` is that of a head where the decoder leaves it open."""

    def __init__(self, folder: Path, size: int) -> None:
        self.size = size
        self.embed, self.vision, self.decoder = (
            session(folder / "onnx" / name) for name in (EMBED, VISION, DECODER)
        )

    def look(self, *values: np.ndarray, name: str = "image_features") -> np.ndarray:
        """An output of the vision encoder for what it takes, in its order."""
        wanted = self.vision.get_inputs()
        feed = {
            value.name: array.astype(DTYPES[value.type])
            for value, array in zip(wanted, values, strict=True)
        }
        return self.vision.run([name], feed)[0]

    def embeds(self, prompt: Prompt) -> np.ndarray:
        """The embeddings (B,S,D) with the features in their places."""
        embeds = self.embed.run(None, {"input_ids": prompt.ids})[0]
        for token, rows in prompt.features.items():
            embeds[prompt.ids == token] = rows
        return embeds

    def empty(self, rows: int, places: int = 0) -> Arrays:
        """Caches in which nothing is."""
        found: Arrays = {}
        for value in self.decoder.get_inputs():
            if value.name.startswith("past_key_values."):
                _, heads, _, size = value.shape
                shape = (rows, heads, places, size if isinstance(size, int) else self.size)
                found[value.name] = np.zeros(shape, np.float32)
        return found

    def run(self, told: Arrays) -> tuple[np.ndarray, Arrays]:
        """Logits (B,S,V) and caches of what the decoder takes of `told`."""
        feed = {value.name: told[value.name] for value in self.decoder.get_inputs()}
        names = [value.name for value in self.decoder.get_outputs()]
        found = dict(zip(names, self.decoder.run(names, feed), strict=True))
        past = [name for name in feed if name.startswith("past_key_values.")]
        return found["logits"], {name: found[present_name(name)] for name in past}

    def start(self, prompt: Prompt) -> tuple[np.ndarray, Arrays]:
        """Logits (B,V) after the prompts, and the caches."""
        logits, past = self.run({
            "inputs_embeds": self.embeds(prompt), "attention_mask": prompt.mask,
            "position_ids": prompt.positions, "token_type_ids": prompt.types,
            **self.empty(len(prompt.ids)),
        })  # fmt: skip
        return logits[:, -1], past

    def later(
        self, ids: np.ndarray, prompt: Prompt, done: int, past: Arrays
    ) -> tuple[np.ndarray, Arrays]:
        """The same for the next tokens (B,), `done` of them being in the cache."""
        embeds = self.embed.run(None, {"input_ids": ids[:, None]})[0]
        rows = len(ids)
        mask = np.concatenate([prompt.mask, np.ones((rows, done + 1), np.int64)], 1)
        positions = (prompt.later + done)[:, None]
        if prompt.positions.ndim == 3:
            positions = np.repeat(positions[None], 3, 0)
        logits, past = self.run({
            "inputs_embeds": embeds, "attention_mask": mask, "position_ids": positions,
            "token_type_ids": np.zeros((rows, 1), np.int64), **past,
        })  # fmt: skip
        return logits[:, -1], past

    def greedy(self, prompt: Prompt, new: int, ends: set[int]) -> list[list[int]]:
        """The tokens of each row, the one that ends it included."""
        logits, past = self.start(prompt)
        chosen = [logits.argmax(-1)]
        for done in range(new - 1):
            logits, past = self.later(chosen[-1], prompt, done, past)
            chosen.append(logits.argmax(-1))
        rows = np.stack(chosen, 1).tolist()
        return [until(row, ends) for row in rows]

    def beams(
        self, prompt: Prompt, new: int, count: int, ends: set[int]
    ) -> tuple[list[int], float]:
        """The best of `count` beams of one prompt and its score, those that end early left out."""
        logits, past = self.start(prompt)
        spread = np.zeros(count, int)
        scores = np.full(count, -np.inf)
        scores[0] = 0.0
        past = {name: value[spread] for name, value in past.items()}
        wide = repeated(prompt, count)
        logits = logits[spread]
        tokens = np.zeros((count, 0), int)
        for done in range(new):
            rest = logits.astype(np.float64)
            rest -= rest.max(-1, keepdims=True)
            rest -= np.log(np.exp(rest).sum(-1, keepdims=True))
            rest[:, sorted(ends)] = -np.inf
            total = (scores[:, None] + rest).reshape(-1)
            best = np.argsort(-total, kind="stable")[:count]
            source, token = np.divmod(best, rest.shape[-1])
            scores = total[best]
            tokens = np.concatenate([tokens[source], token[:, None]], 1)
            if done < new - 1:
                past = {name: value[source] for name, value in past.items()}
                logits, past = self.later(token, wide, done, past)
        return tokens[0].tolist(), float(scores[0] / new)


def until(row: list[int], ends: set[int]) -> list[int]:
    """A row up to the first of its ends."""
    stop = next((i + 1 for i, token in enumerate(row) if token in ends), len(row))
    return row[:stop]


def repeated(prompt: Prompt, count: int) -> Prompt:
    """The same prompt for all beams; what was in its place is in the cache already."""
    axis = prompt.positions.ndim - 2
    return Prompt(
        np.repeat(prompt.ids, count, 0), np.repeat(prompt.mask, count, 0),
        np.repeat(prompt.positions, count, axis), np.repeat(prompt.later, count, 0),
        np.repeat(prompt.types, count, 0), {},
    )  # fmt: skip


def prompt_of(speaker: Any, inputs: Any, graphs: Graphs, first: int = 0) -> Prompt:
    """The prompt of what a processor made, images seen through the exported encoder."""
    ids, mask = inputs["input_ids"].numpy(), inputs["attention_mask"].numpy()
    places = speaker.places(inputs)
    if places is None:
        positions = np.where(mask > 0, mask.cumsum(-1) - 1, 1)
        later = mask.sum(-1)
    else:
        positions = places[0].numpy()
        later = ids.shape[1] + places[1][:, 0].numpy()
    types = inputs["token_type_ids"].numpy() if "token_type_ids" in inputs else np.zeros_like(ids)
    features = {}
    for kind in ("image", "video"):
        rows = look(speaker, inputs, graphs, kind)
        if rows is not None:
            features[speaker.token(kind)] = rows
    return Prompt(ids, mask, positions + first, later + first, types, features)


def look(speaker: Any, inputs: Any, graphs: Graphs, kind: str) -> np.ndarray | None:
    """The rows (n,D) that replace the image tokens, by the exported encoder."""
    name = "pixel_values" if kind == "image" else "pixel_values_videos"
    if name not in inputs:
        return None
    pixels = inputs[name].numpy()
    if f"{kind}_grid_thw" in inputs:
        return graphs.look(pixels, inputs[f"{kind}_grid_thw"].numpy())
    if "pixel_attention_mask" in inputs:
        real = (pixels != 0).reshape(*pixels.shape[:2], -1).any(-1)  # tiles that are no padding
        mask = inputs["pixel_attention_mask"].numpy()
        found = graphs.look(pixels[real][None], mask[real][None])
    elif "image_sizes" in inputs:
        return speaker.pack(inputs, graphs.look)
    else:
        found = graphs.look(pixels)
    return found.reshape(-1, found.shape[-1])
