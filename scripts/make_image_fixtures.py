"""Writes ``fixtures/images``: twelve small images, and what transformers 4.57.6 makes of them.

Run in the oracle environment (transformers 4.57.6, Pillow; no hub needed)::

    HF_HUB_OFFLINE=1 python scripts/make_image_fixtures.py

``expected.json`` holds the cases, each a ``preprocessor_config.json``, and the version of Pillow,
which rounds some pixels otherwise than 12 does; ``expected.npz`` holds the pixel values, (3, H, W)
for each case and image.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import transformers
from PIL import Image
from transformers.image_utils import load_image

FOLDER = Path(__file__).parent.parent / "fixtures" / "images"
STRIDE = 64  # of results at full size only each such row and column is kept


def scene(height: int, width: int, seed: int) -> np.ndarray:
    """A picture (H, W, 3): slopes, a disc, stripes and some noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    base = np.stack([x, y, 1 - (x + y) / 2], axis=-1) * rng.uniform(120, 240, 3)
    disc = (x - 0.4) ** 2 + (y - 0.3) ** 2 < 0.03
    base[disc] = rng.uniform(0, 255, 3)
    base[(np.floor(x * 40) % 7 == 0) & ~disc] *= 0.4
    return np.clip(base + rng.normal(0, 4, base.shape), 0, 255).astype(np.uint8)


def page(height: int, width: int) -> np.ndarray:
    """A page (H, W), grey: lines of text with white margins, wider on the left."""
    grey = np.full((height, width), 255, np.uint8)
    rng = np.random.default_rng(7)
    for row in range(height // 6, height - height // 4, 6):
        end = rng.integers(width // 2, width - width // 8)
        grey[row : row + 3, width // 4 : end] = rng.choice([0, 255], (3, end - width // 4))
    return grey


def make_images() -> None:
    """The images: forms, modes and formats that users have."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    photo = Image.fromarray(scene(67, 101, 0))
    photo.save(FOLDER / "photo.jpg", quality=80)
    Image.fromarray(page(131, 95)).convert("1").save(FOLDER / "page.png")  # one bit, odd, upright
    Image.fromarray(scene(20, 300, 1)).save(FOLDER / "panorama.png")
    Image.new("RGB", (1, 1), (200, 30, 90)).save(FOLDER / "tiny.png")
    Image.fromarray(scene(3, 40, 2)).save(FOLDER / "rows.png")  # as many rows as channels
    Image.fromarray(scene(50, 64, 3)[:, :, 1]).save(FOLDER / "grey.jpg", quality=85)
    alpha = np.concatenate([scene(40, 31, 4), rng.integers(0, 256, (40, 31, 1), np.uint8)], axis=2)
    Image.fromarray(alpha).save(FOLDER / "alpha.webp", lossless=True, exact=True)
    few = Image.fromarray(scene(45, 60, 5)).quantize(24)
    few.save(FOLDER / "palette.png", transparency=bytes(range(0, 240, 10)))
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    Image.fromarray(scene(48, 72, 6)).save(FOLDER / "turned.jpg", quality=85, exif=exif)
    deep = scene(52, 52, 8)[:, :, 0].astype(np.uint16) * 256 + rng.integers(0, 256, (52, 52))
    Image.fromarray(deep.astype(np.uint16)).save(FOLDER / "deep.png")
    photo.crop((0, 0, 60, 60)).convert("CMYK").save(FOLDER / "cmyk.jpg", quality=85)
    frames = [Image.fromarray(scene(36, 44, seed)) for seed in (9, 10, 11)]
    frames[0].save(FOLDER / "moving.gif", save_all=True, append_images=frames[1:])


def as_transformers(path: Path) -> Image.Image:
    """The image of ``path`` as transformers loads it; grey of 16 bits scaled, which it clips."""
    image = Image.open(path)
    if image.mode == "I;16":
        grey = np.rint(np.asarray(image) / 257).astype(np.uint8)
        return Image.fromarray(grey).convert("RGB")
    return load_image(str(path))


_STATS = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
_CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
# Files as they lie in repositories, old and new, but for their sizes.
SMALL: dict[str, dict[str, Any]] = {
    "vit-old": {
        "do_normalize": True,
        "do_resize": True,
        "feature_extractor_type": "ViTFeatureExtractor",
        **_STATS,
        "resample": 2,
        "size": 18,
    },
    "vit-lanczos": {
        "image_processor_type": "ViTImageProcessor",
        "do_rescale": True,
        "rescale_factor": 0.00392156862745098,
        "resample": 1,
        "size": {"height": 20, "width": 15},
        "image_mean": 0.4,
        "image_std": 0.3,
    },
    "deit": {
        "feature_extractor_type": "DeiTFeatureExtractor",
        "size": 24,
        "do_center_crop": True,
        "crop_size": 17,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    },
    "deit-framed": {
        "image_processor_type": "DeiTImageProcessor",
        "size": {"height": 13, "width": 22},
        "crop_size": {"height": 18, "width": 17},
        "do_normalize": False,
    },
    "clip-old": {
        "crop_size": 16,
        "do_center_crop": True,
        "do_normalize": True,
        "do_resize": True,
        "feature_extractor_type": "CLIPFeatureExtractor",
        **_CLIP,
        "resample": 3,
        "size": 16,
    },
    "clip-exact": {
        "image_processor_type": "CLIPImageProcessor",
        "processor_class": "Florence2Processor",
        "do_center_crop": False,
        "crop_size": {"height": 12, "width": 12},
        "size": {"height": 14, "width": 19},
    },
    "siglip": {
        "do_convert_rgb": None,
        "image_processor_type": "SiglipImageProcessor",
        "image_seq_length": 256,
        **_STATS,
        "resample": 3,
        "size": {"height": 17, "width": 17},
    },
    "blip": {
        "do_pad": True,
        "image_processor_type": "BlipImageProcessor",
        "processor_class": "BlipProcessor",
        **_CLIP,
        "resample": 3,
        "size": {"height": 18, "width": 16},
        "size_divisor": 32,
    },
    "donut-old": {
        "do_align_long_axis": False,
        "do_pad": True,
        "do_thumbnail": True,
        "feature_extractor_type": "DonutFeatureExtractor",
        **_STATS,
        "resample": 2,
        "size": [15, 23],
    },
    "donut-aligned": {
        "image_processor_type": "DonutImageProcessor",
        "do_align_long_axis": True,
        "resample": 3,
        "size": {"height": 22, "width": 17},
    },
    "nougat": {
        "image_processor_type": "NougatImageProcessor",
        "do_crop_margin": True,
        "size": {"height": 24, "width": 18},
    },
}
KINDS = ("ViT", "DeiT", "CLIP", "Siglip", "Blip", "Donut", "Nougat")


def processor(config: dict[str, Any]) -> Any:
    """The slow processor of transformers for a file."""
    name = config.get("image_processor_type") or config["feature_extractor_type"]
    kind = getattr(transformers, name.replace("FeatureExtractor", "ImageProcessor"))
    return kind.from_dict(config)


def pixel_values(config: dict[str, Any], image: Image.Image) -> np.ndarray:
    """(3, H, W) of ``image``.

    Without "channels_last" transformers takes pictures of 1 and 3 rows for planes of channels.
    """
    values = processor(config)(image, return_tensors="np", input_data_format="channels_last")
    return np.asarray(values["pixel_values"][0], np.float32)


def main() -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    make_images()
    paths = sorted(path for path in FOLDER.iterdir() if path.suffix not in (".json", ".npz"))
    cases: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, config in SMALL.items():
        cases[name] = {"config": config}
        for path in paths:
            arrays[f"{name}/{path.name}"] = pixel_values(config, as_transformers(path))
    for kind in KINDS:  # what a class does where its file says nothing
        config = {"image_processor_type": f"{kind}ImageProcessor"}
        values = pixel_values(config, as_transformers(FOLDER / "photo.jpg"))
        cases[f"{kind}-silent"] = {"config": config, "shape": values.shape, "stride": STRIDE}
        arrays[f"{kind}-silent/photo.jpg"] = values[:, ::STRIDE, ::STRIDE]
    expected = {"pillow": PIL.__version__, "cases": cases}
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    np.savez_compressed(FOLDER / "expected.npz", **arrays)


if __name__ == "__main__":
    main()
