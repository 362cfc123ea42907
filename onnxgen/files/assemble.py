"""From a place that holds a model to the files of one dtype, all of them there.

A folder, a Hub repository and a cached copy of one differ in how a file is had, and in nothing
else.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from onnxgen.errors import OnnxgenError, OptionError
from onnxgen.files.dtypes import Asked, choose
from onnxgen.files.layouts import PAST_ROLE, Layout, find
from onnxgen.files.model import ModelFiles, is_config, read_json
from onnxgen.files.policy import external_data_locations


class Store(Protocol):
    """A place that holds a model."""

    @property
    def source(self) -> str:
        """What error messages call the model."""

    @property
    def folder(self) -> Path:
        """Where files lie once they are fetched."""

    def names(self) -> Collection[str]:
        """All files of the model, relative to the folder, with ``/``."""

    def has(self, name: str) -> bool:
        """Whether ``fetch`` can put this file there."""

    def fetch(self, names: Sequence[str]) -> None:
        """Puts files into the folder; OnnxgenError if one cannot be had."""

    def missing(self, name: str, needed_by: str) -> OnnxgenError:
        """The error for a file that is not there."""


def assemble(store: Store, source: str, asked: Asked, layout: Layout | None = None) -> ModelFiles:
    """Chooses graphs and fetches them with all they need: configs, graphs, external data.

    ``source`` is the model as the user named it, ``asked`` the dtype, or dtypes, asked for,
    ``layout`` the graphs where these need not be looked for.

    Raises:
        ModelNotFoundError: no decoder.
        ModelFileError: a file is broken, or a part of the model is missing.
        OptionError: a dtype is asked for that is not there.
    """

    def read(name: str) -> dict[str, Any]:
        store.fetch([name])
        return read_json(store.folder / name)

    names = store.names()
    layout = layout or find(store.source, names, read)
    config = read("config.json") if "config.json" in names else {}
    dtypes, chosen = _choose(store, layout, asked, config)
    graphs = {role: layout.variants[role][dtype] for role, dtype in dtypes.items()}
    store.fetch([name for name in names if is_config(name)])
    store.fetch(list(graphs.values()))
    store.fetch([part for graph in graphs.values() for part in _parts(store, graph)])
    return ModelFiles(
        source=source,
        folder=store.folder,
        graphs={role: store.folder / name for role, name in graphs.items()},
        dtypes=dtypes,
        variants=layout.variants,
        layout=layout.kind,
        chosen=chosen,
    )


def _choose(
    store: Store, layout: Layout, asked: Asked, config: dict[str, Any]
) -> tuple[dict[str, str], str]:
    """Chooses among what can be had; if that will not do, says what else is needed."""
    usable = layout.only(store.has).variants
    if all(names for role, names in usable.items() if role != PAST_ROLE):
        with suppress(OptionError):
            return choose(store.source, usable, asked, config, layout.variants)
    # What is asked for exists nowhere, an error of the choice, or it is not here.
    dtypes, chosen = choose(store.source, layout.variants, asked, config)
    for role, dtype in dtypes.items():
        _require(store, layout.variants[role][dtype], f"the {role}")
    return dtypes, chosen


def _require(store: Store, name: str, needed_by: str) -> None:
    if not store.has(name):
        raise store.missing(name, needed_by)


def _parts(store: Store, graph: str) -> list[str]:
    """The names of a graph's external data, all of which the store has."""
    beside = PurePosixPath(graph).parent
    path = store.folder / graph
    parts = [(beside / location).as_posix() for location in external_data_locations(path)]
    for part in parts:
        _require(store, part, PurePosixPath(graph).name)
    return parts
