"""Sizes and steps by arithmetic on paper; transformers' own are in tests/oracle."""

import numpy as np
import pytest
from PIL import Image

from onnxgen.errors import ImageError
from onnxgen.vision import resizing


def picture(height, width):
    """Red counts columns, green rows, from 1; so black is what was added."""
    pixels = np.ones((height, width, 3), np.uint8)
    pixels[:, :, 0] = np.arange(1, width + 1)
    pixels[:, :, 1] = np.arange(1, height + 1)[:, None]
    return Image.fromarray(pixels)


def columns(image):
    return np.asarray(image)[image.height // 2, :, 0].tolist()


def rows(image):
    return np.asarray(image)[:, image.width // 2, 1].tolist()


@pytest.mark.parametrize(
    ("size", "picture_size", "wanted"),
    [
        ({"height": 7, "width": 9}, (100, 3), (7, 9)),
        ({"shortest_edge": 10}, (30, 20), (15, 10)),
        ({"shortest_edge": 10}, (20, 33), (10, 16)),  # 16.5, rounded down
        ({"shortest_edge": 10}, (20, 20), (10, 10)),
        ({"shortest_edge": 10, "longest_edge": 12}, (20, 22), (10, 11)),
        ({"shortest_edge": 10, "longest_edge": 12}, (20, 40), (6, 12)),
        ({"shortest_edge": 10, "longest_edge": 12}, (40, 20), (12, 6)),
        ({"shortest_edge": 10, "longest_edge": 13}, (20, 40), (6, 13)),  # 6.5, to even
        ({"shortest_edge": 10, "longest_edge": 15}, (20, 40), (8, 15)),  # 7.5, to even
        ({"shortest_edge": 10, "longest_edge": 12}, (10, 11), (10, 11)),
        ({"max_height": 10, "max_width": 12}, (5, 4), (10, 8)),  # grows too
        ({"max_height": 10, "max_width": 12}, (100, 200), (6, 12)),
    ],
)
def test_target(size, picture_size, wanted):
    assert resizing.target(size, *picture_size) == wanted


def test_center_crop():
    image = picture(5, 6)
    assert columns(resizing.center_crop(image, (5, 3))) == [2, 3, 4]  # three over: one before
    assert rows(resizing.center_crop(image, (2, 6))) == [2, 3]
    assert columns(resizing.center_crop(image, (5, 9))) == [0, 0, 1, 2, 3, 4, 5, 6, 0]
    assert rows(resizing.center_crop(image, (8, 2))) == [0, 0, 1, 2, 3, 4, 5, 0]
    both = resizing.center_crop(image, (7, 2))
    assert (rows(both), columns(both)) == ([0, 1, 2, 3, 4, 5, 0], [3, 4])


def test_pad():
    image = picture(2, 2)
    assert columns(resizing.pad(image, (2, 5))) == [0, 1, 2, 0, 0]  # the odd one is at the end
    assert rows(resizing.pad(image, (4, 2))) == [0, 1, 2, 0]
    assert resizing.pad(image, (2, 2)).tobytes() == image.tobytes()
    with pytest.raises(ImageError, match="2 x 2 does not fit 3 x 1"):
        resizing.pad(image, (3, 1))


def test_align_long_axis():
    lying = picture(2, 3)
    turned = resizing.align_long_axis(lying, (9, 8))
    assert turned.size == (2, 3)
    assert np.asarray(turned)[0, :, 1].tolist() == [2, 1]  # clockwise: the first column is on top
    assert resizing.align_long_axis(turned, (8, 9)).size == (3, 2)
    for size in ((8, 9), (9, 9)):
        assert resizing.align_long_axis(lying, size) is lying
    square = picture(3, 3)
    assert resizing.align_long_axis(square, (8, 9)) is square


@pytest.mark.parametrize(
    ("picture_size", "bounds", "wanted"),
    [
        ((4, 5), (6, 7), (4, 5)),
        ((20, 10), (8, 8), (8, 4)),
        ((10, 20), (8, 8), (4, 8)),
        ((20, 20), (8, 6), (8, 6)),  # a square takes the form
        ((20, 18), (16, 5), (16, 14)),  # wider than the bounds
    ],
)
def test_thumbnail(picture_size, bounds, wanted):
    image = resizing.thumbnail(picture(*picture_size), bounds)
    assert (image.height, image.width) == wanted


def test_crop_margin():
    grey = np.full((9, 11), 250, np.uint8)
    grey[2:5, 3] = 40
    grey[4, 7] = 200  # (200 - 40) / 210 * 255 = 194.3: ink
    grey[8, 10] = 210  # 206.4: none
    image = resizing.crop_margin(Image.fromarray(grey).convert("RGB"))
    np.testing.assert_array_equal(np.asarray(image)[:, :, 0], grey[2:5, 3:8])
    blank = Image.new("RGB", (4, 3), "white")
    assert resizing.crop_margin(blank) is blank


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (8001, 8000)])
def test_sizes_that_no_picture_has(size):
    image = picture(3, 4)
    for step in (resizing.center_crop, resizing.pad, lambda i, s: resizing.resize(i, s, 2)):
        with pytest.raises(ImageError, match=f"3 x 4 would become {size[0]} x {size[1]}"):
            step(image, size)
