"""Where the fixtures of the text room lie, and how to load them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from onnxgen.files import ModelFiles
from onnxgen.text.tokenizer import Tokenizer

FIXTURES = Path(__file__).parents[2] / "fixtures" / "text"
TOKENIZERS = sorted(path.name for path in (FIXTURES / "tokenizers").iterdir())


def model_files(folder: Path) -> ModelFiles:
    """The files of a folder, without a graph."""
    graphs = {"decoder": folder / "model.onnx"}
    return ModelFiles(str(folder), folder, graphs, {}, {}, layout="file", chosen="")


@cache
def load(name: str) -> Tokenizer:
    """A tokenizer of the fixtures."""
    return Tokenizer.from_files(model_files(FIXTURES / "tokenizers" / name))


@cache
def golden(name: str) -> Any:
    """What transformers says: ``tokenizers``, ``renders``, ``schemas``, or the ``chats``."""
    return json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))
