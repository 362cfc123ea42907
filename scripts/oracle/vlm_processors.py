"""The processors of the vision-language families: their files, and what they make of a prompt."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from transformers import (
    BatchFeature,
    CLIPImageProcessor,
    Gemma3ImageProcessor,
    Gemma3Processor,
    Idefics3ImageProcessor,
    Idefics3Processor,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaProcessor,
    PaliGemmaProcessor,
    PreTrainedTokenizerBase,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    SiglipImageProcessor,
)

from .vlm_models import IMAGE, PATCH

JSON = dict[str, Any]
SQUARE = {"height": IMAGE, "width": IMAGE}
COUNT = (IMAGE // PATCH) ** 2  # patches of an image


class Frames:
    """The place of a video processor, whose classes need torchvision: the slow one of old.

    It takes each video as a list of frames.
    """

    def __init__(self, images: Qwen2VLImageProcessor) -> None:
        self.images, self.merge_size = images, images.merge_size
        self.temporal_patch_size = images.temporal_patch_size

    def __call__(self, videos: Any, **_options: Any) -> BatchFeature:
        return self.images.preprocess(images=None, videos=videos)


def bare(kind: type, **attributes: Any) -> Any:
    """A processor without a check of its parts: those of videos are missing."""
    made = kind.__new__(kind)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def smolvlm(words: PreTrainedTokenizerBase) -> Any:
    images = Idefics3ImageProcessor(
        size={"longest_edge": 2 * IMAGE}, max_image_size={"longest_edge": IMAGE}
    )
    return Idefics3Processor(images, words, image_seq_len=COUNT // 4)


def qwen(kind: type, words: PreTrainedTokenizerBase) -> Any:
    images = Qwen2VLImageProcessor(
        min_pixels=IMAGE**2, max_pixels=(2 * IMAGE) ** 2, patch_size=PATCH
    )
    return bare(
        kind, image_processor=images, tokenizer=words, video_processor=Frames(images),
        image_token="<|image_pad|>", video_token="<|video_pad|>",
        image_token_id=words.convert_tokens_to_ids("<|image_pad|>"),
        video_token_id=words.convert_tokens_to_ids("<|video_pad|>"),
    )  # fmt: skip


def qwen2_vl(words: PreTrainedTokenizerBase) -> Any:
    return qwen(Qwen2VLProcessor, words)


def qwen2_5_vl(words: PreTrainedTokenizerBase) -> Any:
    return qwen(Qwen2_5_VLProcessor, words)


def llava(words: PreTrainedTokenizerBase) -> Any:
    images = CLIPImageProcessor(size={"shortest_edge": IMAGE}, crop_size=dict(SQUARE))
    return LlavaProcessor(
        images, words, patch_size=PATCH, vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )  # fmt: skip


def onevision(words: PreTrainedTokenizerBase) -> Any:
    sides = [IMAGE * n for n in (1, 2, 3)]
    images = LlavaOnevisionImageProcessor(
        size=dict(SQUARE),
        image_grid_pinpoints=[[rows, columns] for rows in sides for columns in sides],
    )
    return bare(
        LlavaOnevisionProcessor, image_processor=images, tokenizer=words,
        num_image_tokens=COUNT, vision_feature_select_strategy="full",
        vision_aspect_ratio="anyres_max_4", image_token="<image>", video_token="<video>",
        image_token_id=words.convert_tokens_to_ids("<image>"),
        video_token_id=words.convert_tokens_to_ids("<video>"),
    )  # fmt: skip


def gemma3(words: PreTrainedTokenizerBase) -> Any:
    return Gemma3Processor(
        Gemma3ImageProcessor(size=dict(SQUARE)), words, image_seq_length=COUNT // 4
    )


def paligemma(words: PreTrainedTokenizerBase) -> Any:
    images = SiglipImageProcessor(size=dict(SQUARE), image_mean=[0.5] * 3, image_std=[0.5] * 3)
    images.image_seq_length = COUNT
    return PaliGemmaProcessor(images, words)


#: what processor_config.json has for a family beside its class, in official repositories
SETTINGS = {
    "Idefics3Processor": ["image_seq_len"],
    "LlavaProcessor": [
        "image_token", "num_additional_image_tokens", "patch_size",
        "vision_feature_select_strategy",
    ],
    "LlavaOnevisionProcessor": [
        "image_token", "num_image_tokens", "video_token", "vision_aspect_ratio",
        "vision_feature_select_strategy",
    ],
    "Gemma3Processor": ["image_seq_length"],
}  # fmt: skip


def save(processor: Any, words: PreTrainedTokenizerBase, folder: Path) -> None:
    """Tokenizer, template and configurations, as repositories have them.

    `words` is a tokenizer that no processor has changed.
    """
    name = type(processor).__name__
    words.save_pretrained(folder)
    for needless in ("added_tokens.json", "merges.txt", "special_tokens_map.json", "vocab.json"):
        (folder / needless).unlink(missing_ok=True)
    content = processor.image_processor.to_dict() | {"processor_class": name}
    content.pop("_processor_class", None)
    content["image_processor_type"] = type(processor.image_processor).__name__
    write(content, folder / "preprocessor_config.json")
    if name in SETTINGS:
        settings = {key: getattr(processor, key) for key in SETTINGS[name]}
        write(settings | {"processor_class": name}, folder / "processor_config.json")


def write(content: JSON, path: Path) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def prepare(processor: Any, text: str, images: list[Any], video: list[Any], options: JSON) -> JSON:
    """The tensors of one prompt; special tokens are added if it does not begin with bos."""
    words = processor.tokenizer
    given = dict(options)
    if isinstance(processor, PaliGemmaProcessor) and not images:
        # the class asks for images; in a batch, a text without one is treated like this
        return dict(words(words.bos_token + text + "\n", return_tensors="pt"))
    if words.bos_token and text.startswith(words.bos_token):
        given["add_special_tokens"] = False
    if images:
        nested = not isinstance(processor, LlavaProcessor | Qwen2VLProcessor | Qwen2_5_VLProcessor)
        given["images"] = [images] if nested else images
    if video:
        given["videos"] = [video]
    return dict(processor(text=[text], return_tensors="pt", **given))


def probe(values: Any) -> JSON:
    """A few numbers by which an array is known: eight entries, by their places when flattened."""
    array = np.asarray(values, np.float64)
    places = np.linspace(0, array.size - 1, 8).astype(int).tolist()
    return {
        "shape": list(array.shape),
        "mean": round(float(array.mean()), 5),
        "at": places,
        "values": [round(float(array.reshape(-1)[i]), 5) for i in places],
    }
