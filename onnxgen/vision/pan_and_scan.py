"""Gemma 3: an image is one picture; with pan and scan, a long one comes with crops of itself.

As in Gemma3Processor, the crops are asked for by options, whatever preprocessor_config.json says.

Letters: T pictures, H rows, W columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onnxgen.errors import OptionError
from onnxgen.vision import levels, resizing
from onnxgen.vision.fields import FILE, of_class
from onnxgen.vision.kinds import BILINEAR, defaults, square
from onnxgen.vision.loading import MAX_PIXELS, check_limit
from onnxgen.vision.pictures import (
    MAX_TOKENS,
    PROCESSOR,
    Configs,
    Picture,
    Pictures,
    VisionProcessor,
    check_tiles,
    check_tokens,
    count,
    fill,
    image_fields,
    load_all,
    section,
    token,
)
from onnxgen.vision.settings import flag, numbers, resampling
from onnxgen.vision.sizes import EXACT, read_size

if TYPE_CHECKING:
    from PIL.Image import Image

_DEFAULTS = defaults(
    square(224),
    BILINEAR,
    do_pan_and_scan=None,
    pan_and_scan_min_crop_size=None,
    pan_and_scan_max_num_crops=None,
    pan_and_scan_min_ratio_to_activate=None,
)


class PanAndScan(VisionProcessor):
    """Does what Gemma3Processor does with images.

    May be used from several threads at once.

    Attributes:
        tokens: image tokens of one picture.
    """

    def __init__(
        self,
        configs: Configs,
        *,
        max_pixels: int = MAX_PIXELS,
        do_pan_and_scan: bool = False,
        pan_and_scan_min_crop_size: int = 256,
        pan_and_scan_max_num_crops: int = 4,
        pan_and_scan_min_ratio_to_activate: float = 1.2,
    ) -> None:
        """From the model's config files; see :func:`onnxgen.vision.vlm.processor`.

        Args:
            configs: preprocessor_config.json; of processor_config.json ``image_seq_length``; of
                tokenizer_config.json ``boi_token``, ``image_token`` and ``eoi_token``.
            max_pixels: see :func:`onnxgen.vision.loading.load`.
            do_pan_and_scan: long images come with crops.
            pan_and_scan_min_crop_size: of the shorter side; smaller crops are not made.
            pan_and_scan_max_num_crops: of one image.
            pan_and_scan_min_ratio_to_activate: of the longer side to the shorter.

        Raises:
            ModelFileError: a field has a wrong value or is misspelt.
            UnsupportedModelError: a size of another form.
            OptionError: an option of the wrong kind.
        """
        check_limit(max_pixels)
        if not isinstance(do_pan_and_scan, bool):
            raise OptionError(f"do_pan_and_scan is {do_pan_and_scan!r}", "true or false")
        for name, number in (
            ("pan_and_scan_min_crop_size", pan_and_scan_min_crop_size),
            ("pan_and_scan_max_num_crops", pan_and_scan_max_num_crops),
        ):
            if type(number) is not int or number < 1:
                raise OptionError(f"{name} is {number!r}", "a positive integer")
        ratio = pan_and_scan_min_ratio_to_activate
        if type(ratio) not in (int, float) or not 0 <= ratio < math.inf:
            raise OptionError(f"pan_and_scan_min_ratio_to_activate is {ratio!r}", "a number")
        fields = of_class(image_fields(configs), _DEFAULTS)
        self._max_pixels = max_pixels
        self._crops = do_pan_and_scan
        self._least, self._most = pan_and_scan_min_crop_size, pan_and_scan_max_num_crops
        self._ratio = ratio
        self._size: tuple[int, int] | None = None
        if flag(fields, "do_resize"):
            size = read_size(fields.values["size"], f"{FILE}: size", forms=(EXACT,))
            self._size = (size["height"], size["width"])
            self._resample = resampling(fields)
        self._levels = levels.table(*numbers(fields))  # (3, 256)
        whole = section(configs, PROCESSOR)
        self.tokens = count(
            whole.get("image_seq_length", 256), f"{PROCESSOR}: image_seq_length", most=MAX_TOKENS
        )
        self.placeholder = token(configs, "boi_token", "<start_of_image>")
        image, end = (
            token(configs, "image_token", "<image_soft_token>"),
            token(configs, "eoi_token", "<end_of_image>"),
        )
        self._written = f"\n\n{self.placeholder}{image * self.tokens}{end}\n\n"

    def __call__(self, images: Sequence[Any]) -> Pictures:
        """``pixel_values`` (T, 3, H, W) float32: each image, and behind it its crops.

        ``grid`` holds the rows and columns of crops, both 0 if there are none.
        """
        tiles: list[Image] = []
        pictures = []
        for image in load_all(images, self._max_pixels):
            rows, columns = self._grid(image.height, image.width)
            check_tiles(rows, columns)
            crops = _crops(image, rows, columns) if rows else []
            tiles += [self._resized(picture) for picture in (image, *crops)]
            tokens = check_tokens((1 + len(crops)) * self.tokens)
            pictures.append(Picture(tokens, (1, rows, columns), (image.height, image.width)))
        return Pictures({"pixel_values": levels.look_up(self._levels, tiles)}, tuple(pictures))

    def expand(self, text: str, pictures: Sequence[Picture]) -> str:
        """See :class:`onnxgen.vision.pictures.VisionProcessor`."""
        pieces = []
        for picture in pictures:
            crops = picture.grid[1] * picture.grid[2]
            pieces.append(self._written)
            if crops:
                pieces[-1] = (
                    f"Here is the original image {self._written} and here are some crops to help "
                    f"you see better {' '.join([self._written] * crops)}"
                )
        return fill(text, self.placeholder, pieces)

    def _resized(self, image: Image) -> Image:
        return image if self._size is None else resizing.resize(image, self._size, self._resample)

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of crops, one of them 1; both 0 if the image gets none."""
        long, short = max(height, width), min(height, width)
        if not self._crops or long / short < self._ratio:
            return 0, 0
        wanted = min(long // self._least, math.floor(long / short + 0.5))
        crops = min(self._most, max(2, wanted))
        if min(math.ceil(long / crops), short) < self._least:
            return 0, 0
        return (1, crops) if width >= height else (crops, 1)


def _crops(image: Image, rows: int, columns: int) -> list[Image]:
    """The parts of ``image``, row by row; the last of a row or column may be smaller."""
    height, width = math.ceil(image.height / rows), math.ceil(image.width / columns)
    return [
        image.crop((left, top, min(left + width, image.width), min(top + height, image.height)))
        for top in range(0, rows * height, height)
        for left in range(0, columns * width, width)
    ]
