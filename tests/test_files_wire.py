"""`wire.slim` against onnx's own parser, on broken files, and on a large one."""

import os
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.descriptor import Descriptor
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnxgen import wire
from onnxgen.errors import ModelFileError, ModelNotFoundError
from tests.tiny_graphs import model, outside, plain

SMALL, BIG = 8, 2000  # float32 values: 32 and 8,000 bytes, on both sides of what is kept

PAYLOADS = (
    "float_data",
    "int32_data",
    "string_data",
    "int64_data",
    "raw_data",
    "double_data",
    "uint64_data",
)


def strip(message: object) -> None:
    """The slow way to the same end: clears big payloads anywhere in a parsed message."""
    if isinstance(message, TensorProto):
        size = sum(len(part) for part in _encoded_payloads(message))
        if size > wire.KEPT_BYTES:
            for field in PAYLOADS:
                message.ClearField(field)
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in value if isinstance(value, _repeated(value)) else [value]:
                strip(item)


def _repeated(value: object) -> type:
    return type(value) if hasattr(value, "add") else type(None)


def _encoded_payloads(tensor: TensorProto) -> list[bytes]:
    """Content of each payload field on the wire, tag and length aside."""
    parts = [tensor.raw_data, *tensor.string_data]
    for field in ("float_data", "double_data"):
        item = 4 if field == "float_data" else 8
        parts.append(bytes(item * len(getattr(tensor, field))))
    for field in ("int32_data", "int64_data", "uint64_data"):
        sizes = (_varint_size(value) for value in getattr(tensor, field))
        parts.append(bytes(sum(sizes)))
    return parts


def _varint_size(value: int) -> int:
    return max(1, -(-(value % 2**64).bit_length() // 7))


def raw(name: str, size: int) -> TensorProto:
    return numpy_helper.from_array(np.arange(size, dtype=np.float32), name)


def typed(name: str, kind: int, values: list) -> TensorProto:
    return helper.make_tensor(name, kind, [len(values)], values)


def constant(name: str, tensor: TensorProto) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=tensor)


def everything() -> onnx.ModelProto:
    """A model with tensors in every place and of every payload, each small and big."""
    tensors = [
        tensor
        for size in (SMALL, BIG)
        for tensor in (
            raw(f"raw{size}", size),
            typed(f"float{size}", TensorProto.FLOAT, [0.5] * size),
            typed(f"int32{size}", TensorProto.INT32, [-1] * size),
            typed(f"int64{size}", TensorProto.INT64, [2**40] * size),
            typed(f"uint64{size}", TensorProto.UINT64, [2**50] * size),
            typed(f"double{size}", TensorProto.DOUBLE, [0.25] * size),
            typed(f"string{size}", TensorProto.STRING, [b"text"] * size),
        )
    ]
    sparse = helper.make_sparse_tensor(
        raw("values", BIG), typed("indices", TensorProto.INT64, list(range(BIG))), [BIG]
    )
    out = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    leaf = helper.make_graph([constant("inner", raw("leaf", BIG))], "leaf", [], [out])
    nested = helper.make_node("If", ["c"], ["inner"], then_branch=leaf, else_branch=leaf)
    branch = helper.make_graph([nested], "branch", [], [out], initializer=[raw("deep", BIG)])
    nodes = [
        constant("c", typed("flag", TensorProto.BOOL, [True])),
        helper.make_node("If", ["c"], ["held"], then_branch=branch, else_branch=leaf),
        helper.make_node("Held", [], ["h"], domain="own", tensors=[raw("a", BIG), raw("b", SMALL)]),
        helper.make_node("Graphs", [], ["g"], domain="own", graphs=[branch, leaf]),
        helper.make_node("Identity", ["x"], ["y"]),
    ]
    result = model(nodes, tensors)
    result.graph.sparse_initializer.append(sparse)
    result.graph.initializer.append(outside("far", "weights.bin", BIG))
    result.graph.doc_string = "kept " * 2000
    function = helper.make_function(
        "own",
        "F",
        ["a"],
        ["b"],
        [constant("b", raw("in function", BIG))],
        [helper.make_opsetid("", 21)],
    )
    result.functions.append(function)
    result.training_info.add().algorithm.CopyFrom(leaf)
    return result


def saved(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    return path


def test_equals_the_parsed_model_without_big_payloads(tmp_path: Path) -> None:
    whole = everything()
    path = saved(tmp_path, whole.SerializeToString())
    slimmed = onnx.ModelProto.FromString(wire.slim(path))

    expected = onnx.load(path, load_external_data=False)
    strip(expected)
    assert slimmed == expected
    assert expected != whole  # or nothing would have been tested

    by_name = {tensor.name: tensor for tensor in slimmed.graph.initializer}
    assert by_name[f"raw{SMALL}"].raw_data == np.arange(SMALL, dtype=np.float32).tobytes()
    assert by_name[f"raw{BIG}"].raw_data == b""
    assert list(by_name[f"raw{BIG}"].dims) == [BIG]
    assert by_name["far"].external_data[0].value == "weights.bin"


@pytest.mark.parametrize(("size", "kept"), [(1024, True), (1025, False)])
def test_keeps_payloads_up_to_4_kib(tmp_path: Path, size: int, kept: bool) -> None:
    content = model([helper.make_node("Add", ["x", "w"], ["y"])], [raw("w", size)])
    path = saved(tmp_path, content.SerializeToString())
    tensor = onnx.ModelProto.FromString(wire.slim(path)).graph.initializer[0]
    assert len(tensor.raw_data) == (4 * size if kept else 0)


def test_a_model_without_big_tensors_stays_byte_for_byte(tmp_path: Path) -> None:
    assert wire.slim(saved(tmp_path, plain())) == plain()


def test_knows_every_place_that_onnx_has_for_tensors() -> None:
    """A tensor field of a future onnx that the table lacks would be read in full, or worse."""
    messages: dict[str, Descriptor] = {
        "model": onnx.ModelProto.DESCRIPTOR,
        "training": onnx.TrainingInfoProto.DESCRIPTOR,
        "graph": onnx.GraphProto.DESCRIPTOR,
        "function": onnx.FunctionProto.DESCRIPTOR,
        "node": onnx.NodeProto.DESCRIPTOR,
        "attribute": onnx.AttributeProto.DESCRIPTOR,
        "sparse": onnx.SparseTensorProto.DESCRIPTOR,
        "tensor": onnx.TensorProto.DESCRIPTOR,
    }
    kinds = {descriptor.name: kind for kind, descriptor in messages.items()}
    for kind, descriptor in messages.items():
        holders = {
            field.number: kinds[field.message_type.name]
            for field in descriptor.fields
            if field.message_type is not None and field.message_type.name in kinds
        }
        assert wire._INNER.get(kind, {}) == holders
    numbers = {onnx.TensorProto.DESCRIPTOR.fields_by_name[name].number for name in PAYLOADS}
    assert numbers == wire._PAYLOAD


@pytest.mark.parametrize(("size", "step"), [(SMALL, 1), (BIG, 37)])
def test_cut_anywhere_is_an_error_or_a_model(tmp_path: Path, size: int, step: int) -> None:
    nodes = [constant("w", raw("t", size)), helper.make_node("Add", ["x", "w"], ["y"])]
    content = model(nodes, [raw("v", size)]).SerializeToString()
    path = tmp_path / "model.onnx"
    outcomes = {"error": 0, "model": 0}
    places = range(0, len(content), step)
    for place in places:
        path.write_bytes(content[:place])
        try:
            onnx.ModelProto.FromString(wire.slim(path))
            outcomes["model"] += 1
        except ModelFileError:
            outcomes["error"] += 1
    # The graph comes before the opset imports: cut between the two, what is left is a message.
    assert outcomes["model"] <= 2
    assert outcomes["error"] >= len(places) - 2


@given(st.data())
def test_random_damage_never_escapes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(_everything())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = saved(tmp_path_factory.getbasetemp(), bytes(content))
    with suppress(ModelFileError):
        assert len(wire.slim(path)) <= len(content)


_EVERYTHING: list[bytes] = []


def _everything() -> bytes:
    if not _EVERYTHING:
        _EVERYTHING.append(everything().SerializeToString())
    return _EVERYTHING[0]


def test_messages_nested_without_end(tmp_path: Path) -> None:
    """graph > node > attribute > graph > ... deeper than protobuf itself would go."""
    content = raw("w", BIG).SerializeToString()
    for number in [5, *[6, 5, 1] * 400]:
        content = wire._encode(number << 3 | 2) + wire._encode(len(content)) + content
    path = saved(tmp_path, b"\x3a" + wire._encode(len(content)) + content)
    with pytest.raises(ModelFileError):
        wire.slim(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "git-lfs pointer"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "no ONNX"),
        (b'{"model_type": "llama"}', "no ONNX"),
        (b"\x00" * 100, "no ONNX"),
        (b"\x3a\x00\x02\x00", "no ONNX"),  # a graph, then field 0, which no message has
        (b"\x08\x0a", "no ONNX graph"),  # a model with nothing but its IR version
        (np.random.default_rng(0).bytes(4096), "no ONNX"),
    ],
)
def test_files_that_are_no_models(tmp_path: Path, content: bytes, says: str) -> None:
    with pytest.raises(ModelFileError, match=says):
        wire.slim(saved(tmp_path, content))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        wire.slim(tmp_path / "none.onnx")
    with pytest.raises(ModelFileError):
        wire.slim(tmp_path)


def test_a_large_model_costs_what_its_graph_costs(tmp_path: Path) -> None:
    """2 GB of weights: reading them would take seconds and as much memory."""
    content = model([helper.make_node("Identity", ["x"], ["y"])]).graph.SerializeToString()
    tensor = TensorProto(name="w", data_type=TensorProto.UINT8, dims=[2**31 - 2**20])
    head = tensor.SerializeToString() + wire._encode(9 << 3 | 2) + wire._encode(2**31 - 2**20)
    tensor_size = len(head) + 2**31 - 2**20
    graph = content + wire._encode(5 << 3 | 2) + wire._encode(tensor_size) + head
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        file.write(b"\x3a" + wire._encode(len(graph) + 2**31 - 2**20) + graph)
        file.seek(2**31 - 2**20 - 1, os.SEEK_CUR)
        file.write(b"\0")

    start = time.perf_counter()
    slimmed = onnx.ModelProto.FromString(wire.slim(path))
    assert time.perf_counter() - start < 0.5
    assert [list(t.dims) for t in slimmed.graph.initializer] == [[2**31 - 2**20]]
    assert slimmed.graph.node[0].op_type == "Identity"
