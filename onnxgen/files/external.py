"""What a graph keeps outside its own file.

The graph itself says where its weights lie; counts in config files are never asked. ONNX Runtime
looks for the parts beside the graph and nowhere else, so a place outside is an error here; so is
a part that is shorter than the graph says.
"""

import os
from collections.abc import Iterable
from math import prod
from pathlib import Path, PurePosixPath, PureWindowsPath

from onnx import TensorProto

from onnxgen.errors import ModelFileError
from onnxgen.files import links

# ONNX's own keys; those that ONNX Runtime adds for packed weights start with "prepacked".
_KEYS = frozenset({"location", "offset", "length", "checksum", "basepath"})
_ADDRESS = "_ORT_MEM_ADDR_"  # ONNX Runtime's mark for weights in its own memory, never in a file
_BITS = {
    **dict.fromkeys(("DOUBLE", "INT64", "UINT64", "COMPLEX64"), 64),
    **dict.fromkeys(("FLOAT", "INT32", "UINT32"), 32),
    **dict.fromkeys(("FLOAT16", "BFLOAT16", "INT16", "UINT16"), 16),
    **dict.fromkeys(("INT4", "UINT4", "FLOAT4E2M1"), 4),
    **dict.fromkeys(("INT2", "UINT2"), 2),
    "COMPLEX128": 128,
}  # of one number, by the name of its type; 8 for the others
_TYPES = {number: _BITS.get(name, 8) for name, number in TensorProto.DataType.items()}


def check(tensors: Iterable[TensorProto], path: Path, own: str = "") -> list[str]:
    """The files with ``tensors`` of the graph at ``path``, relative to its folder, each once.

    ``own`` is a name that stands for the graph's file itself. Files that are not there are not
    judged.

    Raises:
        ModelFileError: a location leaves the graph's folder, or the file there is shorter than
            what a tensor takes of it.
    """
    found: dict[str, int | None] = {}  # location -> bytes; None if it is not there
    for tensor in tensors:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if foreign := [k for k in entries if k not in _KEYS and not k.startswith("prepacked")]:
            raise ModelFileError(
                f"{path} has external data with the entry {foreign[0]!r}",
                wanted="location, offset and length",
                do="do not trust this model, or export it again",
            )
        if location not in found:
            if not inside(location) or _ADDRESS in location:
                raise ModelFileError(
                    f"{path} keeps weights at {location!r}",
                    wanted="files in the graph's own folder",
                    do="do not trust this model, or export it again",
                )
            found[location] = _size(path, location, own)
        held = found[location]
        offset, length = (_number(entries.get(key, "0")) for key in ("offset", "length"))
        needed = max(length, -(-numbers(tensor) * _TYPES.get(tensor.data_type, 8) // 8))
        if offset < 0 or length < 0 or (held is not None and offset + needed > held):
            if held is not None and location != own:
                links.refuse_pointer(path.parent / location)
            raise ModelFileError(
                f"{path}: the tensor {tensor.name!r} reaches beyond its file {location}",
                wanted=f"data within its {held} bytes" if held is not None else "sound numbers",
                do="download or export the model again",
            )
    return list(found)


def numbers(tensor: TensorProto) -> int:
    """How many numbers the dims of ``tensor`` make; -1 for dims below 0."""
    return prod(tensor.dims) if min(tensor.dims, default=0) >= 0 else -1


def inside(name: str) -> bool:
    """Whether ``name``, taken from a file, stays in its folder on every system."""
    flavours = PurePosixPath(name), PureWindowsPath(name)
    return (
        bool(name) and "\0" not in name and not any(f.anchor or ".." in f.parts for f in flavours)
    )


def is_file(path: Path) -> bool:
    """Whether ``path`` is a file, or a link to one; any name will do."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file fails on names that are too long


def _size(path: Path, location: str, own: str) -> int | None:
    part = path if location == own else path.parent / location
    if not is_file(part):
        return None
    if part != path:
        links.check(part, path.parent)
    return part.stat().st_size


def _number(text: str) -> int:
    """``text`` as ONNX writes numbers, -1 for others."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
