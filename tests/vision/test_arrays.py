"""Arrays of every form become 8-bit RGB; everything else is refused."""

import numpy as np
import pytest

from onnxgen.errors import ImageError
from onnxgen.vision.arrays import eight_bit, rgb

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)
GREY = RNG.integers(0, 256, (5, 7), dtype=np.uint8)
THRICE = np.stack([GREY] * 3, axis=-1)


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (COLOUR, COLOUR),
        (COLOUR.transpose(2, 0, 1), COLOUR),
        (np.dstack([COLOUR, GREY]), COLOUR),
        (np.dstack([COLOUR, GREY]).transpose(2, 0, 1), COLOUR),
        (GREY, THRICE),
        (GREY[:, :, None], THRICE),
        (GREY[None], THRICE),
        (COLOUR[:3], COLOUR[:3]),  # three rows: channels stand last
        (COLOUR[::-1, ::2], COLOUR[::-1, ::2]),
    ],
    ids=lambda a: str(a.shape),
)
def test_shapes(array, wanted):
    np.testing.assert_array_equal(rgb(array), wanted)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_give_back_what_they_were_made_from(dtype):
    levels = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(eight_bit((levels / 255).astype(dtype)), levels)


def test_ranges():
    np.testing.assert_array_equal(eight_bit(np.array([False, True])), [0, 255])
    for dtype in (np.int16, np.int32, np.int64, np.uint32):
        np.testing.assert_array_equal(eight_bit(np.array([0, 7, 255], dtype)), [0, 7, 255])
    sixteen = np.arange(65536, dtype=np.uint16)
    np.testing.assert_array_equal(eight_bit(sixteen), np.rint(sixteen / 257))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(5, np.uint8),
        np.zeros((5, 7, 2), np.uint8),
        np.zeros((5, 7, 5), np.uint8),
        np.zeros((1, 5, 7, 3), np.uint8),
        np.zeros((0, 7), np.uint8),
        np.zeros((5, 0, 3), np.uint8),
        np.uint8(5),
        np.array([[0, 256]]),
        np.array([[-1, 5]]),
        np.array([[0.0, 1.01]]),
        np.array([[-0.01, 1]]),
        np.array([[0.0, np.nan]]),
        np.array([[0.0, np.inf]]),
        np.array([[0, 70000]], np.uint32),
        np.array([[1j, 0]]),
        np.array([["a", "b"]]),
        np.array([[None, object()]]),
        np.array([["2020-01-01"]], "datetime64[D]"),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)
def test_wrong_arrays(array):
    with pytest.raises(ImageError):
        rgb(array)


def test_foreign_arrays():
    class Tensor:
        def __array__(self, dtype=None, copy=None):
            return COLOUR

    class OnDevice:
        def __array__(self, dtype=None, copy=None):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")

    np.testing.assert_array_equal(rgb(Tensor()), COLOUR)
    with pytest.raises(ImageError, match="a OnDevice gives no array: TypeError"):
        rgb(OnDevice())
