"""What files say, and what is refused because nothing may be guessed."""

import math

import pytest

from onnxgen.errors import ModelFileError, UnsupportedModelError
from onnxgen.vision.kinds import KINDS
from onnxgen.vision.settings import read

VIT = {"image_processor_type": "ViTImageProcessor"}
CLIP = {"image_processor_type": "CLIPImageProcessor"}
DONUT = {"image_processor_type": "DonutImageProcessor"}
# A file that names no class must say everything.
STATED = {
    "do_resize": True,
    "size": {"height": 8, "width": 9},
    "resample": 3,
    "do_normalize": True,
    "image_mean": [0.1, 0.2, 0.3],
    "image_std": [0.4, 0.5, 0.6],
}


@pytest.mark.parametrize("kind", KINDS)
def test_old_new_and_fast_names_mean_the_same(kind):
    settings = read({"image_processor_type": f"{kind}ImageProcessor"})
    assert settings.kind == kind
    for config in (
        {"image_processor_type": f"{kind}ImageProcessorFast"},
        {"feature_extractor_type": f"{kind}FeatureExtractor"},
        {"feature_extractor_type": "X", "image_processor_type": f"{kind}ImageProcessor"},
        {"image_processor": {"image_processor_type": f"{kind}ImageProcessor"}, "image_seq_len": 9},
    ):
        assert read(config) == settings


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (VIT | {"size": 7}, {"height": 7, "width": 7}),
        (VIT | {"size": [7, 9]}, {"height": 7, "width": 9}),
        (VIT | {"size": {"width": 9, "height": 7}}, {"height": 7, "width": 9}),
        (VIT | {"size": None}, {"height": 224, "width": 224}),
        (
            VIT | {"size": {"height": 7, "width": 9, "shortest_edge": None}},
            {"height": 7, "width": 9},
        ),
        (CLIP | {"size": 7}, {"shortest_edge": 7}),
        (CLIP | {"size": {"shortest_edge": 7}}, {"shortest_edge": 7}),
        (CLIP | {"size": {"height": 7, "width": 9}}, {"height": 7, "width": 9}),
        (CLIP | {"size": 7, "use_square_size": True}, {"height": 7, "width": 7}),
        (DONUT | {"size": [7, 9]}, {"height": 9, "width": 7}),  # width first
        (STATED, {"height": 8, "width": 9}),
        (STATED | {"size": {"shortest_edge": 7}}, {"shortest_edge": 7}),
        (
            STATED | {"size": {"shortest_edge": 7, "longest_edge": 9}},
            {"shortest_edge": 7, "longest_edge": 9},
        ),
        (STATED | {"size": {"max_height": 7, "max_width": 9}}, {"max_height": 7, "max_width": 9}),
    ],
)
def test_sizes(config, wanted):
    assert read(config).size == wanted


@pytest.mark.parametrize(
    "size",
    [
        *(0, -1, 7.5, "7", True, 10**6 + 1, 10**4000),
        *([7], [7, 8, 9], [7, "8"], [7, None]),
        *({"height": side, "width": 5} for side in (0, 7.0, True)),
    ],
)
@pytest.mark.parametrize("config", [VIT, CLIP, DONUT])
def test_no_sizes(config, size):
    with pytest.raises(ModelFileError, match=r"preprocessor_config\.json: size"):
        read(config | {"size": size})


@pytest.mark.parametrize(
    ("config", "size"),
    [
        (VIT, {"shortest_edge": 7}),
        (VIT, {"height": 7}),
        (VIT, {}),
        (VIT, {"height": 7, "width": 7, "depth": 7}),
        (DONUT, {"shortest_edge": 7}),
        (CLIP, {"longest_edge": 7}),
        (CLIP, {"shortest_edge": 7, "longest_edge": 9}),  # slow and fast classes differ here
        (STATED, 7),  # a square in some classes, the shortest edge in others
        (STATED, {"longest_edge": 7}),  # classes round differently
        (
            STATED | {"do_center_crop": True, "crop_size": 4},
            {"shortest_edge": 7, "longest_edge": 9},
        ),
    ],
)
def test_sizes_that_may_mean_several_things(config, size):
    with pytest.raises(UnsupportedModelError, match="size"):
        read(config | {"size": size})


def test_null_switches_steps_off_and_leaves_values_at_their_defaults():
    settings = read(CLIP | {"do_center_crop": None, "do_resize": None, "do_normalize": None})
    assert settings.crop_size is None
    assert not settings.do_resize
    assert (settings.image_mean, settings.image_std) == ((0, 0, 0), (1, 1, 1))
    values = {"size": None, "crop_size": None, "image_mean": None, "image_std": None}
    assert read(CLIP | values) == read(CLIP)


@pytest.mark.parametrize(
    ("resample", "number"),
    [(n, n) for n in range(6)]
    + [("nearest", 0), ("Lanczos", 1), ("bilinear", 2), ("BICUBIC", 3), ("box", 4), ("hamming", 5)],
)
def test_filters(resample, number):
    assert read(VIT | {"resample": resample}).resample == number


@pytest.mark.parametrize(
    "fields",
    [
        {"resample": 6},
        {"resample": -1},
        {"resample": None},
        {"resample": True},
        {"resample": "cubic"},
        {"resample": 2.0},
        {"do_resize": "yes"},
        {"do_resize": 1},
        {"rescale_factor": None},
        {"rescale_factor": "1/255"},
        {"rescale_factor": math.nan},
        {"rescale_factor": math.inf},
        {"rescale_factor": -(10**4000)},
        {"rescale_factor": True},
        {"rescale_factor": [1]},
        {"image_mean": [0.5]},
        {"image_mean": [0.5] * 4},
        {"image_mean": [0.5, 0.5, None]},
        {"image_mean": "0.5"},
        {"image_mean": [0.5, math.nan, 0.5]},
        {"image_std": 0},
        {"image_std": 1e-300},
        {"image_std": [1, 0.0, 1]},
        {"image_processor_type": 5},
        {"image_processor_type": ["ViTImageProcessor"]},
    ],
)
def test_wrong_values(fields):
    with pytest.raises(ModelFileError, match=next(iter(fields))):
        read(VIT | fields)


@pytest.mark.parametrize("crop", [0, "4", [4], {"height": 4, "width": -1}])
def test_wrong_crops(crop):
    with pytest.raises(ModelFileError, match="crop_size"):
        read(CLIP | {"crop_size": crop})
    with pytest.raises(UnsupportedModelError, match="crop_size"):
        read(CLIP | {"crop_size": {"shortest_edge": 4}})


@pytest.mark.parametrize("config", [None, [], "x", 5, {"image_processor": None}, {5: 6}])
def test_no_files(config):
    with pytest.raises(ModelFileError):
        read(config)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("do_resise", "do_resize"),
        ("image_means", "image_mean"),
        ("rescale_factors", "rescale_factor"),
    ],
)
def test_a_misspelt_field_is_an_error(name, near):
    with pytest.raises(ModelFileError, match=f"did you mean '{near}'"):
        read(VIT | {name: 3})
    with pytest.raises(UnsupportedModelError, match=name):
        read(STATED | {name: 3})


def test_what_a_class_does_not_read_is_told():
    """Salesforce/blip has both; the class in transformers reads neither."""
    settings = read(
        {"image_processor_type": "BlipImageProcessor", "do_pad": True, "size_divisor": 32}
        | {"processor_class": "BlipProcessor", "do_center_crop": False, "crop_size": None}
    )
    assert settings.unread == ("do_pad", "size_divisor")
    assert not settings.do_pad
    with pytest.raises(UnsupportedModelError, match="ViTImageProcessorFast with do_center_crop"):
        read({"image_processor_type": "ViTImageProcessorFast", "do_center_crop": True})


@pytest.mark.parametrize("name", [{}, {"image_processor_type": "PvtImageProcessor"}])
def test_other_classes_are_read_by_their_fields(name):
    settings = read(STATED | name)
    assert (settings.size, settings.resample) == ({"height": 8, "width": 9}, 3)
    assert settings.image_mean == (0.1, 0.2, 0.3)
    assert settings.rescale_factor == 1 / 255
    assert settings.crop_size is None
    crop = STATED | name | {"do_center_crop": True, "crop_size": 4}
    assert read(crop).crop_size == {"height": 4, "width": 4}
    document = read(STATED | name | {"do_thumbnail": True, "do_pad": True, "do_crop_margin": True})
    assert document.document
    assert document.do_pad
    flipped = read({"do_resize": False, "do_flip_channel_order": True, "do_convert_rgb": True})
    assert flipped.do_flip_channel_order
    assert flipped.image_std == (1, 1, 1)


@pytest.mark.parametrize("missing", STATED)
def test_other_classes_must_say_what_they_do(missing):
    with pytest.raises(UnsupportedModelError, match=f"does not say {missing}"):
        read({name: value for name, value in STATED.items() if name != missing})


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"patch_size": 14}, "patch_size"),
        ({"do_image_splitting": True}, "do_image_splitting"),
        ({"crop_pct": None}, "crop_pct"),  # null: its class has a default
        ({"frobnicate": 0}, "frobnicate"),
        ({"crop_size": 4}, "do_center_crop"),
        ({"do_center_crop": True}, "crop_size"),
        ({"do_pad": True}, "do_pad"),
        ({"do_align_long_axis": True}, "do_align_long_axis"),
        ({"do_crop_margin": True}, "do_crop_margin"),
        ({"do_thumbnail": False}, "do_thumbnail"),
        ({"do_thumbnail": True, "do_center_crop": True, "crop_size": 4}, "do_thumbnail"),
        ({"do_flip_channel_order": True}, "do_flip_channel_order"),
        ({"image_processor_type": "PerceiverImageProcessor"}, "steps are its own"),
        (
            {"image_processor_type": "MyImageProcessor", "auto_map": {"AutoImageProcessor": "a.B"}},
            "code comes with the model",
        ),
    ],
)
def test_other_classes_may_not_leave_a_choice(fields, says):
    with pytest.raises(UnsupportedModelError, match=says):
        read(STATED | fields)


def test_fields_that_do_nothing():
    nothing = {"do_image_splitting": False, "do_pan_and_scan": None, "pad_size": None}
    nothing |= {"data_format": "channels_first", "auto_map": {"AutoProcessor": "a.B"}}
    assert read(STATED | nothing) == read(STATED)


def test_an_offset_needs_a_scale():
    with pytest.raises(ModelFileError, match="offset"):
        read(STATED | {"offset": True, "do_rescale": False})
