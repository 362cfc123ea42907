"""Positions on three axes, worked out on paper."""

import numpy as np
import pytest

from onnxgen.errors import ImageError, ModelFileError, OptionError
from onnxgen.vision.positions import Rules, positions, rules

T, VS, VE, IMG, VID = 7, 1, 2, 3, 4
COUNTED = Rules(IMG, VID, VS, merge=2, tokens_per_second=None)
TIMED = Rules(IMG, VID, VS, merge=2, tokens_per_second=2)


def test_text_alone_counts_from_0():  # known problem V2
    values, delta = positions([T] * 5, COUNTED)
    assert values.tolist() == [[0, 1, 2, 3, 4]] * 3
    assert values.dtype == np.int64
    assert delta == 0  # the first new token, index 5, has the position 5


@pytest.mark.parametrize("rule", [COUNTED, TIMED])
def test_an_image_of_two_rows_and_three_columns(rule):  # known problem V3
    values, delta = positions([T, VS, *[IMG] * 6, T, T], rule, images=[(1, 4, 6)])
    assert values.tolist() == [
        [0, 1, 2, 2, 2, 2, 2, 2, 5, 6],
        [0, 1, 2, 2, 2, 3, 3, 3, 5, 6],
        [0, 1, 2, 3, 4, 2, 3, 4, 5, 6],
    ]
    assert delta == -3  # ten tokens, largest position 6: index 10 has the position 7


def test_two_images_of_unlike_size():
    row = [VS, IMG, IMG, VE, VS, *[IMG] * 4, VE]
    values, delta = positions(row, COUNTED, images=[(1, 2, 4), (1, 4, 4)])
    assert values.tolist() == [
        [0, 1, 1, 3, 4, 5, 5, 5, 5, 7],
        [0, 1, 1, 3, 4, 5, 5, 6, 6, 7],
        [0, 1, 2, 3, 4, 5, 6, 5, 6, 7],
    ]
    assert delta == -2


@pytest.mark.parametrize(
    ("rule", "seconds", "time", "text"),
    [
        (COUNTED, None, [1, 2, 3], 4),
        (COUNTED, [9.0], [1, 2, 3], 4),
        (TIMED, None, [1, 3, 5], 6),
        (TIMED, [1.0], [1, 3, 5], 6),
        (TIMED, [0.5], [1, 1, 1], 2),
        (TIMED, [1.5], [1, 3, 5], 6),
    ],
)
def test_a_video_of_three_steps(rule, seconds, time, text):
    values, delta = positions([VS, VID, VID, VID, T], rule, videos=[(3, 2, 2)], seconds=seconds)
    assert values.tolist() == [[0, *time, text], [0, 1, 1, 1, text], [0, 1, 1, 1, text]]
    assert delta == text + 1 - 5


def test_an_image_between_videos():
    row = [VS, VID, VE, VS, IMG, VE, VS, VID, VID, VE]
    grids = {"images": [(1, 2, 2)], "videos": [(1, 2, 2), (2, 2, 2)]}
    values, _ = positions(row, TIMED, **grids, seconds=[1, 3])
    assert values[0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 13, 14]
    assert values[1].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 7, 14]


def test_image_tokens_without_a_start_are_text():
    values, delta = positions([T, IMG, IMG, T, VS], COUNTED)
    assert values.tolist() == [[0, 1, 2, 3, 4]] * 3
    assert delta == 0


@pytest.mark.parametrize(
    ("row", "grids"),
    [
        ([VS, IMG], {}),
        ([VS, IMG, VE, VS, IMG], {"images": [(1, 2, 2)]}),
        ([VS, VID], {"images": [(1, 2, 2)]}),
        ([VS, IMG, IMG, T], {"images": [(1, 4, 4)]}),
        ([VS, IMG, T, VS, IMG], {"images": [(1, 4, 4), (1, 2, 2)]}),
    ],
)
def test_tokens_that_do_not_fit_the_grids(row, grids):
    with pytest.raises(ImageError):
        positions(row, COUNTED, **grids)


@pytest.mark.parametrize("tokens", [[], [[1, 2]], [0.5]])
def test_wrong_tokens(tokens):
    with pytest.raises(OptionError):
        positions(tokens, COUNTED)


@pytest.mark.parametrize("seconds", [[], [1, 1], [-1], [float("nan")], [float("inf")], ["1"]])
def test_wrong_seconds(seconds):
    with pytest.raises(OptionError):
        positions([VS, VID], TIMED, videos=[(1, 2, 2)], seconds=seconds)


def test_rules_of_files():
    assert rules({}) == Rules(151655, 151656, 151652, 2, None)
    assert rules({"config.json": {"model_type": "qwen2_5_vl"}}).tokens_per_second == 4
    config = {
        "model_type": "qwen2_5_vl",
        "image_token_id": 5,
        "video_token_id": 6,
        "vision_start_token_id": 7,
        "vision_config": {"spatial_merge_size": 3, "tokens_per_second": 2},
    }
    assert rules({"config.json": config}) == Rules(5, 6, 7, 3, 2)


@pytest.mark.parametrize(
    "config",
    [
        [],
        {"image_token_id": "x"},
        {"vision_config": 3},
        {"vision_config": {"spatial_merge_size": 0}},
    ],
)
def test_wrong_files(config):
    with pytest.raises(ModelFileError):
        rules({"config.json": config})
