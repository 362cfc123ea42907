"""Tiny ONNX models for tests about files: what they compute matters little, where they lie does."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from onnxgen.files import resolve


def model(
    nodes: Sequence[NodeProto], initializers: Sequence[TensorProto] = (), size: int = 3
) -> onnx.ModelProto:
    """A model from ``x`` to ``y``, both float32 [size]."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name in "xy")
    graph = helper.make_graph(nodes, "tiny", [x], [y], initializer=initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def plain(mark: float = 1.0) -> bytes:
    """A serialized model that adds ``mark``; another mark makes another file."""
    weight = numpy_helper.from_array(np.full(3, mark, np.float32), "w")
    return model([helper.make_node("Add", ["x", "w"], ["y"])], [weight]).SerializeToString()


def outside(name: str, location: str, size: int) -> TensorProto:
    """A float32 [size] tensor whose data lies in the file ``location``."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[size])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": "0", "length": str(4 * size)}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def in_parts(file_name: str, size: int = 4096) -> dict[str, bytes]:
    """``y = 2 x + arange(size)`` with its two weights in a file each: file name -> content."""
    parts = (f"{file_name}_data", f"{file_name}_data_1")
    nodes = [
        helper.make_node("Mul", ["x", "w0"], ["scaled"]),
        helper.make_node("Add", ["scaled", "w1"], ["y"]),
    ]
    tensors = [outside(f"w{i}", part, size) for i, part in enumerate(parts)]
    weights = (np.full(size, 2, np.float32), np.arange(size, dtype=np.float32))
    return {
        file_name: model(nodes, tensors, size).SerializeToString(),
        **{part: weight.tobytes() for part, weight in zip(parts, weights, strict=True)},
    }


def fill(folder: Path, *names: str, **configs: object) -> Path:
    """A folder with a tiny graph under each of the names, and JSON files."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(plain() if name.endswith(".onnx") else b"{}")
    for name, value in configs.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def found(folder: Path, **options: Any) -> dict[str, str]:
    """Role -> file name of what ``resolve`` takes."""
    files = resolve(folder, **options)
    return {role: path.relative_to(files.folder).as_posix() for role, path in files.graphs.items()}
