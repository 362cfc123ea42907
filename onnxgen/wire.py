"""Serialized ONNX models without their weights, or with references in place of them.

Reads protobuf's wire format just deeply enough to find the tensors: a model of many gigabytes
costs what its graph costs, because a payload is stepped over, not read. Knows field numbers, not
their meaning; what comes out is a serialized ``ModelProto`` again.
"""

import mmap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from onnxgen.errors import ModelFileError, ModelNotFoundError

# A tensor with no more bytes than this stays whole: the inspector needs shape constants.
KEPT_BYTES = 4096

# Message -> number of a field that can hold tensors -> what that field is (onnx.proto).
_INNER: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
# float_data, int32_data, string_data, int64_data, raw_data, double_data, uint64_data of a tensor.
_PAYLOAD = frozenset({4, 5, 6, 7, 9, 10, 11})
_RAW = frozenset({4, 9, 10})  # those whose bytes are the array's own (floats, raw, doubles)
_EXTERNAL, _LOCATION = 13, 14  # external_data and data_location of a tensor
# Only initializers may lie elsewhere, not the tensors of attributes.
_OUTSIDE = {"model": {7: "graph"}, "graph": {1: "node", 5: "tensor"}, "node": {5: "attribute"},
            "attribute": {6: "graph", 11: "graph"}}  # fmt: skip

_GRAPH, _BYTES = 7, 2  # the model's field that must be there; the wire type of what has a length
_FIXED = {1: 8, 5: 4}  # wire type -> bytes
_MAX_DEPTH = 100  # protobuf's own limit for messages in messages
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


_Tensor = Callable[[mmap.mmap, int, int], bytes | None]


class _Corrupt(Exception):  # noqa: N818 - never leaves this module
    """The bytes are not protobuf."""


def slim(path: Path) -> bytes:
    """A serialized ``ModelProto`` as in ``path``, without the payload of tensors over 4 KiB.

    Tensors keep name, dims, data type and external data; all else is kept byte for byte.

    Raises:
        ModelNotFoundError: there is no such file.
        ModelFileError: it is empty, cut short, a git-lfs pointer or something else than ONNX.
    """
    return _read(path, _INNER, _slim_tensor)


def refer(path: Path, location: str) -> bytes:
    """A serialized ``ModelProto`` as in ``path``, whose large initializers are external data.

    Those that ``path`` holds itself are referred to where they lie in it, under the name
    ``location``; all else is kept byte for byte. Errors are those of :func:`slim`.
    """

    def outside(data: mmap.mmap, start: int, end: int) -> bytes | None:
        return _refer_tensor(data, start, end, location.encode())

    return _read(path, _OUTSIDE, outside)


def _read(path: Path, inner: Mapping[str, Mapping[int, str]], tensor: _Tensor) -> bytes:
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) == 0:
                raise _bad(path, "is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _slim_model(data, path, inner, tensor)
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"no file {path}", wanted="an ONNX graph") from error
    except OSError as error:
        raise _bad(path, f"cannot be read ({error.strerror})", do="check the file") from error


def is_lfs_pointer(head: bytes) -> bool:
    """Whether a file that starts with ``head`` stands for one that git-lfs did not fetch."""
    return head.startswith(_LFS_POINTER)


def _slim_model(
    data: mmap.mmap, path: Path, inner: Mapping[str, Mapping[int, str]], tensor: _Tensor
) -> bytes:
    if is_lfs_pointer(data[: len(_LFS_POINTER)]):
        raise _bad(path, "is a git-lfs pointer, not the graph itself", do="run `git lfs pull`")
    try:
        fields = {(number, wire) for number, wire, *_ in _fields(data, 0, len(data))}
        if (_GRAPH, _BYTES) not in fields:
            raise _bad(path, "holds no ONNX graph")
        slimmed = _slim(data, (0, len(data)), "model", 0, inner, tensor)
    except _Corrupt as error:
        raise _bad(path, "is cut short or is no ONNX model") from error
    return data[:] if slimmed is None else slimmed


def _bad(path: Path, what: str, do: str = "download or export it again") -> ModelFileError:
    return ModelFileError(f"{path} {what}", wanted="a complete ONNX graph", do=do)


def _slim(
    data: mmap.mmap,
    span: tuple[int, int],
    kind: str,
    depth: int,
    inner: Mapping[str, Mapping[int, str]],
    tensor: _Tensor,
) -> bytes | None:
    """The message ``data[start:end]`` with what ``tensor`` makes of big ones; None without any."""
    start, end = span
    if kind == "tensor":
        return tensor(data, start, end)
    if depth > _MAX_DEPTH:
        raise _Corrupt
    pieces: list[bytes] = []
    kept = start  # what lies before is in pieces
    for number, wire, field, body, after in _fields(data, start, end):
        within = inner[kind].get(number)
        if within is None or wire != _BYTES or after - body <= KEPT_BYTES:
            continue
        message = _slim(data, (body, after), within, depth + 1, inner, tensor)
        if message is not None:
            tag = _encode(number << 3 | _BYTES)
            pieces += (data[kept:field], tag, _encode(len(message)), message)
            kept = after
    return b"".join((*pieces, data[kept:end])) if pieces else None


def _slim_tensor(data: mmap.mmap, start: int, end: int) -> bytes | None:
    payload = 0
    rest: list[tuple[int, int]] = []
    for number, _, field, body, after in _fields(data, start, end):
        if number in _PAYLOAD:
            payload += after - body
        else:
            rest.append((field, after))
    return None if payload <= KEPT_BYTES else b"".join(data[a:b] for a, b in rest)


def _refer_tensor(data: mmap.mmap, start: int, end: int, location: bytes) -> bytes | None:
    rest: list[bytes] = []
    payload: list[tuple[int, int, int, int]] = []
    for number, wire, field, body, after in _fields(data, start, end):
        if number in _PAYLOAD:
            payload.append((number, wire, body, after))
        else:
            rest.append(data[field:after])
    if len(payload) != 1:  # none, or values one by one
        return None
    number, wire, body, after = payload[0]
    if number not in _RAW or wire != _BYTES or after - body <= KEPT_BYTES:
        return None
    for key, value in (
        (b"location", location),
        (b"offset", b"%d" % body),
        (b"length", b"%d" % (after - body)),
    ):
        rest.append(_message(_EXTERNAL, _message(1, key) + _message(2, value)))
    return b"".join((*rest, _encode(_LOCATION << 3), _encode(1)))


def _message(number: int, content: bytes) -> bytes:
    """``content`` as the field ``number``."""
    return _encode(number << 3 | _BYTES) + _encode(len(content)) + content


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Number, wire type, first byte, first byte of the content and end of each field."""
    at = start
    while at < end:
        field = at
        key, at = _varint(data, at, end)
        number, wire = key >> 3, key & 7
        body = at
        if wire == 0:
            _, at = _varint(data, at, end)
        elif wire == _BYTES:
            length, body = _varint(data, at, end)
            at = body + length
        elif wire in _FIXED:
            at += _FIXED[wire]
        else:  # groups, which ONNX never had
            raise _Corrupt
        if number == 0 or at > end:
            raise _Corrupt
        yield number, wire, field, body, at


def _varint(data: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    """The number that starts at ``at``, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _Corrupt


def _encode(value: int) -> bytes:
    """``value`` as protobuf writes it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))
