"""Idefics3 and SmolVLM: an image is cut into square tiles, and comes once more as a whole.

The image is resized to a longest edge, stretched to whole tiles, and cut; an image of one tile is
not cut. All tiles are full, so the mask of pixels is 1 everywhere. In the text each tile has its
row and column, and its image tokens; rules and roundings as in transformers' slow processors.

Letters: T tiles, S the side of a tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgen.errors import OptionError
from onnxgen.vision import levels, resizing
from onnxgen.vision.fields import FILE, of_class
from onnxgen.vision.kinds import LANCZOS, defaults
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
from onnxgen.vision.sizes import EXACT, Size, read_size

if TYPE_CHECKING:
    from PIL.Image import Image

_LONGEST = ("longest_edge",)
_MOST = 4096  # no image is made longer than this, whatever the file says
_DEFAULTS = defaults(
    {"longest_edge": 4 * 364},
    LANCZOS,
    max_image_size={"longest_edge": 364},
    do_image_splitting=True,
    do_pad=True,
)


class Tiling(VisionProcessor):
    """Does what Idefics3Processor and SmolVLMProcessor do with images.

    May be used from several threads at once.

    Attributes:
        side: S, of every tile.
        tokens: image tokens of one tile.
    """

    def __init__(
        self,
        configs: Configs,
        *,
        max_pixels: int = MAX_PIXELS,
        do_image_splitting: bool | None = None,
    ) -> None:
        """From the model's config files; see :func:`onnxgen.vision.vlm.processor`.

        Args:
            configs: preprocessor_config.json; of processor_config.json ``image_seq_len``.
            max_pixels: see :func:`onnxgen.vision.loading.load`.
            do_image_splitting: instead of what the file says.

        Raises:
            ModelFileError: a field has a wrong value or is misspelt.
            UnsupportedModelError: a size of another form.
            OptionError: an option of the wrong kind.
        """
        check_limit(max_pixels)
        if do_image_splitting is not None and not isinstance(do_image_splitting, bool):
            raise OptionError(f"do_image_splitting is {do_image_splitting!r}", "true or false")
        fields = of_class(image_fields(configs), _DEFAULTS)
        split = flag(fields, "do_image_splitting")
        self._max_pixels = max_pixels
        self._split = split if do_image_splitting is None else do_image_splitting
        self._size: Size | None = None
        if flag(fields, "do_resize"):
            self._size = read_size(
                fields.values["size"], f"{FILE}: size", forms=(_LONGEST, EXACT), number=None
            )
        where = f"{FILE}: max_image_size"
        tile = read_size(fields.values["max_image_size"], where, forms=(_LONGEST,), number=_LONGEST)
        self.side = count(tile["longest_edge"], where, most=_MOST)
        self._resample = resampling(fields)
        self._levels = levels.table(*numbers(fields))  # (3, 256)
        whole = section(configs, PROCESSOR)
        self.tokens = count(
            whole.get("image_seq_len", 169), f"{PROCESSOR}: image_seq_len", most=MAX_TOKENS
        )
        self.placeholder = token(configs, "image_token", "<image>")
        self._around = token(configs, "fake_image_token", "<fake_token_around_image>")
        self._global = token(configs, "global_image_token", "<global-img>")

    def __call__(self, images: Sequence[Any]) -> Pictures:
        """``pixel_values`` (T, 3, S, S) float32 and ``pixel_attention_mask`` (T, S, S) bool.

        The tiles of an image stand row by row, then the whole image. ``grid`` holds the rows and
        columns of tiles, both 0 if it is not cut.
        """
        tiles: list[Image] = []
        pictures = []
        for image in load_all(images, self._max_pixels):
            cut, rows, columns = self._cut(image)
            tiles += cut
            size = (image.height, image.width)
            tokens = check_tokens(len(cut) * self.tokens)
            pictures.append(Picture(tokens, (1, rows, columns), size))
        feeds = {
            "pixel_values": levels.look_up(self._levels, tiles),
            "pixel_attention_mask": np.ones((len(tiles), self.side, self.side), np.bool_),
        }
        return Pictures(feeds, tuple(pictures))

    def expand(self, text: str, pictures: Sequence[Picture]) -> str:
        """See :class:`onnxgen.vision.pictures.VisionProcessor`."""
        return fill(text, self.placeholder, [self._written(picture) for picture in pictures])

    def _written(self, picture: Picture) -> str:
        """What stands in the prompt for an image: a line of each row of tiles, then the whole."""
        _, rows, columns = picture.grid
        tokens = self.placeholder * self.tokens
        lines = [
            "".join(
                f"{self._around}<row_{row}_col_{column}>{tokens}" for column in _one_to(columns)
            )
            for row in _one_to(rows)
        ]
        # One newline ends each line; one more sets the whole image apart.
        tiles = "".join(f"{line}\n" for line in lines) + ("\n" if lines else "")
        return f"{tiles}{self._around}{self._global}{tokens}{self._around}"

    def _cut(self, image: Image) -> tuple[list[Image], int, int]:
        """The tiles of ``image``, the whole one at the end, and their rows and columns."""
        side = self.side
        if self._size is not None:
            size = _resized(self._size, image.height, image.width)
            image = resizing.resize(image, size, self._resample)
        if not self._split:
            return [resizing.resize(image, (side, side), self._resample)], 0, 0
        height, width = _whole_tiles(side, image.height, image.width)
        check_tiles(height // side, width // side)
        image = resizing.resize(image, (height, width), self._resample)
        if (height, width) == (side, side):
            return [image], 0, 0
        tiles = [
            image.crop((left, top, left + side, top + side))
            for top in range(0, height, side)
            for left in range(0, width, side)
        ]
        tiles.append(resizing.resize(image, (side, side), self._resample))
        return tiles, height // side, width // side


def _one_to(number: int) -> range:
    return range(1, number + 1)


def _resized(size: Size, height: int, width: int) -> tuple[int, int]:
    """The (H, W) that a picture is resized to; the shorter side is even below _MOST."""
    if "height" in size:
        return size["height"], size["width"]
    edge, aspect = size["longest_edge"], width / height
    if width >= height:
        width, height = edge, _even(edge / aspect)
    else:
        width, height = _even(edge * aspect), edge
    if edge <= _MOST:
        return height, width
    aspect = width / height
    if width >= height:
        return max(int(_MOST / aspect), 1), _MOST
    return _MOST, max(int(_MOST * aspect), 1)


def _even(side: float) -> int:
    """``side`` cut off, then made even by a row more; at least 1."""
    return max(int(side) + int(side) % 2, 1)


def _whole_tiles(side: int, height: int, width: int) -> tuple[int, int]:
    """The (H, W) of whole tiles: the longer side rounded up, the other in proportion, then too."""
    aspect = width / height
    if width >= height:
        width = math.ceil(width / side) * side
        height = math.ceil(int(width / aspect) / side) * side
    else:
        height = math.ceil(height / side) * side
        width = math.ceil(int(height * aspect) / side) * side
    return height, width
