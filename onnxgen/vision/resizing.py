"""The geometry of a picture: to what size, and the steps that bring it there.

Pictures are Pillow images in RGB; sizes are (H rows, W columns), the other way round than
Pillow's. The rules, roundings too, are those of transformers' slow image processors. What is
outside a picture is black. No result is empty or larger than MAX_PIXELS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from onnxgen.errors import ImageError
from onnxgen.vision.pillow import pillow

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 64_000_000
BICUBIC = 3  # Pillow's number
_INK = 200  # of 255: darker than this is no margin


def target(size: Mapping[str, int], height: int, width: int) -> tuple[int, int]:
    """The (H, W) that a picture of (``height``, ``width``) is resized to.

    ``size`` is one of: ``height`` and ``width``, exact; ``shortest_edge``, the other side in
    proportion; that with ``longest_edge``, which the longer side may not exceed; ``max_height``
    and ``max_width``, the largest size in proportion, of small pictures too.
    """
    if "height" in size:
        return size["height"], size["width"]
    if "max_height" in size:
        scale = min(size["max_height"] / height, size["max_width"] / width)
        return int(height * scale), int(width * scale)
    if "longest_edge" in size:
        return _between(size["shortest_edge"], size["longest_edge"], height, width)
    return shortest_edge(size["shortest_edge"], height, width)


def shortest_edge(edge: int, height: int, width: int) -> tuple[int, int]:
    """(H, W) with the shorter side ``edge`` and the longer one in proportion, rounded down."""
    longer = int(edge * max(height, width) / min(height, width))
    return (longer, edge) if width <= height else (edge, longer)


def _between(shortest: int, longest: int, height: int, width: int) -> tuple[int, int]:
    """(H, W) with the shorter side ``shortest``, or less where the other would pass ``longest``."""
    short, long = float(min(height, width)), float(max(height, width))
    edge, exact = shortest, float(shortest)
    if long / short * shortest > longest:
        exact = longest * short / long
        edge = round(exact)
    if min(height, width) == edge:  # not even a longer side that is one row too long is touched
        return height, width
    if width < height:
        return int(exact * height / width), edge
    return edge, int(exact * width / height)


def resize(
    image: Image, size: tuple[int, int], resample: int, reducing_gap: float | None = None
) -> Image:
    """``image`` resized to ``size`` (H, W) with Pillow's filter number ``resample``."""
    height, width = checked(size, image)
    filtering = pillow().Resampling(resample)
    return image.resize((width, height), filtering, reducing_gap=reducing_gap)


def thumbnail(image: Image, size: tuple[int, int]) -> Image:
    """``image`` made no larger than ``size`` (H, W); always bicubic, in two steps if much larger.

    Only the longer side counts for the proportion, so the result may be wider than ``size``, and a
    square picture takes the form of ``size``.
    """
    height, width = min(size[0], image.height), min(size[1], image.width)
    if (height, width) == (image.height, image.width):
        return image
    if image.height > image.width:
        width = int(image.width * height / image.height)
    elif image.width > image.height:
        height = int(image.height * width / image.width)
    return resize(image, (height, width), BICUBIC, reducing_gap=2.0)


def align_long_axis(image: Image, size: tuple[int, int]) -> Image:
    """``image`` turned clockwise by 90 degrees if it is lying and ``size`` (H, W) stands, or so."""
    height, width = size
    if (image.width - image.height) * (width - height) < 0:
        return image.transpose(pillow().Transpose.ROTATE_270)
    return image


def center_crop(image: Image, size: tuple[int, int]) -> Image:
    """The middle (H, W) = ``size`` of ``image``, black where it is smaller.

    An odd row or column over is cut off at the end, an odd one missing is added at the start.
    """
    height, width = checked(size, image)
    top, left = (image.height - height) // 2, (image.width - width) // 2
    return image.crop((left, top, left + width, top + height))


def pad(image: Image, size: tuple[int, int]) -> Image:
    """``image`` in the middle of a black picture of ``size`` (H, W), an odd row over at the end.

    Raises:
        ImageError: the image is larger.
    """
    height, width = checked(size, image)
    if image.height > height or image.width > width:
        raise ImageError(
            f"a picture of {image.height} x {image.width} does not fit {height} x {width}",
            wanted="steps of resizing in the model's file that make it small enough",
        )
    top, left = (height - image.height) // 2, (width - image.width) // 2
    return image.crop((-left, -top, width - left, height - top))


def crop_margin(image: Image) -> Image:
    """``image`` without its light margins; darkness counts between its lightest and darkest."""
    grey = np.asarray(image.convert("L"))  # (H, W)
    low, high = int(grey.min()), int(grey.max())
    if low == high:
        return image
    ink = (np.arange(256) - low) / (high - low) * 255 < _INK  # grey value -> is ink
    dark = ink[grey]  # (H, W)
    rows, columns = np.flatnonzero(dark.any(axis=1)), np.flatnonzero(dark.any(axis=0))
    left, top = int(columns[0]), int(rows[0])
    return image.crop((left, top, int(columns[-1]) + 1, int(rows[-1]) + 1))


def checked(size: tuple[int, int], image: Image) -> tuple[int, int]:
    """``size`` (H, W) if ``image`` can get it; ImageError if it is empty or too large."""
    height, width = size
    if height < 1 or width < 1 or height * width > MAX_PIXELS:
        raise ImageError(
            f"a picture of {image.height} x {image.width} would become {height} x {width}",
            wanted=f"at least one row and one column, at most {MAX_PIXELS} pixels",
            do="give an image that is less narrow",
        )
    return height, width
