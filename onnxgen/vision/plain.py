"""LLaVA, PaliGemma and Florence-2: an image is one picture of one size, and so many tokens.

The pixels are those of :class:`onnxgen.vision.processor.ImageProcessor`; the families differ in
where a prompt has its image tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgen.errors import ImageError, ModelFileError
from onnxgen.vision import florence, resizing
from onnxgen.vision.loading import MAX_PIXELS
from onnxgen.vision.pictures import (
    MAX_TOKENS,
    PREPROCESSOR,
    PROCESSOR,
    Configs,
    Picture,
    Pictures,
    VisionProcessor,
    check_tokens,
    count,
    fill,
    image_fields,
    load_all,
    section,
    token,
)
from onnxgen.vision.pillow import pillow
from onnxgen.vision.processor import ImageProcessor

if TYPE_CHECKING:
    from PIL.Image import Image

_CONFIG, _TOKENIZER = "config.json", "tokenizer_config.json"


class _Plain(VisionProcessor):
    """The part that the families share; ``pixel_values`` is (images, 3, rows, columns)."""

    def __init__(self, fields: Mapping[str, Any], max_pixels: int) -> None:
        self._processor = ImageProcessor(fields, max_pixels=max_pixels)
        self._max_pixels = max_pixels

    def __call__(self, images: Sequence[Any]) -> Pictures:
        """See :class:`VisionProcessor`; images that end with unlike sizes are an ImageError too."""
        loaded = load_all(images, self._max_pixels)
        pixel_values = self._processor([self._framed(image) for image in loaded])
        tokens = check_tokens(self._tokens(pixel_values))
        pictures = (Picture(tokens, size=(image.height, image.width)) for image in loaded)
        return Pictures({"pixel_values": pixel_values}, tuple(pictures))

    def _framed(self, image: Image) -> Image:
        """``image`` as the image processor takes it."""
        return image

    def _tokens(self, pixel_values: np.ndarray) -> int:
        """How many tokens one of ``pixel_values`` (images, 3, rows, columns) stands for."""
        raise NotImplementedError


class Llava(_Plain):
    """LlavaProcessor: one token for each patch, and those the encoder adds unless dropped.

    Where processor_config.json does not say how many, as in old models, config.json tells.

    Attributes:
        placeholder: the token in the prompt for an image.
        add_special_tokens: the tokenizer adds its own to the expanded prompt.
    """

    add_special_tokens = True

    def __init__(self, configs: Configs, *, max_pixels: int = MAX_PIXELS) -> None:
        """See :func:`onnxgen.vision.vlm.processor`."""
        fields = image_fields(configs)
        squared = _is_llava(fields) and bool(fields.pop("do_pad", False))
        if _is_llava(fields):  # CLIP's steps, once the picture is a square
            fields |= {"image_processor_type": "CLIPImageProcessor", "use_square_size": False}
        super().__init__(fields, max_pixels)
        self._background = _background(fields) if squared else None
        own = str(section(configs, PROCESSOR).get("image_token") or "<image>")
        self.placeholder = token(configs, "image_token", own)
        self._patch, self._added = _geometry(configs)

    def _framed(self, image: Image) -> Image:
        return image if self._background is None else _squared(image, self._background)

    def expand(self, text: str, pictures: Sequence[Picture]) -> str:
        """See :class:`VisionProcessor`."""
        return fill(text, self.placeholder, [self.placeholder * p.tokens for p in pictures])

    def _tokens(self, pixel_values: np.ndarray) -> int:
        rows, columns = pixel_values.shape[2:]
        tokens = int(rows // self._patch) * int(columns // self._patch) + self._added
        if tokens < 1:
            raise ImageError(
                f"a picture of {rows} x {columns} has {tokens} image tokens",
                wanted=f"at least one patch of {self._patch} x {self._patch}",
            )
        return tokens


class PaliGemma(_Plain):
    """PaliGemmaProcessor: image tokens, bos, the prompt and a line break.

    Attributes:
        placeholder: ``<image>``; a prompt without it has its images in front.
        add_special_tokens: the tokenizer adds none, as they are in the expanded prompt.
    """

    placeholder = "<image>"
    add_special_tokens = False

    def __init__(self, configs: Configs, *, max_pixels: int = MAX_PIXELS) -> None:
        """See :func:`onnxgen.vision.vlm.processor`."""
        fields = image_fields(configs)
        super().__init__(fields, max_pixels)
        self._length = _stated_length(fields)
        self._bos = _usual(configs, "bos_token", "<bos>")

    def expand(self, text: str, pictures: Sequence[Picture]) -> str:
        """``text`` with its image tokens, bos behind the last of them, and a line break at the end.

        Without pictures it is such a prompt without image tokens, which transformers' processor
        does not write.

        Raises:
            ImageError: another number of places than pictures.
        """
        if self.placeholder not in text:
            text = self.placeholder * len(pictures) + text
        text = fill(text, self.placeholder, [self.placeholder * p.tokens for p in pictures])
        before, last, after = text.rpartition(self.placeholder)
        return f"{before}{last}{self._bos}{after}\n"

    def _tokens(self, pixel_values: np.ndarray) -> int:
        return self._length


class Florence(_Plain):
    """Florence2Processor: the image's tokens, then the question for the prompt's task.

    Attributes:
        placeholder: empty: the prompt has no place for the image, which stands before it.
        image_token: what stands there, once for each of the image's tokens.
        add_special_tokens: the tokenizer adds none, as they are in the expanded prompt.
        reading: for :func:`onnxgen.vision.florence.parse`.
    """

    placeholder = ""
    add_special_tokens = False

    def __init__(self, configs: Configs, *, max_pixels: int = MAX_PIXELS) -> None:
        """See :func:`onnxgen.vision.vlm.processor`."""
        fields = image_fields(configs)
        super().__init__(fields, max_pixels)
        self._length = _stated_length(fields)
        self.image_token = token(configs, "image_token", "<image>")
        self._bos = _usual(configs, "bos_token", "<s>")
        self._eos = _usual(configs, "eos_token", "</s>")
        self.reading = florence.reading(configs)

    def expand(self, text: str, pictures: Sequence[Picture]) -> str:
        """The question for ``text``, see :func:`onnxgen.vision.florence.question`, with one image.

        Without an image it is the question alone, without bos and eos.

        Raises:
            ImageError: more than one picture.
            OptionError: an input beside a task that takes none.
        """
        asked = florence.question(text)
        if len(pictures) > 1:
            raise ImageError(f"{len(pictures)} images", wanted="one for each prompt")
        if not pictures:
            return asked
        return f"{self.image_token * pictures[0].tokens}{self._bos}{asked}{self._eos}"

    def _tokens(self, pixel_values: np.ndarray) -> int:
        return self._length


def _stated_length(fields: Mapping[str, Any]) -> int:
    """The number of tokens of each image, which must be in the image processor's file."""
    where = f"{PREPROCESSOR}: image_seq_length"
    return count(fields.get("image_seq_length"), where, most=MAX_TOKENS)


def _usual(configs: Configs, name: str, default: str) -> str:
    """The special token ``name``, which every tokenizer may have, ``bos_token`` say."""
    stated = section(configs, _TOKENIZER).get(name) or default
    return token({_TOKENIZER: {name: stated}}, name, default)


def _geometry(configs: Configs) -> tuple[int, int]:
    """Side of a patch, and how many tokens there are more than patches (-1: one fewer).

    Raises:
        ModelFileError: the files do not tell, or a field has a wrong value.
    """
    own, whole = section(configs, PROCESSOR), section(configs, _CONFIG)
    patch, chosen = own.get("patch_size"), own.get("vision_feature_select_strategy")
    added = own.get("num_additional_image_tokens", 0)
    if patch is None:
        patch = section(configs, _CONFIG, "vision_config").get("patch_size")
        chosen = whole.get("vision_feature_select_strategy", "default")
        # What "default" drops is the one token that the encoder puts before the patches.
        added = 1
        if chosen != "default":
            raise ModelFileError(
                f"{PROCESSOR} has no patch_size, and {_CONFIG} takes features {chosen!r}"[:200],
                wanted="patch_size, num_additional_image_tokens, vision_feature_select_strategy",
                do="add them to the file",
            )
    if chosen not in ("default", "full", None):
        raise ModelFileError(
            f"vision_feature_select_strategy is {chosen!r}"[:200], wanted="default or full"
        )
    side = count(patch, f"{PROCESSOR}: patch_size", most=10_000)
    extra = count(added, f"{PROCESSOR}: num_additional_image_tokens", least=0, most=MAX_TOKENS)
    return side, extra - (chosen == "default")


def _is_llava(fields: Mapping[str, Any]) -> bool:
    name = fields.get("image_processor_type") or fields.get("feature_extractor_type")
    return name in ("LlavaImageProcessor", "LlavaImageProcessorFast")


def _background(fields: Mapping[str, Any]) -> tuple[int, ...]:
    """The mean's colour, 8 bits a channel."""
    processor = ImageProcessor({**fields, "do_normalize": True})
    return tuple(int(mean * 255) for mean in processor.settings.image_mean)


def _squared(image: Image, colour: tuple[int, ...]) -> Image:
    """``image`` in the middle of a square as large as its longer side, else of ``colour``."""
    side = max(image.size)
    resizing.checked((side, side), image)
    square = pillow().new("RGB", (side, side), colour)
    square.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
    result: Image = square
    return result
