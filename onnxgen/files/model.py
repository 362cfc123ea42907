"""A model's files, found and complete."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxgen.errors import ModelFileError
from onnxgen.files import links
from onnxgen.files.external import inside, is_file
from onnxgen.files.policy import external_data_locations

MAX_TEXT_BYTES = 64 * 2**20

# What this package reads beside the graphs, and so all that a download takes beside them.
CONFIG_FILES = (
    "config.json",
    "generation_config.json",
    "genai_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "processor_config.json",
)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of one model, all of them on disk.

    Paths are never resolved through links: ONNX Runtime finds external data only beside the link
    of a Hub cache, not beside the blob that it points to.
    """

    source: str  # as the user named it
    folder: Path  # where the config files lie
    graphs: Mapping[str, Path]  # role -> graph
    dtypes: Mapping[str, str]  # role -> dtype of that graph by its name, "" if it tells none
    variants: Mapping[str, Mapping[str, str]]  # role -> dtype -> file name in folder: all there are
    layout: str  # "transformers.js", "optimum", "genai" or "file"
    chosen: str  # which dtype was taken of which, and why; "" if there was no choice

    def path(self, name: str) -> Path | None:
        """Where the file ``name`` lies: in the folder or beside the decoder; None if nowhere.

        ModelFileError for a name, or a link, that leaves the folder.
        """
        if not inside(name):
            raise ModelFileError(f"{self.source}: the name {name!r} leaves the folder")
        for folder in (self.folder, self.graphs["decoder"].parent):
            if is_file(folder / name):
                links.check(folder / name, self.folder)
                return folder / name
        return None

    def text(self, name: str) -> str | None:
        """The UTF-8 text of the file ``name``, None if absent; ModelFileError if it is none."""
        path = self.path(name)
        return None if path is None else read_text(path)

    def json(self, name: str) -> dict[str, Any]:
        """The object in the JSON file ``name``, empty if absent; ModelFileError if broken."""
        path = self.path(name)
        return {} if path is None else read_json(path)

    def files(self) -> list[Path]:
        """Everything that belongs to the chosen model: configs, graphs and their external data."""
        configs = [path for name in CONFIG_FILES if (path := self.path(name))]
        templates = sorted((self.folder / "additional_chat_templates").glob("*.jinja"))
        parts = [
            graph.parent / location
            for graph in self.graphs.values()
            for location in external_data_locations(graph)
        ]
        return list(dict.fromkeys([*configs, *templates, *self.graphs.values(), *parts]))


def is_config(name: str) -> bool:
    """Whether a file of this name in a repository is read beside the graphs."""
    folder, _, file_name = name.rpartition("/")
    return name in CONFIG_FILES or (
        folder == "additional_chat_templates" and file_name.endswith(".jinja")
    )


def read_text(path: Path) -> str:
    """The UTF-8 text of ``path``; ModelFileError if it is none, or over 64 MiB."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TEXT_BYTES + 1)
        if len(data) > MAX_TEXT_BYTES:
            raise ModelFileError(f"{path} is too large", wanted="at most 64 MiB")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{path} is no text", wanted="UTF-8") from error


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``.

    Infinity is taken, because exporters write it (``time_step_limit`` of Mamba); NaN is not, as
    every comparison with it would silently be false.

    Raises:
        ModelFileError: no JSON, nested too deeply, over 64 MiB, NaN in it, or no object.
    """
    text = read_text(path)
    try:
        value = json.loads(text, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ModelFileError(
            f"{path} is no valid JSON{where}", do="download or export it again"
        ) from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path} holds a {type(value).__name__}", wanted="a JSON object")
    return value


def _constant(name: str) -> float:
    if name == "NaN":
        raise ValueError(name)
    return -math.inf if name.startswith("-") else math.inf
