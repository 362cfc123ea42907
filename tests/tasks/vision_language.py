"""The vision-language fixtures: each folder's cases, and its model, loaded once."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image

import onnxgen

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
IMAGES = FIXTURES / "images"


def folders() -> list[str]:
    found = [
        path.parent.name
        for path in sorted((FIXTURES / "models").glob("*/expected.json"))
        if json.loads(path.read_text()).get("task") == "image-text-to-text"
    ]
    assert len(found) >= 8, f"vision-language fixtures are missing: {found}"
    return found


@cache
def told(folder: str) -> dict[str, Any]:
    return dict(json.loads((FIXTURES / "models" / folder / "expected.json").read_text()))


@cache
def load(folder: str) -> Any:
    return onnxgen.load(FIXTURES / "models" / folder, threads=1)


def keywords(case: dict[str, Any]) -> dict[str, Any]:
    """What a case's call gets beside its prompt."""
    given = dict(case["options"])
    if case["images"]:
        given["images"] = [IMAGES / name for name in case["images"]]
    if case.get("video"):
        given["videos"] = [[frame(*place) for place in case["video"]]]
    if case.get("processing"):
        given["processing"] = case["processing"]
    return given


def frame(name: str, index: int) -> Image.Image:
    image = Image.open(IMAGES / name)
    image.seek(index)
    return image.convert("RGB")
