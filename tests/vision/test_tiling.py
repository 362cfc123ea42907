"""Idefics3 and SmolVLM: tiles and their text, on paper; transformers is asked in tests/oracle."""

import numpy as np
import pytest

from onnxgen.errors import ImageError, ModelFileError, OptionError, UnsupportedModelError
from onnxgen.vision.pictures import Picture
from onnxgen.vision.tiling import Tiling

PLAIN = {
    "image_processor_type": "Idefics3ImageProcessor",
    "size": {"longest_edge": 6},
    "max_image_size": {"longest_edge": 2},
    "resample": 0,  # nearest: pixels stay what they are
    "do_rescale": False,
    "do_normalize": False,
}
PIXELS = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)


def tiling(tokens=2, options=None, **fields):
    files = {"preprocessor_config.json": PLAIN | fields}
    files["processor_config.json"] = {"image_seq_len": tokens}
    return Tiling(files, **(options or {}))


def test_tiles_row_by_row_then_the_whole():
    made = tiling()([PIXELS])
    values = made.feeds["pixel_values"]
    assert values.shape == (7, 3, 2, 2)
    assert values.dtype == np.float32
    planes = PIXELS.transpose(2, 0, 1)  # (3, 4, 6)
    for number in range(6):
        top, left = number // 3 * 2, number % 3 * 2
        np.testing.assert_array_equal(values[number], planes[:, top : top + 2, left : left + 2])
    # Of each 2 rows and 3 columns the whole holds the pixel in the middle, or after it.
    np.testing.assert_array_equal(values[6], planes[:, 1::2, 1::3])
    assert made.pictures == (Picture(tokens=14, grid=(1, 2, 3), size=(4, 6)),)


def test_the_mask_holds_all_pixels():
    mask = tiling()([PIXELS]).feeds["pixel_attention_mask"]
    assert mask.shape == (7, 2, 2)
    assert mask.dtype == np.bool_
    assert mask.all()


def test_the_text_of_tiles():
    image, around = "<image><image>", "<fake_token_around_image>"
    rows = [
        "".join(f"{around}<row_{row}_col_{column}>{image}" for column in (1, 2, 3))
        for row in (1, 2)
    ]
    whole = f"{around}<global-img>{image}{around}"
    expanded = tiling().expand("a <image> b", [Picture(14, (1, 2, 3))])
    assert expanded == f"a {rows[0]}\n{rows[1]}\n\n{whole} b"


def test_an_image_of_one_tile_is_not_cut():
    processor = tiling(max_image_size={"longest_edge": 6})
    made = processor([PIXELS])
    assert made.feeds["pixel_values"].shape == (1, 3, 6, 6)
    assert made.pictures == (Picture(2, (1, 0, 0), (4, 6)),)
    around = "<fake_token_around_image>"
    wanted = f"{around}<global-img><image><image>{around}"
    assert processor.expand("<image>", made.pictures) == wanted


@pytest.mark.parametrize("given", [{"do_image_splitting": False}, {"options": True}])
def test_without_splitting(given):
    off = {"options": {"do_image_splitting": False}} if "options" in given else given
    made = tiling(**off)([PIXELS])
    assert made.feeds["pixel_values"].shape == (1, 3, 2, 2)
    assert made.pictures[0].grid == (1, 0, 0)


@pytest.mark.parametrize(
    ("size", "grid"),
    [
        ((1, 1), (3, 3)),  # to 6 x 6
        ((60, 2000), (1, 3)),  # 6 / 33.3 cut off is 0, but a row is left; up to 2
        ((2000, 60), (3, 1)),
        ((5, 6), (3, 3)),  # 5 rows are odd: 6
    ],
)
def test_extremes(size, grid):
    made = tiling()([np.zeros((*size, 3), np.uint8)])
    assert made.pictures[0].grid == (1, *grid)
    assert made.pictures[0].tokens == 2 * (grid[0] * grid[1] + 1)
    assert len(made.feeds["pixel_values"]) == grid[0] * grid[1] + 1


def test_rescaling_and_normalising():
    fields = {"do_rescale": True, "do_normalize": True, "image_mean": 0.5, "image_std": 0.25}
    values = tiling(**fields)([PIXELS]).feeds["pixel_values"]
    np.testing.assert_allclose(values[0, 0, 0, 0], (0 / 255 - 0.5) / 0.25, rtol=1e-6)
    np.testing.assert_allclose(values[0, 2, 1, 1], (23 / 255 - 0.5) / 0.25, rtol=1e-6)


def test_several_images_in_order():
    processor = tiling()
    images = [PIXELS, PIXELS[:1, :1], PIXELS[::-1]]
    made = processor(images)
    one_by_one = [processor([image]) for image in images]
    parts = [one.feeds["pixel_values"] for one in one_by_one]
    np.testing.assert_array_equal(made.feeds["pixel_values"], np.concatenate(parts))
    assert made.pictures == tuple(one.pictures[0] for one in one_by_one)
    texts = [processor.expand("<image>", one.pictures) for one in one_by_one]
    assert processor.expand("1<image>2<image>3<image>4", made.pictures) == (
        f"1{texts[0]}2{texts[1]}3{texts[2]}4"
    )


def test_features_pack_tile_by_tile():
    features = np.arange(7 * 2 * 3).reshape(7, 2, 3)
    packed = tiling().pack(features, [Picture(14, (1, 2, 3))])
    np.testing.assert_array_equal(packed, features.reshape(14, 3))


def test_the_tokenizer_names_the_tokens():
    named = {"image_token": "<i>", "fake_image_token": {"content": "<f>"}}
    named |= {"global_image_token": "<g>"}
    files = {
        "preprocessor_config.json": PLAIN,
        "processor_config.json": {"image_seq_len": 1},
        "tokenizer_config.json": {"extra_special_tokens": named},
    }
    processor = Tiling(files)
    assert processor.placeholder == "<i>"
    assert processor.expand("<i>", [Picture(1, (1, 0, 0))]) == "<f><g><i><f>"


@pytest.mark.parametrize("text", ["none", "<image><image>"])
def test_places_and_images_must_be_as_many(text):
    with pytest.raises(ImageError, match=f"{text.count('<image>')} places"):
        tiling().expand(text, [Picture(2, (1, 0, 0))])
    assert tiling().expand("none", []) == "none"


@pytest.mark.parametrize("images", [[], PIXELS, "a.png", None, [None]])
def test_no_list_of_images(images):
    with pytest.raises(ImageError):
        tiling()(images)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"size": {"shortest_edge": 6}}, UnsupportedModelError),
        ({"size": 6}, UnsupportedModelError),
        ({"size": {"longest_edge": 0}}, ModelFileError),
        ({"max_image_size": {"height": 2, "width": 2}}, UnsupportedModelError),
        ({"max_image_size": {"longest_edge": "2"}}, ModelFileError),
        ({"max_image_size": {"longest_edge": 5000}}, ModelFileError),
        ({"do_image_splitting": 1}, ModelFileError),
        ({"do_image_spliting": True}, ModelFileError),
        ({"resample": 9}, ModelFileError),
        ({"tokens": 0}, ModelFileError),
        ({"tokens": "64"}, ModelFileError),
        ({"options": {"do_image_splitting": "no"}}, OptionError),
        ({"options": {"max_pixels": 0}}, OptionError),
    ],
)
def test_broken_files(fields, error):
    with pytest.raises(error):
        tiling(**fields)


@pytest.mark.parametrize("files", [{}, {"preprocessor_config.json": []}])
def test_no_fields(files):
    with pytest.raises(ModelFileError):
        Tiling(files)
