"""Images through transformers' slow image processors and through onnxgen, from the same file.

transformers is told that channels stand last: it takes pictures of 1 and of 3 rows for planes of
channels otherwise. Grey of 16 bits it clips; it gets it scaled.
"""

import importlib
import json
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxgen.errors import ImageError, OnnxgenError
from onnxgen.vision import resizing
from onnxgen.vision.loading import load
from onnxgen.vision.processor import ImageProcessor
from tests.vision.goldens import FIXTURES, IMAGES

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::UserWarning"),  # transformers' and Pillow's own
]

KINDS = ("ViT", "DeiT", "CLIP", "Siglip", "Blip", "Donut", "Nougat")
CASES = 40  # for each class, each on all images


def slow_processor(config: dict[str, Any], folder: Path) -> Any:
    """transformers' processor of the file ``config``."""
    from transformers import AutoImageProcessor

    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoImageProcessor.from_pretrained(folder, use_fast=False)


def load_image(name: str) -> Any:
    """The image as transformers loads it."""
    from PIL import Image
    from transformers.image_utils import load_image

    image = Image.open(FIXTURES / name)
    if image.mode == "I;16":
        grey = np.rint(np.asarray(image) / 257).astype(np.uint8)
        return Image.fromarray(grey).convert("RGB")
    return load_image(str(FIXTURES / name))


def run(processor: Any, images: Any) -> np.ndarray:
    """(B, 3, H, W) by transformers."""
    output = processor(images, return_tensors="np", input_data_format="channels_last")
    return np.asarray(output["pixel_values"], np.float32)


def random_file(kind: str, rng: random.Random) -> dict[str, Any]:
    """A file of a class: each field is there or not, with some value."""

    def side() -> int:
        return rng.randint(1, 70)

    def exact() -> Any:
        return rng.choice([side(), [side(), side()], {"height": side(), "width": side()}])

    def statistic() -> Any:
        low, high = 0.1, 0.9
        one = round(rng.uniform(low, high), 3)
        return rng.choice([one, [one, rng.uniform(low, high), rng.uniform(low, high)], None])

    name = rng.choice(["image_processor_type", "feature_extractor_type"])
    suffix = "ImageProcessor" if name[0] == "i" else "FeatureExtractor"
    size = exact()
    if kind == "Siglip":  # the one class that takes no other form
        size = {"height": side(), "width": side()}
    if kind == "CLIP":
        size = rng.choice([side(), {"shortest_edge": side()}, {"height": side(), "width": side()}])
    fields = {
        "resample": rng.randrange(6),
        "do_resize": rng.random() < 0.9,
        "do_rescale": rng.random() < 0.8,
        "rescale_factor": rng.choice([1 / 255, 0.00392156862745098, 1 / 127.5, 2]),
        "do_normalize": rng.random() < 0.8,
        "image_mean": statistic(),
        "image_std": statistic(),
        "do_center_crop": rng.random() < 0.8,
        "crop_size": exact(),
        "do_thumbnail": rng.random() < 0.8,
        "do_align_long_axis": rng.random() < 0.5,
        "do_pad": rng.random() < 0.8,
        "do_crop_margin": rng.random() < 0.7,
        "do_convert_rgb": True,
        "size_divisor": 32,
    }
    fields = {field: value for field, value in fields.items() if rng.random() < 0.6}
    return {name: kind + suffix, "size": size} | fields


@pytest.mark.parametrize("kind", KINDS)
def test_random_files(kind, tmp_path):
    compared = 0
    for seed in range(CASES):
        config = random_file(kind, random.Random(f"{kind}{seed}"))
        theirs, ours = slow_processor(config, tmp_path), ImageProcessor(config)
        assert type(theirs).__name__ == f"{kind}ImageProcessor"
        for name in IMAGES:
            try:
                wanted = run(theirs, load_image(name))
            except (ValueError, ZeroDivisionError):
                with pytest.raises(ImageError):
                    ours(FIXTURES / name)
                continue
            values = ours(FIXTURES / name)
            assert values.shape == wanted.shape, (config, name)
            np.testing.assert_allclose(
                values, wanted, rtol=0, atol=1e-5, err_msg=f"{config} {name}"
            )
            compared += 1
    assert compared > CASES * len(IMAGES) * 0.7


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_say_nothing(kind, tmp_path):
    config = {"image_processor_type": f"{kind}ImageProcessor"}
    theirs, ours = slow_processor(config, tmp_path), ImageProcessor(config)
    names = ["page.png", "turned.jpg"]
    wanted = run(theirs, [load_image(name) for name in names])
    values = ours([FIXTURES / name for name in names])
    np.testing.assert_allclose(values, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", IMAGES)
def test_loading(name):
    np.testing.assert_array_equal(np.asarray(load(FIXTURES / name)), np.asarray(load_image(name)))


def test_sixteen_bits_that_transformers_clips():
    from transformers.image_utils import load_image

    clipped = np.asarray(load_image(str(FIXTURES / "deep.png")))
    assert (clipped == 255).mean() > 0.95
    assert (np.asarray(load(FIXTURES / "deep.png")) == 255).mean() < 0.1


def slow_classes() -> list[str]:
    """The names of all image processors of transformers that are not the fast variants."""
    import transformers

    names = set()
    for path in Path(transformers.__file__).parent.glob("models/*/image_processing_*.py"):
        if path.stem.endswith("_fast"):
            continue
        module = importlib.import_module(f"transformers.models.{path.parent.name}.{path.stem}")
        ends = (name for name in vars(module) if name.endswith("ImageProcessor"))
        names.update(n for n in ends if not n.startswith(("Base", "Auto", "_")))
    return sorted(names)


# What a saved file of any class may say; None keeps the class's own.
VARIANTS: list[dict[str, Any]] = [
    {},
    {"size": {"height": 30, "width": 40}},
    {"size": {"shortest_edge": 33}},
    {"size": {"shortest_edge": 33, "longest_edge": 40}},
    {"size": {"longest_edge": 40}},
    {"size": {"max_height": 33, "max_width": 40}},
    {"size": 40},
    {"do_center_crop": False},
    {"do_pad": True},
    {"do_pad": False},
    {"do_thumbnail": False},
    {"do_align_long_axis": True},
    {"do_resize": False},
    {"do_rescale": False},
    {"do_normalize": False},
    {"resample": 1},
    {"resample": None},
    {"rescale_factor": 1 / 127.5},
    {"include_top": False, "rescale_offset": True},
]


def test_every_class_of_transformers_is_equalled_or_refused():
    """Also those that are not known here, by their fields; a class that raises proves nothing."""
    import transformers
    from PIL import Image

    transformers.logging.set_verbosity_error()
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (61, 87, 3), np.uint8))
    equal, refused = set(), set()
    for name in slow_classes():
        try:
            saved = json.loads(getattr(transformers, name)().to_json_string())
        except (ImportError, AttributeError, ValueError):
            continue  # needs torchvision or files
        for variant in VARIANTS:
            if "rescale_offset" in variant and "rescale_offset" not in saved:
                continue  # a step that the class does not have
            config = saved | variant
            try:
                ours = ImageProcessor(config)
            except OnnxgenError:
                refused.add(name)
                continue
            try:
                wanted = run(getattr(transformers, name)(**config), picture)
            except (ValueError, KeyError, TypeError, AttributeError, IndexError):
                continue
            np.testing.assert_allclose(
                ours(picture), wanted, rtol=0, atol=1e-5, err_msg=f"{name} {variant}"
            )
            equal.add(name)
    assert len(equal) >= 20
    assert len(equal | refused) >= 80


def test_sizes():
    from transformers.image_transforms import (
        get_resize_output_image_size,
        get_size_with_aspect_ratio,
    )
    from transformers.image_utils import ChannelDimension, get_image_size_for_max_height_width

    rng = random.Random(0)
    for _ in range(20_000):
        height, width = rng.randint(1, 3000), rng.randint(1, 3000)
        low = rng.randint(1, 1500)
        high = low + rng.randint(0, 1500)
        size = (height, width)
        assert resizing.target(
            {"shortest_edge": low, "longest_edge": high}, *size
        ) == get_size_with_aspect_ratio(size, low, high)
        assert resizing.target(
            {"max_height": low, "max_width": high}, *size
        ) == get_image_size_for_max_height_width(size, low, high)
        assert resizing.shortest_edge(low, *size) == get_resize_output_image_size(
            np.broadcast_to(np.uint8(0), (*size, 3)),
            low,
            default_to_square=False,
            input_data_format=ChannelDimension.LAST,
        )
