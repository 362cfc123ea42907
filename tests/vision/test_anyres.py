"""LLaVA-OneVision: tiles and packed features, on paper; transformers is asked in tests/oracle."""

import numpy as np
import pytest

from onnxgen.errors import ImageError, ModelFileError, UnsupportedModelError
from onnxgen.vision.anyres import AnyRes, best_grid, shrink
from onnxgen.vision.pictures import Picture

PLAIN = {
    "image_processor_type": "LlavaOnevisionImageProcessor",
    "size": {"height": 2, "width": 2},
    "image_grid_pinpoints": [[2, 2], [2, 4], [4, 4]],
    "resample": 0,  # nearest: pixels stay what they are
    "do_rescale": False,
    "do_normalize": False,
}
PIXELS = np.arange(1, 25, dtype=np.uint8).reshape(2, 4, 3)
NEWLINE = np.array([-1.0], np.float32)


def anyres(tokens=4, newline=True, whole=None, **fields):
    files = {"preprocessor_config.json": PLAIN | fields}
    files["processor_config.json"] = {"num_image_tokens": tokens} | (whole or {})
    return AnyRes(files, newline=newline)


def numbered(tiles, features):
    """Feature f of tile t is 10 * t + f: (T, F, 1)."""
    numbers = 10 * np.arange(tiles)[:, None] + np.arange(features)
    return numbers[:, :, None].astype(np.float32)


def test_the_whole_then_the_tiles_row_by_row():
    made = anyres()([PIXELS])
    values = made.feeds["pixel_values"]
    assert values.shape == (3, 3, 2, 2)
    planes = PIXELS.transpose(2, 0, 1)  # (3, 2, 4)
    np.testing.assert_array_equal(values[0], planes[:, :, 1::2])
    np.testing.assert_array_equal(values[1], planes[:, :, :2])
    np.testing.assert_array_equal(values[2], planes[:, :, 2:])
    # 4 of the whole; 2 rows of 4, each with a newline.
    assert made.pictures == (Picture(4 + 2 * 5, (1, 1, 2), (2, 4)),)


def test_the_frame_is_black_and_the_odd_row_at_the_end():
    fields = {"size": 4, "image_grid_pinpoints": [[4, 4]]}
    values = anyres(tokens=16, **fields)([PIXELS[:1]]).feeds["pixel_values"]
    assert values[1, :, 1].all()
    assert not values[1][:, [0, 2, 3]].any()


def test_packing_puts_tiles_together():
    processor = anyres()
    made = processor([PIXELS])
    packed = processor.pack(numbered(3, 4), made.pictures, image_newline=NEWLINE)
    wanted = [0, 1, 2, 3, 10, 11, 20, 21, -1, 12, 13, 22, 23, -1]
    assert packed[:, 0].tolist() == wanted
    assert processor.expand("a<image>", made.pictures) == "a" + "<image>" * len(wanted)


def test_packing_cuts_the_frame_off():
    processor = anyres(tokens=16, size=4, image_grid_pinpoints=[[4, 4]])
    made = processor([PIXELS])  # 2 of 4 rows hold the image
    packed = processor.pack(numbered(2, 16), made.pictures, image_newline=NEWLINE)
    rows = [14, 15, 16, 17, -1, 18, 19, 20, 21, -1]  # 4 to 11 of tile 1
    assert packed[:, 0].tolist() == [*range(16), *rows]
    assert made.pictures[0].tokens == 26


def test_packing_shrinks_large_maps():
    processor = anyres(image_grid_pinpoints=[[4, 4]], whole={"vision_aspect_ratio": "anyres_max_1"})
    made = processor([np.zeros((4, 4, 3), np.uint8)])
    # A map of 4 x 4 for 1 tile of 2 x 2: halved, each value the mean of 4, that is of one tile.
    packed = processor.pack(numbered(5, 4), made.pictures, image_newline=NEWLINE)
    assert packed[4:, 0].tolist() == [11.5, 21.5, -1, 31.5, 41.5, -1]
    assert made.pictures[0].tokens == 10


def test_shrinking_on_paper():
    # Centres of 3 out of 5: 5/3 * (i + 1/2) - 1/2 = 1/3, 2, 11/3.
    values = shrink(np.float32([[0, 3, 6, 9, 12]]), 3, axis=1)
    np.testing.assert_allclose(values, [[1, 6, 11]], rtol=1e-6)
    same = np.float32([[5, 7]])
    np.testing.assert_array_equal(shrink(same, 2, axis=1), same)


def test_several_images_are_framed_in_the_mean_and_not_cut():
    processor = anyres(image_mean=[0.2, 0.4, 0.6], size=4, image_grid_pinpoints=[[4, 8]])
    made = processor([PIXELS, PIXELS])
    values = made.feeds["pixel_values"]
    assert values.shape == (2, 3, 4, 4)
    np.testing.assert_array_equal(values[0, :, 1:3], PIXELS.transpose(2, 0, 1))
    np.testing.assert_array_equal(values[0, :, 0, 0], [51, 102, 153])
    assert made.pictures == (Picture(5, (1, 0, 0), (2, 4)),) * 2
    packed = processor.pack(numbered(2, 4), made.pictures, image_newline=NEWLINE)
    assert packed[:, 0].tolist() == [0, 1, 2, 3, -1, 10, 11, 12, 13, -1]


def test_pictures_of_several_prompts_pack_together():
    processor = anyres()
    pictures = [*processor([PIXELS]).pictures, *processor([PIXELS, PIXELS]).pictures]
    packed = processor.pack(numbered(5, 4), pictures, image_newline=NEWLINE)
    assert len(packed) == sum(picture.tokens for picture in pictures)
    assert packed[14:, 0].tolist() == [30, 31, 32, 33, -1, 40, 41, 42, 43, -1]


@pytest.mark.parametrize("count", [1, 2])
def test_without_a_newline_the_whole_alone_counts(count):
    processor = anyres(newline=False)
    made = processor([PIXELS] * count)
    assert made.feeds["pixel_values"].shape == (count, 3, 2, 2)
    assert made.pictures == (Picture(4, (1, 0, 0), (2, 4)),) * count
    packed = processor.pack(numbered(count, 4), made.pictures)
    assert packed.shape == (4 * count, 1)


def test_the_first_token_of_a_clip_does_not_count():
    processor = anyres(tokens=5, whole={"vision_feature_select_strategy": "default"})
    assert processor([PIXELS]).pictures[0].tokens == 4 + 2 * 5


def test_an_image_too_narrow_for_a_row_of_features():
    processor = anyres(tokens=4)
    made = processor([np.zeros((1, 2000, 3), np.uint8)])
    assert made.pictures == (Picture(4, (1, 1, 1), (1, 2000)),)  # 2 / 2000 of a row: none
    assert len(processor.pack(numbered(2, 4), made.pictures, image_newline=NEWLINE)) == 4


@pytest.mark.parametrize(
    ("size", "best"),
    [
        ((1, 1), (1, 1)),  # all hold it: the least is wasted in the smallest
        ((3, 3), (2, 2)),
        ((2, 4), (1, 2)),
        ((100, 100), (2, 2)),
    ],
)
def test_the_best_grid(size, best):
    assert best_grid([(1, 1, 2), (1, 2, 2), (2, 2, 2)], *size) == best


@pytest.mark.parametrize("text", ["none", "<image><image>"])
def test_places_and_images_must_be_as_many(text):
    with pytest.raises(ImageError, match="places"):
        anyres().expand(text, [Picture(2)])


@pytest.mark.parametrize(
    ("features", "extra"),
    [
        (numbered(2, 4), {"image_newline": NEWLINE}),
        (numbered(3, 5), {"image_newline": NEWLINE}),
        (numbered(3, 4), {}),
        (numbered(3, 4), {"image_newline": np.zeros(2, np.float32)}),
    ],
)
def test_features_of_other_shapes(features, extra):
    processor = anyres()
    with pytest.raises(ModelFileError):
        processor.pack(features, processor([PIXELS]).pictures, **extra)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"size": {"height": 2, "width": 4}}, UnsupportedModelError),
        ({"image_grid_pinpoints": [[2, 3]]}, UnsupportedModelError),
        ({"image_grid_pinpoints": []}, ModelFileError),
        ({"image_grid_pinpoints": "(1x1)"}, ModelFileError),
        ({"image_grid_pinpoints": [[2, 2, 2]]}, ModelFileError),
        ({"tokens": None}, ModelFileError),
        ({"whole": {"vision_aspect_ratio": "anyres"}}, ModelFileError),
        ({"whole": {"vision_aspect_ratio": 9}}, ModelFileError),
    ],
)
def test_broken_files(fields, error):
    with pytest.raises(error):
        anyres(**fields)


def test_a_slender_image_of_several_gets_no_frame_of_gigabytes():
    slender = np.zeros((1, 50_000, 3), np.uint8)  # framed: 2.5 * 10^9 pixels
    with pytest.raises(ImageError, match="would become 50000 x 50000"):
        anyres()([slender, PIXELS])


def test_no_more_tiles_and_tokens_than_a_prompt_may_hold():
    with pytest.raises(ImageError, match="40 x 40 tiles"):
        anyres(image_grid_pinpoints=[[80, 80]])([PIXELS])
    # 10 x 10 tiles of 2^16 tokens, half of the map cut off with the frame: 3 * 10^6 tokens.
    with pytest.raises(ImageError, match="tokens"):
        anyres(
            tokens=1 << 16,
            image_grid_pinpoints=[[20, 20]],
            whole={"vision_aspect_ratio": "anyres_max_100"},
        )([PIXELS])
    with pytest.raises(ModelFileError, match="num_image_tokens"):
        anyres(tokens=1 << 20)
