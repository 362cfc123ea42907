"""Small pictures, and what transformers' image processors make of them."""

from pathlib import Path

import numpy as np
from PIL import Image
from transformers import AutoImageProcessor, BaseImageProcessor

#: (width, height): none is what a model takes, some are wide, some tall
SIZES = [(40, 40), (64, 32), (24, 48), (33, 57), (50, 20), (32, 32), (16, 16), (61, 47)]


def draw(seed: int) -> Image.Image:
    """A slanted gradient with a few flat boxes; every seventh is grey, every eleventh has alpha."""
    generator = np.random.default_rng(seed)
    width, height = SIZES[seed % len(SIZES)]
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    slope = generator.uniform(-1, 1, (2, 3))
    picture = 128 + 90 * (x[..., None] * slope[0] + y[..., None] * slope[1])  # (height, width, 3)
    for _ in range(generator.integers(2, 5)):
        left, top = generator.integers(0, width - 4), generator.integers(0, height - 4)
        right, bottom = left + generator.integers(4, width), top + generator.integers(4, height)
        picture[top:bottom, left:right] = generator.integers(0, 256, 3)
    image = Image.fromarray(picture.clip(0, 255).astype(np.uint8), "RGB")
    if seed % 7 == 3:
        return image.convert("L")
    if seed % 11 == 5:
        image.putalpha(int(generator.integers(100, 255)))
    return image


def pixels(folder: Path, image: Image.Image) -> np.ndarray:
    """(3, H, W) float32 for an image, made RGB first, by the processor saved in the folder."""
    processor: BaseImageProcessor = AutoImageProcessor.from_pretrained(folder, use_fast=False)
    return processor(image.convert("RGB"), return_tensors="np")["pixel_values"][0]
