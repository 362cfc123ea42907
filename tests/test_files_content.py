"""What lies in a model's folder beside the graphs: external data and config files."""

from pathlib import Path

import pytest
from onnx import TensorProto, helper

from onnxgen.errors import ModelFileError
from onnxgen.files import external_data_locations, resolve
from onnxgen.files import model as model_module
from tests.tiny_graphs import fill, in_parts, model, outside, plain

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"

# ---------------------------------------------------------------- external data


def test_locations_are_read_from_the_graph(tmp_path: Path) -> None:  # known problem L1
    for name, content in in_parts("model.onnx").items():
        (tmp_path / name).write_bytes(content)
    assert external_data_locations(tmp_path / "model.onnx") == [
        "model.onnx_data",
        "model.onnx_data_1",
    ]
    fill(tmp_path, config={"transformers.js_config": {"use_external_data_format": 7}})
    files = resolve(tmp_path)
    assert sorted(path.name for path in files.files()) == [
        "config.json",
        "model.onnx",
        "model.onnx_data",
        "model.onnx_data_1",
    ]
    (tmp_path / "model.onnx_data_1").unlink()
    with pytest.raises(
        ModelFileError, match=r"model\.onnx needs model\.onnx_data_1, which is miss"
    ):
        resolve(tmp_path)


def test_locations_in_every_place(tmp_path: Path) -> None:
    def constant(name: str) -> object:
        return helper.make_node("Constant", [], [name], value=outside("t", f"{name}.bin", 1))

    out = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    branch = helper.make_graph([constant("inner")], "b", [], [out], [outside("i", "branch.bin", 1)])
    nodes = [
        constant("node"),
        helper.make_node("If", ["x"], ["z"], then_branch=branch, else_branch=branch),
        helper.make_node("Identity", ["x"], ["y"]),
    ]
    whole = model(nodes, [outside("w", "top.bin", 1), outside("v", "top.bin", 1)])
    whole.graph.sparse_initializer.add().values.CopyFrom(outside("s", "sparse.bin", 1))
    whole.functions.append(
        helper.make_function("d", "F", [], ["o"], [constant("o")], [helper.make_opsetid("", 21)])
    )
    # Left behind by a tool that took the data in again: no longer external.
    stale = outside("stale", "gone.bin", 1)
    stale.data_location = TensorProto.DEFAULT
    whole.graph.initializer.append(stale)
    (tmp_path / "m.onnx").write_bytes(whole.SerializeToString())
    assert sorted(external_data_locations(tmp_path / "m.onnx")) == [
        "branch.bin",
        "inner.bin",
        "node.bin",
        "o.bin",
        "sparse.bin",
        "top.bin",
    ]


@pytest.mark.parametrize(
    "location",
    [
        "../secret",
        "a/../../secret",
        "/etc/passwd",
        "nul\0byte",
        "",
        "..",
        "C:\\x",
        "..\\x",
        "\\\\h\\x",
        "*/_ORT_MEM_ADDR_/*",
    ],
)
def test_locations_that_leave_the_folder(tmp_path: Path, location: str) -> None:
    whole = model([helper.make_node("Identity", ["x"], ["y"])], [outside("w", location, 1)])
    (tmp_path / "model.onnx").write_bytes(whole.SerializeToString())
    with pytest.raises(ModelFileError, match="keeps weights at"):
        resolve(tmp_path)


def test_location_that_is_a_folder_or_far_too_long(tmp_path: Path) -> None:
    for location in (".", "x" * 5000):
        whole = model([helper.make_node("Identity", ["x"], ["y"])], [outside("w", location, 1)])
        (tmp_path / "model.onnx").write_bytes(whole.SerializeToString())
        with pytest.raises(ModelFileError, match="which is missing"):
            resolve(tmp_path)


def test_git_lfs_pointers(tmp_path: Path) -> None:
    for name, content in in_parts("model.onnx").items():
        (tmp_path / name).write_bytes(content)
    for name in ("model.onnx_data", "model.onnx"):
        (tmp_path / name).write_bytes(LFS_POINTER)
        with pytest.raises(ModelFileError, match=f"{name} is a git-lfs pointer[^$]*git lfs pull"):
            resolve(tmp_path)


def test_broken_graph(tmp_path: Path) -> None:
    fill(tmp_path, "model.onnx")
    content = bytearray(plain())
    content[2 : len(content)] = b"\xff" * (len(content) - 2)
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"model\.onnx"):
        resolve(tmp_path)
    # Sound on the outside, broken within: a group that never ends in place of a node's input.
    whole = plain()
    assert b"\x0a\x01x\x0a\x01w" in whole
    (tmp_path / "model.onnx").write_bytes(
        whole.replace(b"\x0a\x01x\x0a\x01w", b"\x0b\x01x\x0a\x01w")
    )
    with pytest.raises(ModelFileError, match="no sound ONNX graph"):
        resolve(tmp_path)


def test_location_that_is_no_text(tmp_path: Path) -> None:
    whole = model([helper.make_node("Identity", ["x"], ["y"])], [outside("w", "abc", 1)])
    content = whole.SerializeToString().replace(b"abc", b"\xff\xfe\xfd")
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(ModelFileError, match="no sound ONNX graph"):
        resolve(tmp_path)


# ---------------------------------------------------------------- config files


def test_config_files(tmp_path: Path) -> None:
    fill(tmp_path, "onnx/model.onnx", config={"a": 1})
    (tmp_path / "onnx/beside.json").write_text('{"b": 2}')
    (tmp_path / "chat_template.jinja").write_text("{{ a }}é\n", "utf-8")
    (tmp_path / "bom.json").write_bytes(b'\xef\xbb\xbf{"c": 3}')
    (tmp_path / "dir.json").mkdir()
    files = resolve(tmp_path)
    assert files.json("config.json") == {"a": 1}
    assert files.json("beside.json") == {"b": 2}
    assert files.json("bom.json") == {"c": 3}
    assert files.json("absent.json") == files.json("dir.json") == {}
    assert files.text("chat_template.jinja") == "{{ a }}é\n"
    assert files.text("absent.jinja") is None
    assert files.path("config.json") == tmp_path / "config.json"
    assert files.path("absent") is None
    with pytest.raises(ModelFileError, match="leaves the folder"):
        files.path("../secret")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"a": ', r"no valid JSON \(line 1\)"),
        (b"[1, 2]", "holds a list"),
        (b'"text"', "holds a str"),
        (b'{"a": NaN}', "no valid JSON"),
        (b'{"a":' * 100_000, "no valid JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "no valid JSON"),
        (b"\xff\xfe{}", "is no text"),
        (b"", "no valid JSON"),
    ],
)
def test_broken_config(tmp_path: Path, content: bytes, says: str) -> None:
    fill(tmp_path, "model.onnx")
    (tmp_path / "tokenizer_config.json").write_bytes(content)
    with pytest.raises(ModelFileError, match=says):
        resolve(tmp_path).json("tokenizer_config.json")
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ModelFileError, match=says):
        resolve(tmp_path)


def test_infinity_as_exporters_write_it(tmp_path: Path) -> None:
    fill(tmp_path, "model.onnx", config={"time_step_limit": [0.0, float("inf"), -float("inf")]})
    limits = resolve(tmp_path).json("config.json")["time_step_limit"]
    assert limits == [0.0, float("inf"), -float("inf")]


def test_config_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_module, "MAX_TEXT_BYTES", 100)
    fill(tmp_path, "model.onnx", config={"a": "x" * 100})
    with pytest.raises(ModelFileError, match="too large"):
        resolve(tmp_path)


def test_errors_tell_no_content(tmp_path: Path) -> None:
    fill(tmp_path, "model.onnx")
    (tmp_path / "config.json").write_text('{"token": "hf_SECRET"')
    with pytest.raises(ModelFileError) as caught:
        resolve(tmp_path)
    assert "SECRET" not in str(caught.value)
