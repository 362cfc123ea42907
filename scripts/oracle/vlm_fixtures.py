"""The folders of fixtures/models with vision-language models."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import vlm_cases as cases
from . import vlm_models as models
from . import vlm_processors as processors
from . import vlm_tokens as tokens
from . import vlm_vision as vision
from .vlm_cases import Case
from .vlm_exporters import DECODER

EVERY = cases.PLAIN + cases.CHAT


@dataclass(frozen=True)
class Fixture:
    """One folder.

    `image` and `video` are what stands for them in a prompt; `sight` is what new tokens see of
    each other (see vlm_exporters); `first` is the position of the first token; `genai` says that
    the decoder is by the builder of onnxruntime-genai.
    """

    name: str
    about: str
    words: Callable[[], Any]
    model: Callable[[Any], Any]
    processor: Callable[[Any], Any]
    vision: type
    image: str = "<image>"
    video: str = ""
    asked: list[Case] = field(default_factory=lambda: EVERY)
    sight: str = "causal"
    first: int = 0
    embedding_std: float = 1.0
    genai: bool = False
    files: dict[str, str] = field(default_factory=lambda: {"fp32": f"onnx/{DECODER}"})

    @property
    def exporter(self) -> str:
        return "torch.onnx, own wrappers" + (", onnxruntime-genai" if self.genai else "")

    @property
    def family(self) -> str:
        return self.name


def qwen(name: str, about: str, model: Any, processor: Any, asked: list[Case]) -> Fixture:
    return Fixture(
        name, about, tokens.qwen, model, processor, vision.Patches,
        image="<|vision_start|><|image_pad|><|vision_end|>",
        video="<|vision_start|><|video_pad|><|vision_end|>",
        asked=asked,
    )  # fmt: skip


ALL = [
    Fixture(
        "smolvlm", "Idefics3: images cut into tiles of 28 pixels, each seen as 4 tokens, and whole",
        tokens.smolvlm, models.smolvlm, processors.smolvlm, vision.Tiles,
        asked=EVERY + cases.BEAMS + cases.MORE_BEAMS,
    ),
    qwen(
        "qwen2-vl", "positions (3, B, S); images of any size as patches with `grid_thw`; videos",
        models.qwen2_vl, processors.qwen2_vl,
        EVERY + cases.BEAMS + cases.MORE_BEAMS + cases.VIDEO,
    ),
    qwen(
        "qwen2_5-vl", "the same with `image_grid_thw`; attention in windows of 2 x 2 tokens",
        models.qwen2_5_vl, processors.qwen2_5_vl, EVERY + cases.VIDEO,
    ),
    Fixture(
        "llava", "CLIP without its last layer and its class token; 16 tokens an image",
        tokens.llama, models.llava, processors.llava, vision.Layer,
    ),
    Fixture(
        "llava-onevision", "tiles of a grid that fits the image; a second output `image_newline`",
        tokens.onevision, models.onevision, processors.onevision, vision.AnyResolution,
    ),
    Fixture(
        "gemma3",
        "`token_type_ids` (B, S): tokens of one image see each other; a window of 8 in one layer",
        tokens.gemma3, models.gemma3, processors.gemma3, vision.Whole, image="<start_of_image>",
        asked=EVERY + cases.PAN_AND_SCAN, sight="images", embedding_std=1 / 32**0.5,
    ),
    Fixture(
        "paligemma",
        "no causal mask: all tokens of a run see each other, so the prompt must go in one run",
        tokens.paligemma, models.paligemma, processors.paligemma, vision.Whole,
        asked=cases.PLAIN, sight="prompt", first=1, embedding_std=1 / 32**0.5,
    ),
    Fixture(
        "llava-gqa", "LLaVA whose decoder has GroupQueryAttention and no `position_ids`",
        tokens.llama, models.llava_wide, processors.llava, vision.Layer,
        asked=EVERY + cases.BEAMS, genai=True,
    ),
]  # fmt: skip


def split(names: list[str]) -> tuple[list[Fixture], list[str]]:
    """The fixtures of the given folder names, all without any, and the other names."""
    chosen = [f for f in ALL if not names or f.name in names or f.family in names]
    known = {name for fixture in ALL for name in (fixture.name, fixture.family)}
    return chosen, [name for name in names if name not in known]
