"""Arrays of pixels, as users have them, made 8-bit RGB.

H rows, W columns; C channels: 1 grey, 3 RGB, 4 RGB and alpha.
"""

from typing import Any

import numpy as np

from onnxgen.errors import ImageError

_CHANNELS = (1, 3, 4)
_SHAPES = "shape (H, W), (H, W, C) or (C, H, W), C = 1, 3 or 4"


def rgb(source: Any) -> np.ndarray:
    """The pixels (H, W, 3) uint8 of an array of shape (H, W), (H, W, C) or (C, H, W).

    Integers count from 0 to 255, uint16 from 0 to 65535, floats from 0 to 1, booleans are black
    and white. Alpha is dropped. Where both ends of the shape could be channels, the last one is.

    Raises:
        ImageError: another shape, no pixels, or values out of range.
    """
    try:
        array = np.asarray(source)
    except Exception as error:  # whatever a foreign __array__ raises
        name = type(source).__name__
        raise ImageError(f"a {name} gives no array: {type(error).__name__}") from error
    pixels = eight_bit(_channels_last(array))  # (H, W, C)
    if pixels.shape[2] == 1:
        return np.broadcast_to(pixels, (*pixels.shape[:2], 3))
    return pixels[:, :, :3]


def _channels_last(array: np.ndarray) -> np.ndarray:
    """``array`` (H, W), (H, W, C) or (C, H, W) as (H, W, C)."""
    if array.ndim == 2:
        array = array[:, :, None]
    elif array.ndim == 3 and array.shape[2] not in _CHANNELS and array.shape[0] in _CHANNELS:
        array = array.transpose(1, 2, 0)
    if array.ndim != 3 or array.shape[2] not in _CHANNELS or array.size == 0:
        raise ImageError(f"an array of shape {array.shape} is no image", wanted=_SHAPES)
    return array


def eight_bit(array: np.ndarray) -> np.ndarray:
    """``array`` of any shape with its range scaled to 0..255, uint8; see :func:`rgb`."""
    kind = array.dtype.kind
    if array.dtype == np.uint8:
        return array
    if kind == "b":
        return array.astype(np.uint8) * np.uint8(255)
    if kind == "u" and array.dtype.itemsize == 2:
        return sixteen_to_eight(array)
    if kind in "iu" and array.min() >= 0 and array.max() <= 255:
        return array.astype(np.uint8)
    # NaN fails both comparisons.
    if kind == "f" and array.min() >= 0 and array.max() <= 1:
        # transformers cuts 2.9999 down to 2 here; rounding gives back the 3 it was made from.
        return np.rint(array.astype(np.float32) * 255).astype(np.uint8)
    found = f"from {array.min()} to {array.max()}" if kind in "iuf" else "of another kind"
    raise ImageError(
        f"an array of {array.dtype}, {found}, is no image",
        wanted="integers 0..255, uint16, or floats 0..1",
    )


def sixteen_to_eight(array: np.ndarray) -> np.ndarray:
    """Values 0..65535 as 0..255, uint8, rounded: 65535 = 255 * 257."""
    return ((array.astype(np.uint32) + 128) // 257).astype(np.uint8)
