"""Gemma 3: pictures, crops and their text, on paper; transformers is asked in tests/oracle."""

import numpy as np
import pytest

from onnxgen.errors import ImageError, ModelFileError, OptionError, UnsupportedModelError
from onnxgen.vision.pan_and_scan import PanAndScan
from onnxgen.vision.pictures import Picture

PLAIN = {
    "image_processor_type": "Gemma3ImageProcessor",
    "size": {"height": 10, "width": 10},
    "resample": 0,  # nearest: pixels stay what they are
    "do_rescale": False,
    "do_normalize": False,
}
CROPS = {"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 8}
LONG = np.arange(10 * 40 * 3).reshape(10, 40, 3).astype(np.uint8)
WRITTEN = "\n\n<start_of_image><image_soft_token><image_soft_token><end_of_image>\n\n"


def made_from(tokens=2, options=None, **fields):
    files = {"preprocessor_config.json": PLAIN | fields}
    files["processor_config.json"] = {"image_seq_length": tokens}
    return PanAndScan(files, **(options or {}))


def test_an_image_is_one_picture():
    processor = made_from()
    made = processor([LONG, LONG])
    assert made.feeds["pixel_values"].shape == (2, 3, 10, 10)
    assert made.pictures == (Picture(2, (1, 0, 0), (10, 40)),) * 2
    text = processor.expand("a<start_of_image>b<start_of_image>", made.pictures)
    assert text == f"a{WRITTEN}b{WRITTEN}"


def test_a_file_does_not_switch_crops_on():
    """Gemma3Processor overrules the file of its image processor."""
    made = made_from(do_pan_and_scan=True, pan_and_scan_min_crop_size=8)([LONG])
    assert made.feeds["pixel_values"].shape[0] == 1


@pytest.mark.parametrize("portrait", [False, True])
def test_crops_follow_the_whole(portrait):
    image = LONG.transpose(1, 0, 2) if portrait else LONG
    made = made_from(options=CROPS)([image])
    values = made.feeds["pixel_values"]
    assert values.shape == (5, 3, 10, 10)  # 40 / 10 = 4 crops of 10 x 10
    planes = image.transpose(2, 0, 1)  # (3, H, W)
    for number in range(4):
        part = slice(10 * number, 10 * number + 10)
        wanted = planes[:, part] if portrait else planes[:, :, part]
        np.testing.assert_array_equal(values[1 + number], wanted)
    grid = (1, 4, 1) if portrait else (1, 1, 4)
    assert made.pictures == (Picture(10, grid, image.shape[:2]),)


def test_the_text_of_crops():
    processor = made_from(options=CROPS)
    pictures = [Picture(2, (1, 0, 0)), Picture(6, (1, 1, 2))]
    text = processor.expand("a<start_of_image>b<start_of_image>c", pictures)
    assert text == (
        f"a{WRITTEN}bHere is the original image {WRITTEN} and here are some crops to help you see "
        f"better {WRITTEN} {WRITTEN}c"
    )


@pytest.mark.parametrize(
    ("size", "more", "crops"),
    [
        ((10, 11), {}, 0),  # 1.1 is below the ratio
        ((10, 12), {}, 0),  # 2 crops of 6 columns, too small
        ((10, 16), {}, 2),
        ((10, 25), {}, 3),  # 2.5 rounds up
        ((10, 24), {}, 2),
        ((10, 90), {}, 4),
        ((10, 90), {"pan_and_scan_max_num_crops": 7}, 7),
        ((10, 90), {"pan_and_scan_min_ratio_to_activate": 9.5}, 0),
        ((7, 70), {}, 0),  # 7 rows are too few
        ((10, 90), {"pan_and_scan_max_num_crops": 20, "pan_and_scan_min_crop_size": 10}, 9),
        ((1, 1), {}, 0),
    ],
)
def test_how_many_crops(size, more, crops):
    made = made_from(options=CROPS | more)([np.zeros((*size, 3), np.uint8)])
    assert len(made.feeds["pixel_values"]) == 1 + crops
    assert made.pictures[0].tokens == 2 * (1 + crops)


def test_the_last_crop_may_be_smaller():
    made = made_from(size={"height": 1, "width": 1}, options=CROPS)([LONG[:, :25]])
    # Crops of 9, 9 and 7 columns; nearest takes the pixel in the middle.
    assert [value[0, 0, 0] for value in made.feeds["pixel_values"]] == [
        LONG[5, column, 0] for column in (12, 4, 13, 21)
    ]


def test_without_resizing_all_must_be_alike():
    processor = made_from(do_resize=False)
    assert processor([LONG, LONG]).feeds["pixel_values"].shape == (2, 3, 10, 40)
    with pytest.raises(ImageError, match="unlike sizes"):
        processor([LONG, LONG[:, :5]])


@pytest.mark.parametrize("text", ["none", "<start_of_image><start_of_image>"])
def test_places_and_images_must_be_as_many(text):
    with pytest.raises(ImageError, match="places"):
        made_from().expand(text, [Picture(2, (1, 0, 0))])


@pytest.mark.parametrize("where", ["top", "extra"])
def test_the_tokenizer_names_the_tokens(where):
    named = {"boi_token": "<b>", "image_token": "<i>", "eoi_token": "<e>"}
    files = {
        "preprocessor_config.json": PLAIN,
        "processor_config.json": {"image_seq_length": 1},
        "tokenizer_config.json": named if where == "top" else {"extra_special_tokens": named},
    }
    assert PanAndScan(files).expand("<b>", [Picture(1, (1, 0, 0))]) == "\n\n<b><i><e>\n\n"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"size": {"shortest_edge": 10}}, UnsupportedModelError),
        ({"size": "10"}, ModelFileError),
        ({"tokens": 2.0}, ModelFileError),
        ({"do_normalize": True, "image_std": 0}, ModelFileError),
        ({"options": {"do_pan_and_scan": None}}, OptionError),
        ({"options": {"pan_and_scan_min_crop_size": 0}}, OptionError),
        ({"options": {"pan_and_scan_max_num_crops": 2.0}}, OptionError),
        ({"options": {"pan_and_scan_min_ratio_to_activate": float("nan")}}, OptionError),
    ],
)
def test_broken_files(fields, error):
    with pytest.raises(error):
        made_from(**fields)
