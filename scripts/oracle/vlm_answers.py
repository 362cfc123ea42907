"""What transformers answers, by `generate` of the torch model with the family's processor."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import GenerationConfig, PreTrainedModel
from transformers.image_utils import load_image
from transformers.models.llava_onevision.modeling_llava_onevision import image_size_to_num_patches

from .vlm_cases import NEW, Case
from .vlm_processors import prepare, probe

JSON = dict[str, Any]
IMAGES = Path(__file__).parents[2] / "fixtures" / "images"


class Speaker:
    """A model with its processor; `marks` are the family's marks of an image and of a video.

    `late` says what positions begin with: 1 for PaliGemma.
    """

    def __init__(self, model: PreTrainedModel, processor: Any, marks: tuple[str, str]) -> None:
        self.model, self.processor, self.marks = model, processor, marks
        self.words = processor.tokenizer
        ends = model.config.eos_token_id or model.config.get_text_config().eos_token_id
        self.settings = GenerationConfig(
            bos_token_id=self.words.bos_token_id, eos_token_id=ends,
            pad_token_id=self.words.pad_token_id,
        )  # fmt: skip
        model.generation_config = self.settings

    def text(self, case: Case) -> str:
        """The prompt of a case, or its chat put into the template."""
        if case.messages:
            return self.words.apply_chat_template(
                case.messages, tokenize=False, add_generation_prompt=True
            )
        return case.prompt.replace("@", self.marks[0]).replace("%", self.marks[1])

    def inputs(self, case: Case) -> JSON:
        """The tensors that the processor makes of a case."""
        images = [load_image(str(IMAGES / name)) for name in case.images]
        video = [frame(*place) for place in case.video]
        return prepare(self.processor, self.text(case), images, video, case.processing)

    def generate(self, inputs: JSON, **options: Any) -> Any:
        config = GenerationConfig(
            **{**self.settings.to_diff_dict(), "max_new_tokens": NEW, "do_sample": False, **options}
        )
        with torch.inference_mode():
            return self.model.generate(
                **inputs, generation_config=config, return_dict_in_generate=True,
                output_scores=True,
            )  # fmt: skip

    def answer(self, case: Case) -> JSON:
        """The case as expected.json has it."""
        inputs = self.inputs(case)
        out = self.generate(inputs, **case.options)
        prompt = inputs["input_ids"]
        row = out.sequences[0, prompt.shape[1] :].tolist()
        told: JSON = {"name": case.name}
        if case.messages:
            told |= {"messages": case.messages}
        told |= {"prompt": self.text(case), "images": list(case.images)}
        if case.video:
            told["video"] = [list(place) for place in case.video]
        if case.processing:
            told["processing"] = case.processing
        told |= {"options": {"max_new_tokens": NEW} | case.options, "input_ids": prompt[0].tolist()}
        told |= self.positions(inputs)
        told |= {"tokens": row, "text": self.words.decode(row, skip_special_tokens=True)}
        if case.options:
            told["score"] = round(float(out.sequences_scores[0]), 5)
        else:
            told["margin"] = round(margin(out.scores), 5)
        return told | self.probes(inputs)

    def positions(self, inputs: JSON) -> JSON:
        """Qwen's positions (3, S) of the prompt, and what later ones are moved by."""
        found = self.places(inputs)
        if found is None:
            return {}
        return {"position_ids": found[0][:, 0].tolist(), "rope_delta": int(found[1][0, 0])}

    def places(self, inputs: JSON) -> tuple[torch.Tensor, torch.Tensor] | None:
        """(3,B,S) and (B,1), for the Qwens."""
        if not hasattr(self.model.model, "get_rope_index"):
            return None
        grids = {key: inputs.get(key) for key in ("image_grid_thw", "video_grid_thw")}
        if "second_per_grid_ts" in inputs:
            grids["second_per_grid_ts"] = inputs["second_per_grid_ts"]
        mask = inputs["attention_mask"]
        return self.model.model.get_rope_index(inputs["input_ids"], **grids, attention_mask=mask)

    def features(self, inputs: JSON, kind: str = "image") -> torch.Tensor | None:
        """What goes into the places of image tokens: (rows, D)."""
        name = "pixel_values" if kind == "image" else "pixel_values_videos"
        if name not in inputs:
            return None
        more = {}
        for key in ("pixel_attention_mask", "image_sizes", "batch_num_images"):
            if key in inputs:
                more[key] = inputs[key]
        grid = f"{kind}_grid_thw"
        if grid in inputs:
            more[grid] = inputs[grid]
        with torch.inference_mode():
            get = getattr(self.model.model, f"get_{kind}_features")
            found = get(inputs[name], **more)
        if isinstance(found, list | tuple):
            found = torch.cat(list(found))
        return found.reshape(-1, found.shape[-1])

    def token(self, kind: str) -> int:
        """The id in whose places the features of an image or of a video go."""
        return getattr(self.model.config, f"{kind}_token_id")

    def pack(self, inputs: JSON, look: Any) -> np.ndarray:
        """LLaVA-OneVision's rows (n, D) by transformers' packing; `look` runs the exported encoder.

        Only a prompt's single image is cut into tiles.
        """
        model, sizes = self.model.model, inputs["image_sizes"]
        counts = inputs["batch_num_images"].tolist()
        side = model.config.vision_config.image_size
        tiled = [count == 1 for count in counts for _ in range(count)]
        numbers = [
            image_size_to_num_patches(size, model.config.image_grid_pinpoints, side) if cut else 1
            for size, cut in zip(sizes, tiled, strict=True)
        ]
        pixels = [row[:n] for row, n in zip(inputs["pixel_values"], numbers, strict=True)]
        tiles = torch.cat(pixels).numpy()
        rows = torch.from_numpy(look(tiles)).split(numbers)
        newline = torch.from_numpy(look(tiles, name="image_newline"))
        with torch.inference_mode():
            packed, _ = model.pack_image_features(
                rows, sizes, newline, model.config.vision_aspect_ratio
            )
        return torch.cat(packed).numpy()

    def probes(self, inputs: JSON) -> JSON:
        """Numbers by which pixels and features are known."""
        told: JSON = {}
        for kind in ("image", "video"):
            features = self.features(inputs, kind)
            if features is not None:
                pixels = "pixel_values" if kind == "image" else "pixel_values_videos"
                told[pixels] = probe(inputs[pixels])
                told[f"{kind}_features"] = probe(features)
            if f"{kind}_grid_thw" in inputs:
                told[f"{kind}_grid_thw"] = inputs[f"{kind}_grid_thw"].tolist()
        if "second_per_grid_ts" in inputs:
            told["second_per_grid_ts"] = np.asarray(inputs["second_per_grid_ts"]).tolist()
        if "image_sizes" in inputs:
            told["image_sizes"] = inputs["image_sizes"].tolist()
        return told

    def together(self, rows: list[JSON]) -> JSON:
        """One batch of several prompts, texts padded on the left."""
        longest = max(row["input_ids"].shape[1] for row in rows)
        batch: JSON = {}
        pads = {"input_ids": self.words.pad_token_id, "attention_mask": 0, "token_type_ids": 0}
        for key, pad in pads.items():
            if key in rows[0]:
                batch[key] = torch.cat([padded(row[key], longest, pad) for row in rows])
        for key in {key for row in rows for key in row} - {*batch}:
            parts = [row[key] for row in rows if key in row]
            if key == "pixel_attention_mask" or (key == "pixel_values" and parts[0].dim() == 5):
                parts = tiles(parts)
            batch[key] = torch.cat(parts)
        return batch

    def answer_batch(self, cases: list[Case]) -> list[JSON]:
        """Each row alone, and whether it is the same in the batch."""
        told = [self.answer(case) for case in cases]
        batch = self.together([self.inputs(case) for case in cases])
        out = self.generate(batch)
        length = batch["input_ids"].shape[1]
        for row, new in zip(told, out.sequences[:, length:].tolist(), strict=True):
            row["like_alone"] = new[: len(row["tokens"])] == row["tokens"]
        return told


def frame(name: str, index: int) -> Image.Image:
    """One picture of a file that has several."""
    image = Image.open(IMAGES / name)
    image.seek(index)
    return image.convert("RGB")


def margin(scores: tuple[torch.Tensor, ...]) -> float:
    """The smallest gap of the two best scores in any step."""
    best = torch.stack(scores)[:, 0].float().topk(2).values
    return float((best[:, 0] - best[:, 1]).min())


def padded(values: torch.Tensor, length: int, pad: int) -> torch.Tensor:
    return torch.nn.functional.pad(values, (length - values.shape[1], 0), value=pad)


def tiles(parts: list[torch.Tensor]) -> list[torch.Tensor]:
    """Each (images, tiles, ...) with as many tiles as the one with most, by empty ones."""
    most = max(part.shape[1] for part in parts)
    return [
        torch.cat([part, part.new_zeros(len(part), most - part.shape[1], *part.shape[2:])], 1)
        for part in parts
    ]
