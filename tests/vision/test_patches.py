"""Images as rows of patches: order, grid and sizes, worked out on paper."""

import numpy as np
import pytest

from onnxgen.errors import ImageError, ModelFileError, OptionError
from onnxgen.vision.patches import Patches, smart_size
from onnxgen.vision.pictures import Picture
from onnxgen.vision.vlm import processor

# Pixels as they are, in patches of 2 x 2 that are merged by 2 x 2.
PLAIN = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "do_resize": False,
    "do_rescale": False,
    "do_normalize": False,
    "patch_size": 2,
    "temporal_patch_size": 2,
    "merge_size": 2,
}
# (4, 8, 3): the red of row r, column c is 10 r + c, green is 100 more, blue 200 less 10 r.
RED = 10 * np.arange(4)[:, None] + np.arange(8)
PIXELS = np.stack(
    [RED, RED + 100, np.broadcast_to(200 - 10 * np.arange(4)[:, None], RED.shape)], -1
)
PIXELS = PIXELS.astype(np.uint8)


def patches(**fields):
    return processor({"preprocessor_config.json": PLAIN | fields})


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        ((280, 280), (280, 280)),
        ((70, 700), (56, 700)),  # 2.5 patches: halves go to even numbers
        ((98, 700), (112, 700)),  # 3.5 patches
        ((1, 1), (56, 56)),
        ((1, 200), (28, 812)),  # sqrt(3136 / 200) = 3.96: 4 rows, 792 columns, both rounded up
        ((2000, 2000), (980, 980)),  # sqrt(4000000 / 1003520): 1001.7, cut down to 35 patches
        ((20_000, 100), (14_140, 56)),  # 1.41: 14166 and 70.8
    ],
)
def test_sizes(size, wanted):
    assert smart_size(*size, 28, 3136, 1_003_520) == wanted


@pytest.mark.parametrize("size", [(1, 201), (4020, 20)])
def test_slender_pictures_are_refused(size):
    with pytest.raises(ImageError, match="200 times"):
        smart_size(*size, 28, 3136, 1_003_520)
    with pytest.raises(ImageError):
        patches(do_resize=True)([np.zeros((*size, 3), np.uint8)])


def test_a_patch_holds_its_pixels_by_colour_and_frame():
    made = patches()([PIXELS])
    assert made.feeds["image_grid_thw"].tolist() == [[1, 2, 4]]
    assert made.feeds["image_grid_thw"].dtype == np.int64
    values = made.feeds["pixel_values"]
    assert values.shape == (8, 3 * 2 * 2 * 2)
    assert values.dtype == np.float32
    # An image fills both frames of a patch with the same.
    assert values[0].tolist() == [
        *(0, 1, 10, 11) * 2,
        *(100, 101, 110, 111) * 2,
        *(200, 200, 190, 190) * 2,
    ]
    # Four patches that make one token stand together: two above, two below.
    assert values[:, 0].tolist() == [0, 2, 20, 22, 4, 6, 24, 26]
    assert made.pictures == (Picture(2, (1, 2, 4), (4, 8)),)


def test_several_images_stand_one_after_the_other():
    made = patches()([PIXELS, PIXELS[:, :4]])
    assert made.feeds["image_grid_thw"].tolist() == [[1, 2, 4], [1, 2, 2]]
    assert len(made.feeds["pixel_values"]) == 12
    assert [picture.tokens for picture in made.pictures] == [2, 1]


def test_the_last_frame_of_a_video_fills_up():
    frames = [np.full((4, 4, 3), value, np.uint8) for value in (7, 8, 9)]
    made = patches().videos([frames])
    assert made.feeds["video_grid_thw"].tolist() == [[2, 2, 2]]
    values = made.feeds["pixel_values_videos"]
    assert values.shape == (8, 24)
    assert values[0].tolist() == [7, 7, 7, 7, 8, 8, 8, 8] * 3
    assert values[4].tolist() == [9] * 24
    assert [picture.tokens for picture in made.pictures] == [2]


def test_prompts():
    ours = patches()
    text = "a<|vision_start|><|image_pad|><|vision_end|>b<|image_pad|>c<|video_pad|>"
    pictures, videos = [Picture(2), Picture(1)], [Picture(3)]
    assert ours.expand(text, pictures, videos) == (
        f"a<|vision_start|>{'<|image_pad|>' * 2}<|vision_end|>b<|image_pad|>c{'<|video_pad|>' * 3}"
    )
    for wrong in (pictures[:1], [*pictures, Picture(1)], []):
        with pytest.raises(ImageError):
            ours.expand(text, wrong, videos)
    with pytest.raises(ImageError):
        ours.expand(text, pictures)


def test_bounds_of_files():
    image = np.zeros((300, 300, 3), np.uint8)

    def grid(**fields):
        config = {"image_processor_type": "Qwen2VLImageProcessorFast"} | fields
        return patches_of(config)([image]).pictures[0].grid

    def patches_of(config):
        return processor({"preprocessor_config.json": config})

    assert grid() == (1, 22, 22)  # 300 / 28 = 10.7
    assert grid(size={"shortest_edge": 3136, "longest_edge": 60 * 60}) == (1, 4, 4)
    assert grid(max_pixels=60 * 60) == (1, 4, 4)
    both = {"size": {"shortest_edge": 3136, "longest_edge": 3136}, "max_pixels": 90 * 90}
    assert grid(**both) == (1, 6, 6)
    assert grid(min_pixels=550 * 550, max_pixels=None) == (1, 40, 40)


def test_videos_have_a_file_of_their_own():
    own = {"preprocessor_config.json": PLAIN, "video_preprocessor_config.json": PLAIN}
    own["video_preprocessor_config.json"] = PLAIN | {"temporal_patch_size": 4}
    made = processor(own)
    assert isinstance(made, Patches)
    assert made.videos([[PIXELS] * 5]).pictures[0].grid == (2, 2, 4)
    assert made([PIXELS]).feeds["pixel_values"].shape == (8, 24)
    assert made.seconds(8) == 0.5
    with pytest.raises(OptionError):
        made.seconds(0)


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p([]),
        lambda p: p(PIXELS),
        lambda p: p([PIXELS[:3]]),  # 3 rows, and no resizing
        lambda p: p([PIXELS[:, :6]]),
        lambda p: p([PIXELS[:2, :2]]),  # half a merged patch
        lambda p: p.videos([]),
        lambda p: p.videos([[]]),
        lambda p: p.videos([PIXELS, []]),
        lambda p: p.videos([[PIXELS, PIXELS[:, :4]]]),
        lambda p: p.videos("abc"),
    ],
)
def test_wrong_images(call):
    with pytest.raises(ImageError):
        call(patches())


@pytest.mark.parametrize(
    "fields",
    [
        {"size": {"height": 3, "width": 3}},
        {"size": 3},
        {"size": {"shortest_edge": 3, "longest_edge": "x"}},
        {"patch_size": 0},
        {"merge_size": 1.5},
        {"max_pixels": 0},
        {"min_pixel": 3},
        {"do_resize": True, "resample": None},
        {"do_normalize": True, "image_std": 0},
    ],
)
def test_wrong_files(fields):
    with pytest.raises(ModelFileError):
        patches(**fields)
