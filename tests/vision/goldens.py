"""The images of the fixtures, and what transformers 4.57.6 makes of them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import PIL

FIXTURES = Path(__file__).parents[2] / "fixtures" / "images"
_EXPECTED: dict[str, Any] = json.loads((FIXTURES / "expected.json").read_text(encoding="utf-8"))
CASES: dict[str, Any] = _EXPECTED["cases"]
# Pillow 13 rounds a few pixels of a resized picture otherwise than 12: by one grey level, which is
# this with the smallest deviation of the cases, 0.224.
_SAME_PILLOW = PIL.__version__.split(".")[0] == _EXPECTED["pillow"].split(".")[0]
TOLERANCE = 1e-5 if _SAME_PILLOW else 1.01 / 255 / 0.224
IMAGES = sorted(path.name for path in FIXTURES.iterdir() if path.stem != "expected")


@cache
def expected() -> dict[str, np.ndarray]:
    """Pixel values (3, H, W) by ``case/image``."""
    with np.load(FIXTURES / "expected.npz") as arrays:
        return dict(arrays)
