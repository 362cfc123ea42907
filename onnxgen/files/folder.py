"""Models on disk: a folder, or a single graph."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxgen.errors import ModelFileError, OnnxgenError
from onnxgen.files import links
from onnxgen.files.external import is_file
from onnxgen.files.layouts import Layout, dtype_of


@dataclass(frozen=True, slots=True)
class Folder:
    """A local folder as a store: nothing to fetch, only to be looked at.

    ``named`` is the file in it that the user named: where that leads, if it is a link, is the
    user's own choice.
    """

    source: str
    folder: Path
    named: str = ""

    def names(self) -> Collection[str]:
        """The files of the folder and of the folders in it."""
        try:
            entries = sorted(os.scandir(self.folder), key=lambda entry: entry.name)
            inner = [f"{e.name}/{n}" for e in entries if e.is_dir() for n in _files(e.path)]
        except OSError as error:
            raise ModelFileError(f"{self.folder} cannot be read ({error.strerror})") from error
        return [entry.name for entry in entries if entry.is_file()] + inner

    def has(self, name: str) -> bool:
        """Whether the file is there."""
        return is_file(self.folder / name)

    def fetch(self, names: Sequence[str]) -> None:
        """Makes sure that the files are what they say."""
        for name in names:
            if name != self.named:
                links.check(self.folder / name, self.folder)
            links.refuse_pointer(self.folder / name)

    def missing(self, name: str, needed_by: str) -> OnnxgenError:
        """The error for a part that is not there."""
        return ModelFileError(
            f"{self.source}: {needed_by} needs {name}, which is missing",
            wanted=f"the file {self.folder / name}",
            do="copy it there, or download or export the model again",
        )


def home(folder: Path) -> Path:
    """The folder with the config files for one with graphs: ``onnx/`` belongs to its parent."""
    parent = folder.parent
    configs = [is_file(place / "config.json") for place in (folder, parent)]
    return parent if folder.name == "onnx" and configs == [False, True] else folder


def alone(graph: Path, folder: Path) -> Layout:
    """The layout of a decoder named by its own file."""
    name = graph.relative_to(folder).as_posix()
    return Layout("file", {"decoder": {dtype_of(graph.name): name}})


def _files(folder: str) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    except PermissionError:  # somebody else's, and most likely not the model's
        return []
