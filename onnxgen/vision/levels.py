"""Rescaling and normalising, from 8 bits to what the graph takes.

Both map each of the 256 values of a channel to one number, so they are one look-up, bit for bit
what the float arithmetic of transformers gives.

Letters: B pictures, H rows, W columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from onnxgen.errors import ImageError
from onnxgen.vision.settings import Triple

if TYPE_CHECKING:
    from PIL.Image import Image


def table(factor: float, mean: Triple, std: Triple, offset: bool = False) -> np.ndarray:
    """What each 8-bit value of each channel becomes: (3, 256) float32.

    The product is formed in 64 bits and rounded, the rest is done in 32, as in transformers; with
    ``offset``, 1 is subtracted between the two.
    """
    levels = np.arange(256, dtype=np.float64) * factor
    values = levels.astype(np.float32)[None] - np.float32(offset)
    means, deviations = np.array(mean, np.float32), np.array(std, np.float32)  # (3,)
    return (values - means[:, None]) / deviations[:, None]


def look_up(
    levels: np.ndarray, pictures: Sequence[Image], channels: Sequence[int] = (0, 1, 2)
) -> np.ndarray:
    """(B, 3, H, W) float32 of ``pictures``, by ``levels`` (3, 256).

    ``channels`` are those of the picture, and of ``levels``, in the order of the result.

    Raises:
        ImageError: the pictures have unlike sizes.
    """
    if len({picture.size for picture in pictures}) > 1:
        sizes = ", ".join(f"{picture.height} x {picture.width}" for picture in pictures)
        raise ImageError(
            f"the images end with unlike sizes: {sizes}"[:500],
            wanted="one size for a batch",
            do="give them one by one",
        )
    width, height = pictures[0].size
    values = np.empty((len(pictures), 3, height, width), np.float32)
    for picture, planes in zip(pictures, values, strict=True):
        pixels = np.asarray(picture)  # (H, W, 3)
        for plane, channel in zip(planes, channels, strict=True):
            # "clip" alone lets numpy write into the plane without a buffer; nothing is out.
            np.take(levels[channel], pixels[:, :, channel], out=plane, mode="clip")
    return values
