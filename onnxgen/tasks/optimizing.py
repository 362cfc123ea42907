"""A model's folder with its graphs rewritten, for good."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
from onnx import ModelProto
from onnx.external_data_helper import load_external_data_for_model

from onnxgen.errors import OptionError
from onnxgen.files import ModelFiles, external_data_locations
from onnxgen.runtime.rewriting import prepared
from onnxgen.runtime.session import Engine, Model

INLINE_BYTES = (
    1_500_000_000  # a larger graph keeps its weights in a file beside it; protobuf: 2 GiB
)


def optimize(files: ModelFiles, out: Path, engine: Engine) -> dict[str, str]:
    """Writes the model ``files`` to the folder ``out``, its graphs as they run here.

    Returns for each graph, by its name in the folder, what was rewritten, "" for nothing. The
    folder appears when all of it is there; what a run that was killed left is removed.

    Raises:
        OptionError: ``out`` is there already, or cannot be written.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OptionError(f"{out} is there already", wanted="a folder that is new or empty")
    told: dict[str, str] = {}
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with _place(out) as whole:
            changed = _graphs(files, whole, engine, told)
            for path in files.files():
                name = path.relative_to(files.folder)
                if path not in changed and not (whole / name).exists():
                    (whole / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, whole / name)
            if out.exists():
                out.rmdir()
            whole.rename(out)
    except OSError as error:
        raise OptionError(f"{out} cannot be written ({error.strerror})") from error
    return told


@contextmanager
def _place(out: Path) -> Iterator[Path]:
    """A new folder beside ``out``, gone at the end unless it was renamed."""
    place = out.absolute().with_name(f".{out.absolute().name[-60:]}.part")
    if place.exists():
        shutil.rmtree(place)
    place.mkdir()
    try:
        yield place
    finally:
        if place.exists():
            shutil.rmtree(place, ignore_errors=True)


def _graphs(files: ModelFiles, whole: Path, engine: Engine, told: dict[str, str]) -> set[Path]:
    """Writes the graphs that are rewritten; they, and the weights that they had beside them."""
    pair = "decoder_with_past" in files.graphs
    done: set[Path] = set()
    for role, path in files.graphs.items():
        name = path.relative_to(files.folder)
        told[name.as_posix()] = ""
        source = prepared(path, engine, shares=not pair) if role != "embed_tokens" else path
        if isinstance(source, Model):
            told[name.as_posix()] = source.about
            done |= {path, *_outside(path)}
            (whole / name).parent.mkdir(parents=True, exist_ok=True)
            _save(source, whole / name)
    return done


def _outside(path: Path) -> set[Path]:
    """The files with a graph's external data."""
    return {path.parent / location for location in external_data_locations(path)}


def _save(source: Model, path: Path) -> None:
    """Writes a rewritten graph with its weights."""
    model = ModelProto.FromString(source.proto)
    load_external_data_for_model(model, str(source.folder))
    if model.ByteSize() > INLINE_BYTES:
        onnx.save_model(model, path, save_as_external_data=True, location=f"{path.name}_data")
    else:
        onnx.save_model(model, path)
