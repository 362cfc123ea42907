"""What a user names, and which kind of place that is."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from onnxgen.errors import ModelFileError, ModelNotFoundError, OptionError
from onnxgen.files.assemble import assemble
from onnxgen.files.dtypes import Asked, known
from onnxgen.files.folder import Folder, alone, home
from onnxgen.files.model import ModelFiles

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def resolve(
    model: str | os.PathLike[str],
    *,
    dtype: str | Mapping[str, str] | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    offline: bool | None = None,
    progress: bool | None = None,
) -> ModelFiles:
    """The files of ``model``, complete on disk; for a repository, downloaded if not yet cached.

    Args:
        model: a folder, an ``.onnx`` file or a Hub repository ``owner/name``, each with an optional
            ``:dtype``. What exists on disk under that name wins.
        dtype: one for all graphs, or a map from roles or file base names (``decoder_model_merged``)
            to dtypes; ``auto`` and None leave the choice to the repository's own default.
        revision: branch, tag or commit of a repository.
        token: for private repositories; None takes the saved one, False none at all.
        cache_dir: the Hub cache; None takes the usual one.
        offline: ask for nothing over the network; None follows ``HF_HUB_OFFLINE``.
        progress: show a bar on stderr while downloading; None shows it on terminals only.

    Raises:
        ModelNotFoundError: nothing of that name, or nothing in it that generates.
        ModelFileError: a file is broken, or a part is missing.
        OptionError: a dtype is unknown or absent, or an option does not fit the kind of model.
        HubError: the Hub cannot be reached, refuses, or broke off.
    """
    source = os.fspath(model)
    name, suffix = _split(source)
    asked = _one_dtype(dtype, suffix)
    path = _on_disk(name)
    if path is not None:
        if revision is not None:
            raise OptionError(
                f"a revision is asked for, but {name} is on this disk",
                wanted="a Hub repository",
                do="leave the revision out",
            )
        return _local(source, name, path, asked)
    if not _is_repository(name):
        raise ModelNotFoundError(
            f"no model {name!r}",
            wanted="a folder, an .onnx file, or a Hub repository owner/name",
            do="check the name",
        )
    # Imported here: a second that a local model need not wait for.
    from onnxgen.files import hub

    place = hub.Place(name, revision=revision, token=token, cache_dir=cache_dir)
    with hub.repository(place, offline=offline, progress=progress) as store:
        return assemble(store, source, asked)


def _local(source: str, name: str, path: Path, asked: Asked) -> ModelFiles:
    if path.is_dir():
        return assemble(Folder(name, home(path)), source, asked)
    if path.suffix != ".onnx":
        raise ModelFileError(
            f"{name} is no .onnx file", wanted="an ONNX graph, or the folder of a model"
        )
    folder = home(path.parent)
    store = Folder(name, folder, path.relative_to(folder).as_posix())
    return assemble(store, source, asked, alone(path, folder))


def _split(source: str) -> tuple[str, str | None]:
    """The name and the dtype of ``name:dtype``; colons that belong to the name stay there."""
    name, colon, dtype = source.rpartition(":")
    drive = re.search(r"[/\\]", dtype) or (os.name == "nt" and len(name) == 1)
    return (source, None) if not colon or drive or _on_disk(source) else (name, dtype)


def _on_disk(name: str) -> Path | None:
    """The absolute path of what ``name`` names on this disk, links not followed."""
    try:
        path = Path(name).expanduser().absolute()
        return path if name and path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, forbidden, a NUL, no such user
        return None


def _is_repository(name: str) -> bool:
    return bool(_REPOSITORY.fullmatch(name)) and not name.endswith(".onnx")


def _one_dtype(dtype: Asked, suffix: str | None) -> Asked:
    """The dtype of the option or of the name; both only if they agree."""
    if suffix is not None:
        known(suffix)
    if isinstance(dtype, str):
        known(dtype)
    if dtype is not None and suffix is not None and dtype != suffix:
        raise OptionError(
            f"the name asks for dtype {suffix}, the option for {dtype}", do="drop one"
        )
    return suffix if dtype is None else dtype
