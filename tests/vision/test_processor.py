"""Pictures become what transformers makes of them, from the same file."""

import numpy as np
import pytest

from onnxgen.errors import ImageError
from onnxgen.vision.loading import load
from onnxgen.vision.processor import ImageProcessor
from tests.vision.goldens import CASES, FIXTURES, IMAGES, TOLERANCE, expected

SMALL = [name for name in CASES if "stride" not in CASES[name]]
SILENT = [name for name in CASES if "stride" in CASES[name]]
PLAIN = {"image_processor_type": "ViTImageProcessor", "size": {"height": 2, "width": 3}}


def test_there_are_images_of_every_kind():
    assert len(IMAGES) == 12
    kinds = {CASES[name]["config"].get("image_processor_type") for name in CASES}
    assert len(kinds - {None}) == 7


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("case", SMALL)
def test_equals_transformers(case, image):
    values = ImageProcessor(CASES[case]["config"])(FIXTURES / image)
    assert values.dtype == np.float32
    assert values.shape == (1, *expected()[f"{case}/{image}"].shape)
    np.testing.assert_allclose(values[0], expected()[f"{case}/{image}"], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("case", SILENT)
def test_what_a_class_does_where_its_file_is_silent(case):
    processor = ImageProcessor(CASES[case]["config"])
    values = processor(FIXTURES / "photo.jpg")[0]
    assert list(values.shape) == CASES[case]["shape"]
    assert processor.output_size == values.shape[1:]
    stride = CASES[case]["stride"]
    wanted = expected()[f"{case}/photo.jpg"]
    np.testing.assert_allclose(values[:, ::stride, ::stride], wanted, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("case", SMALL)
def test_a_batch_is_its_images_one_by_one(case):
    processor = ImageProcessor(CASES[case]["config"])
    images = [FIXTURES / name for name in IMAGES]
    batch = processor(images)
    assert batch.shape[0] == len(images)
    for values, image in zip(batch, images, strict=True):
        np.testing.assert_array_equal(values, processor(image)[0])


def test_what_batches_may_be():
    pixels = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    processor = ImageProcessor(PLAIN)
    one_by_one = np.concatenate([processor(pixels[0]), processor(pixels[1])])
    for batch in (pixels, list(pixels), tuple(pixels), list(pixels.transpose(0, 3, 1, 2))):
        np.testing.assert_array_equal(processor(batch), one_by_one)


def test_geometry_is_of_the_upright_picture():
    processed = ImageProcessor(PLAIN).process([FIXTURES / "photo.jpg", FIXTURES / "turned.jpg"])
    assert processed.pixel_values.shape == (2, 3, 2, 3)
    assert processed.original_sizes == ((67, 101), (72, 48))


def test_unlike_sizes_are_no_batch():
    processor = ImageProcessor(PLAIN | {"do_resize": False})
    assert processor.output_size is None
    assert processor(np.zeros((4, 5, 3), np.uint8)).shape == (1, 3, 4, 5)
    with pytest.raises(ImageError, match="4 x 5, 5 x 4"):
        processor([np.zeros((4, 5, 3), np.uint8), np.zeros((5, 4, 3), np.uint8)])


@pytest.mark.parametrize("images", [[], (), np.zeros((0, 4, 4, 3), np.uint8)])
def test_no_images_are_an_error(images):
    with pytest.raises(ImageError, match="no images"):
        ImageProcessor(PLAIN)(images)


@pytest.mark.parametrize("images", [None, 5, [None], [[FIXTURES / "tiny.png"]], {"a": 1}])
def test_no_images_at_all(images):
    with pytest.raises(ImageError, match="is no image"):
        ImageProcessor(PLAIN)(images)


def test_pixels_are_bounded():
    with pytest.raises(ImageError, match="too many pixels"):
        ImageProcessor(PLAIN, max_pixels=19)(np.zeros((4, 5, 3), np.uint8))


def test_a_narrow_picture_does_not_fill_the_memory():
    clip = ImageProcessor({"image_processor_type": "CLIPImageProcessor"})
    with pytest.raises(ImageError, match="would become 448000000 x 224"):
        clip(np.zeros((2_000_000, 1), np.uint8))


def test_a_picture_that_a_thumbnail_leaves_nothing_of():
    """transformers divides by zero here: 15 rows of 300 are less than one of 15."""
    size = {"height": 23, "width": 15}
    donut = ImageProcessor({"image_processor_type": "DonutImageProcessor", "size": size})
    with pytest.raises(ImageError, match="15 x 375 would become 0 x 15"):
        donut(np.zeros((12, 300), np.uint8))


def test_arithmetic_on_paper():
    """Grey levels 0, 51, 255 by each way of mapping them."""
    pixels = np.array([[0, 51, 255]], np.uint8)[:, :, None].repeat(3, axis=2)
    pixels[0, 1] = (51, 102, 204)
    file = {"do_resize": False, "do_normalize": False}

    def values(**fields):
        return ImageProcessor(file | fields)(pixels)[0, :, 0]

    np.testing.assert_allclose(values()[0], [0, 0.2, 1], atol=1e-7)
    np.testing.assert_allclose(values(do_rescale=False)[0], [0, 51, 255])
    np.testing.assert_allclose(values(rescale_factor=1 / 127.5, offset=True)[0], [-1, -0.6, 1])
    np.testing.assert_allclose(
        values(rescale_factor=1 / 127.5, rescale_offset=True)[0], [-1, -0.6, 1]
    )
    np.testing.assert_allclose(values(do_flip_channel_order=True)[:, 1], [0.8, 0.4, 0.2])
    scaled = values(do_normalize=True, image_mean=[0.2, 0.4, 0.5], image_std=[0.1, 0.2, 0.5])
    np.testing.assert_allclose(scaled[:, 1], [0, 0, 0.6], atol=1e-6)
    np.testing.assert_allclose(scaled[:, 2], [8, 3, 1], rtol=1e-6)


def test_sources_stay_as_they_are():
    image = load(FIXTURES / "photo.jpg")
    before = np.asarray(image).copy()
    ImageProcessor({"image_processor_type": "NougatImageProcessor", "size": [20, 20]})(image)
    np.testing.assert_array_equal(np.asarray(image), before)
