"""What transformers' image processor classes do where a model's file is silent.

Only these classes have defaults here, as old files leave fields out, and those of vision-language
models in their own modules. Any other class must state what it does, field by field, and may state
nothing that is not understood.
"""

from typing import Any

NEAREST, LANCZOS, BILINEAR, BICUBIC, BOX, HAMMING = range(6)  # Pillow's numbers

_HALF = [0.5, 0.5, 0.5]
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
_IMAGENET_MEAN, _IMAGENET_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def square(side: int) -> dict[str, int]:
    """The size of a square."""
    return {"height": side, "width": side}


def defaults(size: dict[str, int], resample: int, **more: Any) -> dict[str, Any]:
    """The defaults of a class, mean and deviation one half unless ``more`` says otherwise."""
    fields: dict[str, Any] = {
        "do_resize": True,
        "size": size,
        "resample": resample,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": _HALF,
        "image_std": _HALF,
    }
    return fields | more


_DOCUMENT = {"do_thumbnail": True, "do_align_long_axis": False, "do_pad": True}
_CROP = {"do_center_crop": True, "crop_size": square(224)}

# Class name without "ImageProcessor" and the like -> the fields that it reads, with their defaults.
KINDS: dict[str, dict[str, Any]] = {
    "ViT": defaults(square(224), BILINEAR),
    "DeiT": defaults(square(256), BICUBIC, **_CROP),
    "CLIP": defaults(
        {"shortest_edge": 224},
        BICUBIC,
        image_mean=CLIP_MEAN,
        image_std=CLIP_STD,
        use_square_size=False,
        **_CROP,
    ),
    "Siglip": defaults(square(224), BICUBIC),
    "Blip": defaults(square(384), BICUBIC, image_mean=CLIP_MEAN, image_std=CLIP_STD),
    "Donut": defaults({"height": 2560, "width": 1920}, BILINEAR, **_DOCUMENT),
    "Nougat": defaults(
        {"height": 896, "width": 672},
        BILINEAR,
        do_crop_margin=True,
        image_mean=_IMAGENET_MEAN,
        image_std=_IMAGENET_STD,
        **_DOCUMENT,
    ),
}
