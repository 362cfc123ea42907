"""Writes the fixtures: ``python -m scripts.handmade [NAME ...]``; all of them without names."""

import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

from . import catalogue  # noqa: F401  fills the list
from .check import check, session
from .refused import REFUSED
from .variant import VARIANTS, Variant, expected, names, prompts
from .weights import CAPACITY

FOLDER = Path(__file__).parents[2] / "fixtures" / "handmade"


def main(wanted: list[str]) -> None:
    """Build, check and write each variant; nothing is written over that does not pass."""
    chosen = names(wanted, [*VARIANTS, *REFUSED])
    for name in chosen:
        folder = FOLDER / "refused" / name if name in REFUSED else FOLDER / name
        with TemporaryDirectory() as place:
            fresh = Path(place) / name
            fresh.mkdir()
            found = refuse(name, fresh) if name in REFUSED else accept(name, fresh)
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(fresh, folder)
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(f"{name:36}{size / 1000:5.0f} kB  {found}")


def accept(name: str, folder: Path) -> str:
    """Write and check a decoder; what the check found comes back."""
    made = VARIANTS[name]()
    write(made, folder)
    return f"logits within {check(made, folder):.1e}"


def refuse(name: str, folder: Path) -> str:
    """Write a graph that is sound, only not to generate with; the reason comes back."""
    reason, make = REFUSED[name]
    _save(make(), folder / "model.onnx", parts=0)
    session(folder / "model.onnx")
    _dump({"refused": reason}, folder / "expected.json")
    return f"refused: {reason}"


def write(made: Variant, folder: Path) -> None:
    """Everything that a fixture's folder holds."""
    for file, model in {"model.onnx": made.model, **made.others}.items():
        _save(model, folder / file, made.parts)
    spec = made.spec
    config = {
        "eos_token_id": spec.eos,
        "max_position_embeddings": 2 * CAPACITY,
        "vocab_size": spec.vocab,
        **made.config,
    }
    _dump(config, folder / "config.json")
    tokens, margins = expected(spec)
    truth = {
        "prompts": prompts(spec),
        "greedy": tokens,
        "margins": [[round(margin, 4) for margin in row] for row in margins],
        "facts": made.facts,
    }
    _dump(truth, folder / "expected.json")


def _save(model: onnx.ModelProto, path: Path, parts: int) -> None:
    """The model, its weights dealt out to ``parts`` files beside it, or inside if that is 0."""
    for index, tensor in enumerate(model.graph.initializer if parts else []):
        part = index % parts
        place = f"{path.name}_data" + (f"_{part}" if part else "")
        with (path.parent / place).open("ab") as file:
            offset = file.tell()
            length = file.write(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", place), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
    path.write_bytes(model.SerializeToString(deterministic=True))


def _dump(value: dict[str, Any], path: Path) -> None:
    """One key a line, so that a change shows as what it is."""
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(item)}" for key, item in value.items())
    path.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
