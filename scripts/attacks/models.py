"""Hostile graphs: data elsewhere, foreign operators, nets and signatures that cannot be.

All start from a decoder of one table: the sum of its cache and the token gives the logits.
"""

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from scripts.attacks import Cases

CASES = Cases()
V, H = 16, 8  # vocabulary, width
DATA = "model.onnx_data"
SECRET = b"the reader's own file " * 100
REAL, WHOLE = TensorProto.FLOAT, TensorProto.INT64


def table() -> np.ndarray[Any, Any]:
    """The weights (V,H)."""
    return np.random.default_rng(0).standard_normal((V, H)).astype(np.float32)


def decoder(
    extra: Sequence[NodeProto] = (),
    weights: TensorProto | None = None,
    kind: int = REAL,
    cache: Sequence[Any] = ("B", 1, "P", H),
    logits: Sequence[Any] = ("B", "S", V),
) -> onnx.ModelProto:
    """A decoder that runs, with ``extra`` nodes before the others, and what else is wrong."""
    node, info = helper.make_node, helper.make_tensor_value_info
    nodes = [
        *extra,
        node("Gather", ["table", "input_ids"], ["x"]),  # (B,S,H)
        node("Unsqueeze", ["x", "one"], ["key"]),  # (B,1,S,H)
        node("Concat", ["past_key_values.0.key", "key"], ["present.0.key"], axis=2),
        node("ReduceSum", ["present.0.key", "two"], ["seen"], keepdims=0),  # (B,1,H)
        node("Add", ["x", "seen"], ["y"]),
        node("MatMul", ["y", "head"], ["logits"]),
    ]
    own = numpy_helper.from_array
    initializers = [
        weights or own(table(), "table"),
        own(np.ascontiguousarray(table().T), "head"),
        own(np.array([1]), "one"),
        own(np.array([2]), "two"),
    ]
    inputs = [info("input_ids", WHOLE, ["B", "S"]), info("past_key_values.0.key", kind, cache)]
    outputs = [info("logits", REAL, logits), info("present.0.key", kind, ["B", 1, "T", H])]
    graph = helper.make_graph(nodes, "attack", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def put(folder: Path, model: onnx.ModelProto, data: bytes | None = None) -> Path:
    """Writes a model, and its external data where ``data`` is given."""
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    if data is not None:
        (folder / DATA).write_bytes(data)
    return folder


def outside(**entries: str) -> TensorProto:
    """The table as external data; ``entries`` replace its location, offset and length."""
    tensor = TensorProto(name="table", data_type=REAL, dims=[V, H])
    tensor.data_location = TensorProto.EXTERNAL
    sound = {"location": DATA, "offset": "0", "length": str(4 * V * H)}
    for key, value in (sound | entries).items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def away(folder: Path) -> Path:
    """A file of the reader's, outside the model's folder."""
    place = folder.parent / f"{folder.name} secrets"
    place.mkdir()
    (place / "secret").write_bytes(SECRET)
    (place / "secret").chmod(0o600)
    return place / "secret"


# ---------------------------------------------------------------- external data


def _elsewhere(name: str, must: str, **entries: str) -> None:
    def build(folder: Path) -> Path:
        return put(folder, decoder(weights=outside(**entries)), table().tobytes())

    build.__name__ = name
    told = ", ".join(f"{key} {value}" for key, value in entries.items())
    CASES.case(f"external data with {told}", must, kept=True)(build)


_elsewhere("external_parent", "ModelFileError", location="../secret")
_elsewhere("external_inner_parent", "ModelFileError", location="a/../../secret")
_elsewhere("external_absolute", "ModelFileError", location="/etc/passwd")
_elsewhere("external_proc", "ModelFileError", location="/proc/self/mem")
_elsewhere("external_device", "ModelFileError", location="/dev/zero")
_elsewhere("external_windows", "ModelFileError", location="C:\\Windows\\win.ini")
_elsewhere("external_nul", "ModelFileError", location="a\0b")
_elsewhere("external_missing", "ModelFileError", location="nothing.bin")
_elsewhere("external_itself", "ModelFileError", location="model.onnx", offset="100000")
_elsewhere("external_marker", "ModelFileError", location="*/_ORT_MEM_ADDR_/*", offset="4096")
_elsewhere("external_negative_offset", "ModelFileError", offset="-8")
_elsewhere("external_offset_beyond", "ModelFileError", offset=str(2**62))
_elsewhere("external_offset_wraps", "ModelFileError", offset=str(2**64 - 8))
_elsewhere("external_length_beyond", "ModelFileError", length=str(2**62))
_elsewhere("external_length_negative", "ModelFileError", length="-1")
_elsewhere("external_no_numbers", "ModelFileError", offset="0x10", length="1e3")
_elsewhere("external_unknown_key", "ModelFileError", __class__="subprocess.Popen")


@CASES.case("external data in a file of half the size", "ModelFileError", kept=True)
def external_short(folder: Path) -> Path:
    return put(folder, decoder(weights=outside()), table().tobytes()[: 2 * V * H])


@CASES.case("external data of dims 2^40", "ModelFileError", kept=True)
def external_dims(folder: Path) -> Path:
    tensor = outside()
    tensor.dims[:] = [2**40]
    return put(folder, decoder(weights=tensor), table().tobytes())


@CASES.case("external data in a folder", "ModelFileError")
def external_folder(folder: Path) -> Path:
    (folder / DATA).mkdir()
    return put(folder, decoder(weights=outside()))


@CASES.case("external data from a pipe that nobody fills", "ModelFileError")
def external_pipe(folder: Path) -> Path:
    os.mkfifo(folder / DATA)
    return put(folder, decoder(weights=outside()))


@CASES.case("a symbolic link to a file of the reader's", "ModelFileError")
def link_data(folder: Path) -> Path:
    (folder / DATA).symlink_to(away(folder))
    return put(folder, decoder(weights=outside()))


@CASES.case("a folder that is a link out of the model's", "ModelFileError")
def link_folder(folder: Path) -> Path:
    (folder / "sub").symlink_to(away(folder).parent)
    return put(folder, decoder(weights=outside(location="sub/secret")))


@CASES.case("a graph that is a link out of the folder", "ModelFileError")
def link_graph(folder: Path) -> Path:
    other = away(folder).with_name("other.onnx")
    other.write_bytes(decoder().SerializeToString())
    (folder / "model.onnx").symlink_to(other)
    return folder


@CASES.case("a config that is a link to a file of the reader's", "ModelFileError")
def link_config(folder: Path) -> Path:
    (folder / "config.json").symlink_to(away(folder))
    return put(folder, decoder())


@CASES.case("a chat template that is a link to a file of the reader's", "ModelFileError")
def link_template(folder: Path) -> Path:
    (folder / "chat_template.jinja").symlink_to(away(folder))
    return put(folder, decoder())


@CASES.case("a link to itself", "ModelFileError")
def link_circle(folder: Path) -> Path:
    (folder / DATA).symlink_to(folder / DATA)
    return put(folder, decoder(weights=outside()))


@CASES.case("a folder like a Hub cache, with a link beside its blobs", "ModelFileError")
def link_beside_blobs(folder: Path) -> Path:
    snapshot = folder / "models--owner--name/snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / DATA).symlink_to(away(folder))
    return put(snapshot, decoder(weights=outside()))


@CASES.case("a hard link to a private file of the reader's", "ModelFileError")
def hard_link_private(folder: Path) -> Path:
    os.link(away(folder), folder / DATA)
    return put(folder, decoder(weights=outside()))


@CASES.case("weights that are hard links into a store, as uv, conda and DVC make them", "runs")
def hard_link_store(folder: Path) -> Path:
    put(folder, decoder(weights=outside()), table().tobytes())
    (folder / DATA).chmod(0o644)
    os.link(folder / DATA, folder.parent / f"{folder.name} store")
    return folder


@CASES.case("the links of a Hub cache", "runs")
def hub_cache(folder: Path) -> Path:
    repository = folder / "models--owner--name"
    snapshot, blobs = repository / "snapshots" / ("0" * 40) / "onnx", repository / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    put(blobs, decoder(weights=outside()), table().tobytes())
    for name, blob in (("model.onnx", "1" * 64), (DATA, "2" * 64)):
        (blobs / name).rename(blobs / blob)
        (snapshot / name).symlink_to(f"../../../blobs/{blob}")
    (blobs / ("2" * 64)).chmod(0o600)
    os.link(blobs / ("2" * 64), folder / "a second cache")
    return snapshot.parent


@CASES.case("the plain files of a download with local_dir", "runs")
def local_dir(folder: Path) -> Path:
    (folder / "onnx").mkdir()
    (folder / ".cache/huggingface/download").mkdir(parents=True)
    put(folder / "onnx", decoder(weights=outside()), table().tobytes())
    return folder


@CASES.case("a folder that is itself a link, as the reader made it", "runs")
def link_to_folder(folder: Path) -> Path:
    (folder / "real").mkdir()
    put(folder / "real", decoder(weights=outside()), table().tobytes())
    (folder / "link").symlink_to("real")
    return folder / "link"


@CASES.case("a graph that the reader named by a link", "runs")
def link_named(folder: Path) -> Path:
    (folder / "real").mkdir()
    (folder / "named").mkdir()
    put(folder / "real", decoder())
    (folder / "named/model.onnx").symlink_to("../real/model.onnx")
    return folder / "named/model.onnx"


# ---------------------------------------------------------------- tensors


def _changed(name: str, tries: str, must: str, change: Callable[[onnx.ModelProto], Any]) -> None:
    def build(folder: Path) -> Path:
        model = decoder()
        change(model)
        return put(folder, model)

    build.__name__ = name
    CASES.case(tries, must, kept=True)(build)


def _dims(*dims: int) -> Callable[[onnx.ModelProto], Any]:
    def change(model: onnx.ModelProto) -> None:
        model.graph.initializer[0].dims[:] = dims

    return change


def _sparse(model: onnx.ModelProto) -> None:
    values = numpy_helper.from_array(np.ones(1, np.float32), "vast")
    where = numpy_helper.from_array(np.zeros(1, np.int64), "")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, where, [2**45]))


_changed("dims_beyond", "a table of 512 bytes with dims 2^40", "ModelFileError", _dims(2**40))
_changed("dims_overflow", "dims of a product over 2^64", "ModelFileError", _dims(2**33, 2**33))
_changed("dims_negative", "a table of -16 rows", "ModelFileError", _dims(-V, H))
_changed("sparse_bomb", "one number that stands for 2^45", "ModelFileError", _sparse)

# ---------------------------------------------------------------- operators


def _foreign(name: str, tries: str, domain: str, op: str, must: str, **attributes: Any) -> None:
    def build(folder: Path) -> Path:
        node = helper.make_node(op, ["input_ids"], ["extra"], domain=domain, **attributes)
        model = decoder([node])
        if domain not in {"", "com.microsoft"}:
            model.opset_import.append(helper.make_opsetid(domain, 1))
        return put(folder, model)

    build.__name__ = name
    CASES.case(tries, must, kept=True)(build)


_NO = "UnsupportedModelError"
_foreign("op_unknown_domain", "an operator of an unknown domain", "evil.corp", "Run", _NO)
_foreign("op_extensions", "an operator of onnxruntime-extensions", "ai.onnx.contrib", "PyOp", _NO)
_foreign("op_python", "a call of a Python function", "com.microsoft", "PythonOp", _NO,
         func_name="os.system")  # fmt: skip
_foreign("op_torch", "an operator of torch", "org.pytorch.aten", "ATen", _NO, operator="load")
_foreign("op_tensorrt", "a plugin of TensorRT", "trt.plugins", "Plugin", _NO)
_foreign("op_context", "an engine in a file that the graph names", "com.microsoft", "EPContext",
         _NO, ep_cache_context="/etc/passwd", embed_mode=0, main_context=1)  # fmt: skip


def _node(domain: str, op: str) -> NodeProto:
    return helper.make_node(op, ["input_ids"], ["inner"], domain=domain)


@CASES.case("a foreign operator within a branch", _NO, kept=True)
def op_in_branch(folder: Path) -> Path:
    out = helper.make_tensor_value_info("inner", WHOLE, None)
    branch = helper.make_graph([_node("evil.corp", "Run")], "b", [], [out])
    node = helper.make_node("If", ["yes"], ["held"], then_branch=branch, else_branch=branch)
    return put(folder, decoder([node]))


@CASES.case("a foreign operator within a function of the model", _NO, kept=True)
def op_in_function(folder: Path) -> Path:
    return put(folder, _functions({"F": [("evil.corp", "Run")]}))


@CASES.case("a function that calls itself", "ModelFileError", kept=True)
def function_circle(folder: Path) -> Path:
    return put(folder, _functions({"F": [("own", "G")], "G": [("own", "F")]}))


@CASES.case("thirty functions that call the next one twice: 2^30 nodes", "ModelFileError",
            kept=True)  # fmt: skip
def function_bomb(folder: Path) -> Path:
    calls = {f"F{i}" if i else "F": [("own", f"F{i + 1}")] * 2 for i in range(30)}
    return put(folder, _functions(calls | {"F30": [("", "Identity")]}))


def _functions(calls: dict[str, list[tuple[str, str]]]) -> onnx.ModelProto:
    """A decoder that calls the function F of these; each is a chain of what it calls."""
    model = decoder([helper.make_node("F", ["input_ids"], ["held"], domain="own")])
    opsets = [helper.make_opsetid(domain, 18) for domain in ("", "own", "evil.corp")]
    model.opset_import.append(helper.make_opsetid("own", 18))
    for name, inner in calls.items():
        names = ["in", *(f"m{i}" for i in range(len(inner) - 1)), "out"]
        nodes = [
            helper.make_node(op, [names[i]], [names[i + 1]], domain=domain)
            for i, (domain, op) in enumerate(inner)
        ]
        model.functions.append(helper.make_function("own", name, ["in"], ["out"], nodes, opsets))
    return model


# ---------------------------------------------------------------- nets and signatures


def _chain(*names: str) -> list[NodeProto]:
    return [helper.make_node("Identity", [a], [b]) for a, b in pairwise(names)]


def _graph(**options: Any) -> Callable[[Path], Path]:
    return lambda folder: put(folder, decoder(**options))


def _enter(name: str, tries: str, must: str, build: Callable[[Path], Path]) -> None:
    def named(folder: Path) -> Path:
        return build(folder)

    named.__name__ = name
    CASES.case(tries, must, kept=True)(named)


_enter("net_circle", "nodes that feed each other", "ModelFileError",
       _graph(extra=_chain("a", "b", "a")))  # fmt: skip
_enter("net_made_twice", "a tensor that two nodes make", "ModelFileError",
       _graph(extra=_chain("input_ids", "a") * 2))  # fmt: skip
_enter("net_makes_input", "a node that makes an input again", "ModelFileError",
       _graph(extra=_chain("input_ids", "a", "input_ids")))  # fmt: skip
_enter("cache_string", "a cache of strings", _NO, _graph(kind=TensorProto.STRING))
_enter("cache_complex", "a cache of complex numbers", _NO, _graph(kind=TensorProto.COMPLEX64))
_enter("cache_dim_huge", "a cache of 2^40 heads", "ModelFileError",
       _graph(cache=("B", 2**40, "P", H)))  # fmt: skip
_enter("cache_dims_huge", "a cache of 2^30 heads of 2^30 numbers", _NO,
       _graph(cache=("B", 2**30, "P", 2**30)))  # fmt: skip
_enter("cache_dims_disagree", "a cache that goes in with other dims than it comes out",
       "ModelFileError", _graph(cache=("B", 1, "P", H + 1)))  # fmt: skip
_enter("cache_rank", "a cache of rank 2", _NO, _graph(cache=("B", "P")))
_enter("logits_rank_1", "logits of rank 1", _NO, _graph(logits=(V,)))
_enter("logits_rank_4", "logits of rank 4", _NO, _graph(logits=("B", "S", 1, V)))
_enter("logits_width_huge", "logits of 2^31 - 1 tokens", "OnnxgenError",
       _graph(logits=("B", "S", 2**31 - 1)))  # fmt: skip


def _ir(model: onnx.ModelProto) -> None:
    model.ir_version = 99


def _opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 9999


def _twice(model: onnx.ModelProto) -> None:
    model.graph.input.append(model.graph.input[0])


def _no_present(model: onnx.ModelProto) -> None:
    del model.graph.output[1]


def _no_past(model: onnx.ModelProto) -> None:
    del model.graph.input[1]


def _no_outputs(model: onnx.ModelProto) -> None:
    del model.graph.output[:]


def _no_dims(model: onnx.ModelProto) -> None:
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.ClearField("shape")


def _axis(model: onnx.ModelProto) -> None:
    model.graph.node[2].attribute[0].i = 2**40


_changed("axis_beyond", "a cache joined along axis 2^40", "ModelFileError", _axis)
_changed("ir_version", "IR version 99", _NO, _ir)
_changed("opset", "opset 9999", _NO, _opset)
_changed("input_twice", "two inputs of one name", "ModelFileError", _twice)
_changed("no_present", "a cache that does not come out", _NO, _no_present)
_changed("no_past", "a cache that is read and does not go in", "ModelFileError", _no_past)
_changed("no_outputs", "nothing comes out", "ModelFileError", _no_outputs)
_changed("no_dims", "inputs and outputs without dims", _NO, _no_dims)


@CASES.case("names that are no text", "ModelFileError", kept=True)
def name_bytes(folder: Path) -> Path:
    content = decoder().SerializeToString().replace(b"input_ids", b"input\xff\xfe\xfd\xfc")
    (folder / "model.onnx").write_bytes(content)
    return folder


@CASES.case("100,000 cache inputs", _NO)
def many_caches(folder: Path) -> Path:
    model = decoder()
    for index in range(1, 100_000):
        info = helper.make_tensor_value_info(f"past_key_values.{index}.key", REAL, ["B", 1, "P", H])
        model.graph.input.append(info)
    return put(folder, model)


@CASES.case("a chain of 50,000 nodes that do nothing", "runs")
def long_chain(folder: Path) -> Path:
    names = [f"n{i}" for i in range(50_000)]
    return put(folder, decoder(_chain("input_ids", *names)))


@CASES.case("a body in a body, 25 deep", "ModelFileError", kept=True)
def deep_bodies(folder: Path) -> Path:
    out = helper.make_tensor_value_info("inner", WHOLE, None)
    graph = helper.make_graph(_chain("input_ids", "inner"), "b", [], [out])
    for _ in range(25):
        node = helper.make_node("Loop", ["", "yes"], ["inner"], body=graph)
        graph = helper.make_graph([node], "b", [], [out])
    return put(folder, decoder(list(graph.node)))


if __name__ == "__main__":
    CASES.write("models")
