"""LLaVA-OneVision: an image comes as a whole and in tiles of the grid that fits it best.

The features of the tiles are put together again: the rows of the frame are cut off, a map of more
than N tiles is shrunk ("anyres_max_N"), and each row ends with the feature ``image_newline``.
Several images for one prompt are framed to squares, one tile each, and end with one newline.

Letters: T tiles, S the side of a tile, F features of one tile, P their side (F = P * P), Y and X
rows and columns of a map of features, D the width of the text model, R rows of features.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgen.errors import ModelFileError, UnsupportedModelError
from onnxgen.vision import levels, resizing
from onnxgen.vision.fields import FILE, Fields, of_class
from onnxgen.vision.kinds import BICUBIC, CLIP_MEAN, CLIP_STD, defaults, square
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
from onnxgen.vision.pillow import pillow
from onnxgen.vision.settings import flag, numbers, resampling, triple
from onnxgen.vision.sizes import EDGE, EXACT, read_size, shown

if TYPE_CHECKING:
    from PIL.Image import Image

_TILE = 384
_DEFAULTS = defaults(
    square(_TILE),
    BICUBIC,
    image_mean=CLIP_MEAN,
    image_std=CLIP_STD,
    image_grid_pinpoints=[
        [_TILE * rows, _TILE * columns] for rows in range(1, 7) for columns in range(1, 7)
    ],
    do_pad=True,
)
_SHRINK_ABOVE = 1.1  # how much too large, along a side, a map may be


class AnyRes(VisionProcessor):
    """Does what LlavaOnevisionProcessor and the model's packing of features do with images.

    May be used from several threads at once.

    Attributes:
        side: S, of every tile.
        tokens: F, features of one tile.
    """

    def __init__(
        self, configs: Configs, *, max_pixels: int = MAX_PIXELS, newline: bool = True
    ) -> None:
        """From the model's config files; see :func:`onnxgen.vision.vlm.processor`.

        Args:
            configs: preprocessor_config.json; of processor_config.json ``num_image_tokens``,
                ``vision_feature_select_strategy`` and ``vision_aspect_ratio``.
            max_pixels: see :func:`onnxgen.vision.loading.load`.
            newline: the vision session gives ``image_newline``; without it only the whole image
                counts, one tile without an end, as in transformers.js.

        Raises:
            ModelFileError: a field has a wrong value or is misspelt, or ``num_image_tokens`` is
                missing.
            UnsupportedModelError: tiles that are not square, or a grid that is not of whole tiles.
        """
        check_limit(max_pixels)
        fields = of_class(image_fields(configs), _DEFAULTS)
        self._max_pixels = max_pixels
        self._newline = newline
        size = read_size(fields.values["size"], f"{FILE}: size", forms=(EXACT, EDGE), number=EDGE)
        if len(set(size.values())) > 1:
            raise UnsupportedModelError(f"{FILE}: size is {size}", "height and width alike")
        self.side = next(iter(size.values()))
        self._resize = flag(fields, "do_resize")  # of images that are framed; tiles always are
        self._resample = resampling(fields)
        self._levels = levels.table(*numbers(fields))  # (3, 256)
        self._frame = tuple(int(mean * 255) for mean in triple(fields, "image_mean"))
        self._grids = _grids(fields, self.side)
        whole = section(configs, PROCESSOR)
        tokens = count(
            whole.get("num_image_tokens"), f"{PROCESSOR}: num_image_tokens", most=MAX_TOKENS - 1
        )
        self._across = math.isqrt(tokens)  # P
        self.tokens = tokens - (whole.get("vision_feature_select_strategy") == "default")
        self._most = _most_tiles(whole.get("vision_aspect_ratio", "anyres_max_9"))
        self.placeholder = token(configs, "image_token", str(whole.get("image_token", "<image>")))

    def __call__(self, images: Sequence[Any]) -> Pictures:
        """``pixel_values`` (T, 3, S, S) float32 of the ``images`` of one prompt.

        Of each image the whole one comes first, then its tiles, row by row. ``grid`` holds the rows
        and columns of tiles, both 0 if it is not cut.
        """
        loaded = load_all(images, self._max_pixels)
        tiles: list[Image] = []
        pictures = []
        for image in loaded:
            size = (image.height, image.width)
            if not self._newline:
                tiles.append(self._to_tile(image))
                pictures.append(Picture(self.tokens, (1, 0, 0), size))
            elif len(loaded) > 1:
                tiles.append(self._squared(image))
                pictures.append(Picture(self.tokens + 1, (1, 0, 0), size))
            else:
                rows, columns = grid = best_grid(self._grids, *size)
                check_tiles(rows, columns)
                height, width = self._map_size(size, grid)[1]
                tokens = check_tokens(self.tokens + height * (width + 1))
                tiles += [self._to_tile(image), *self._cut(image, grid)]
                pictures.append(Picture(tokens, (1, rows, columns), size))
        return Pictures({"pixel_values": levels.look_up(self._levels, tiles)}, tuple(pictures))

    def expand(self, text: str, pictures: Sequence[Picture]) -> str:
        """See :class:`onnxgen.vision.pictures.VisionProcessor`."""
        written = [self.placeholder * picture.tokens for picture in pictures]
        return fill(text, self.placeholder, written)

    def pack(
        self, features: np.ndarray, pictures: Sequence[Picture], **extra: np.ndarray
    ) -> np.ndarray:
        """Rows (R, D) of ``features`` (T, F, D) of all ``pictures``, as pack_image_features.

        Args:
            features: the session's ``image_features``.
            pictures: as :meth:`__call__` gave them, of several calls too.
            extra: ``image_newline`` (D,), needed with ``newline``.

        Raises:
            ModelFileError: the session gives other shapes than the config files say.
        """
        tiles = [1 + picture.grid[1] * picture.grid[2] for picture in pictures]
        width = features.shape[-1]  # D
        if features.shape[:-1] != (sum(tiles), self.tokens):
            raise ModelFileError(
                f"the vision session gives image_features of shape {features.shape}",
                f"({sum(tiles)}, {self.tokens}, any) as {PROCESSOR} says",
            )
        if not self._newline:
            return features.reshape(-1, width)  # (T, F, D) -> (T * F, D)
        newline = extra.get("image_newline")
        if newline is None or newline.shape != (width,):
            found = "none" if newline is None else f"of shape {newline.shape}"
            raise ModelFileError(f"image_newline of the vision session: {found}", f"({width},)")
        newline = newline.astype(features.dtype, copy=False)
        rows = []
        for part, picture in zip(np.split(features, np.cumsum(tiles)[:-1]), pictures, strict=True):
            rows.append(part[0])  # (F, D)
            rows.append(self._map(part[1:], picture, newline) if len(part) > 1 else newline[None])
        return np.concatenate(rows)

    def _map(self, tiles: np.ndarray, picture: Picture, newline: np.ndarray) -> np.ndarray:
        """The (Y * (X + 1), D) of one picture's ``tiles`` (T, F, D), frame cut off, shrunk."""
        _, rows, columns = picture.grid
        side, width = self._across, tiles.shape[-1]
        # (T, F, D) -> (rows, columns, P, P, D) -> (rows, P, columns, P, D) -> (Y, X, D)
        split = tiles.reshape(rows, columns, side, side, width).swapaxes(1, 2)
        whole = split.reshape(rows * side, columns * side, width)
        kept, final = self._map_size(picture.size, (rows, columns))
        top, left = (whole.shape[0] - kept[0]) // 2, (whole.shape[1] - kept[1]) // 2
        inner = whole[top : top + kept[0], left : left + kept[1]]
        if final != kept:
            inner = shrink(shrink(inner, final[1], axis=1), final[0], axis=0)
        ends = np.broadcast_to(newline, (final[0], 1, width))
        return np.concatenate([inner, ends], axis=1).reshape(-1, width)  # (Y, X + 1, D)

    def _map_size(
        self, size: tuple[int, int], grid: tuple[int, int]
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        """(Y, X) of the map without its frame, and after shrinking."""
        height, width = size
        rows, columns = grid[0] * self._across, grid[1] * self._across
        if width / height > columns / rows:
            rows -= (rows - int(round(height * (columns / width), 7))) // 2 * 2
        else:
            columns -= (columns - int(round(width * (rows / height), 7))) // 2 * 2
        ratio = math.sqrt(rows * columns / (self._most * self._across**2))
        if ratio <= _SHRINK_ABOVE:
            return (rows, columns), (rows, columns)
        return (rows, columns), (int(rows // ratio), int(columns // ratio))

    def _to_tile(self, image: Image) -> Image:
        return resizing.resize(image, (self.side, self.side), self._resample)

    def _squared(self, image: Image) -> Image:
        """``image`` framed to a square in the mean colour, then made a tile."""
        edge = max(image.size)
        resizing.checked((edge, edge), image)
        framed = pillow().new("RGB", (edge, edge), self._frame)
        framed.paste(image, ((edge - image.width) // 2, (edge - image.height) // 2))
        return self._to_tile(framed) if self._resize else framed

    def _cut(self, image: Image, grid: tuple[int, int]) -> list[Image]:
        """The tiles of ``image``, made as large as ``grid`` lets it be and framed in black."""
        height, width = grid[0] * self.side, grid[1] * self.side
        across, down = width / image.width, height / image.height
        if across < down:
            size = (min(math.ceil(image.height * across), height), width)
        else:
            size = (height, min(math.ceil(image.width * down), width))
        framed = resizing.pad(resizing.resize(image, size, self._resample), (height, width))
        return [
            framed.crop((left, top, left + self.side, top + self.side))
            for top in range(0, height, self.side)
            for left in range(0, width, self.side)
        ]


def best_grid(grids: Sequence[tuple[int, int, int]], height: int, width: int) -> tuple[int, int]:
    """The (rows, columns) of ``grids`` in which a picture keeps most pixels, wasting least.

    ``grids`` are (rows, columns, side); of equals the first.
    """

    def merit(grid: tuple[int, int, int]) -> tuple[int, int]:
        rows, columns = grid[0] * grid[2], grid[1] * grid[2]
        scale = min(columns / width, rows / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        return kept, kept - rows * columns

    best = max(grids, key=merit)
    return best[0], best[1]


def shrink(values: np.ndarray, length: int, axis: int) -> np.ndarray:
    """``values`` with ``length`` along ``axis``, linear between neighbours, ends aligned outside.

    One axis of torch's interpolate(mode="bilinear").
    """
    there = values.shape[axis]
    step = np.float32(there / length)
    at = np.maximum(step * (np.arange(length, dtype=np.float32) + np.float32(0.5)) - 0.5, 0)
    low = at.astype(np.int64)  # (length,)
    high = np.minimum(low + 1, there - 1)
    shape = [-1 if a == axis else 1 for a in range(values.ndim)]
    part = (at - low).astype(values.dtype).reshape(shape)
    shorter: np.ndarray = values.take(low, axis) * (1 - part) + values.take(high, axis) * part
    return shorter


def _grids(fields: Fields, side: int) -> tuple[tuple[int, int, int], ...]:
    """The grids of image_grid_pinpoints, (rows, columns, side) of tiles."""
    where, given = f"{FILE}: image_grid_pinpoints", fields.values["image_grid_pinpoints"]
    if not isinstance(given, list) or not given:
        raise ModelFileError(f"{where} is {shown(given)}", "a list of [height, width]")
    grids = []
    for size in given:
        exact = read_size(size, where, forms=(EXACT,))
        height, width = exact["height"], exact["width"]
        if height % side or width % side:
            raise UnsupportedModelError(f"{where} has {shown(size)}", f"multiples of {side}")
        grids.append((height // side, width // side, side))
    return tuple(grids)


def _most_tiles(aspect: Any) -> int:
    """N of "anyres_max_N"."""
    match = re.fullmatch(r"anyres_max_([1-9]\d{0,5})", aspect) if isinstance(aspect, str) else None
    if match is None:
        raise ModelFileError(
            f"{PROCESSOR}: vision_aspect_ratio is {shown(aspect)}", "anyres_max_ and a number"
        )
    return int(match[1])
