"""The operators that masks are read by, each against ONNX Runtime's own."""

import numpy as np
import onnxruntime
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from onnxgen.graph.proto import attributes
from onnxgen.graph.rewrites.operators import OPERATORS

FIVE = np.array([3, -7, 0, 7, -2])
TWOS = np.array([2, 2, -5, -2, -2])
GRID = np.arange(24).reshape(2, 3, 4) - 9
BOOLS = np.array([True, True, False, False])
OTHERS = np.array([True, False, True, False])
FLOATS = np.array([0.5, -1.25, 3.0], np.float32)


def of(*numbers):
    return np.array(numbers, np.int64)


def tensor(*numbers, dtype=np.int64):
    return numpy_helper.from_array(np.array(numbers, dtype))


# (operator, inputs, attributes)
CASES = [
    ("Add", (FIVE, TWOS), {}),
    ("Add", (GRID, of(1, 2, 3, 4)), {}),
    ("And", (BOOLS, OTHERS), {}),
    ("Cast", (GRID,), {"to": TensorProto.BOOL}),
    ("Cast", (FLOATS,), {"to": TensorProto.INT64}),
    ("Cast", (BOOLS,), {"to": TensorProto.FLOAT16}),
    ("Concat", (GRID, GRID[:, :1]), {"axis": 1}),
    ("Concat", (of(1), of(2, 3)), {"axis": -1}),
    ("Constant", (), {"value": tensor(4, 5)}),
    ("Constant", (), {"value_int": 7}),
    ("Constant", (), {"value_ints": [7, 8]}),
    ("Constant", (), {"value_float": 0.5}),
    ("Constant", (), {"value_floats": [0.5, 2.0]}),
    ("ConstantOfShape", (of(2, 3),), {"value": tensor(1)}),
    ("ConstantOfShape", (of(2),), {}),
    ("ConstantOfShape", (of(0),), {"value": tensor(True, dtype=bool)}),
    ("Div", (FIVE, TWOS), {}),
    ("Div", (FLOATS, FLOATS[::-1].copy()), {}),
    ("Equal", (FIVE, TWOS), {}),
    ("Expand", (GRID[:, :1], of(2, 3, 1)), {}),
    ("Expand", (of(5), of(2, 1, 4)), {}),
    ("Flatten", (GRID,), {}),
    ("Flatten", (GRID,), {"axis": 2}),
    ("Flatten", (GRID,), {"axis": -1}),
    ("Flatten", (GRID,), {"axis": 0}),
    ("Gather", (GRID, of(1, 0, -1)), {"axis": 2}),
    ("Gather", (GRID, np.array(1)), {}),
    ("Gather", (GRID, np.array([[0, 1], [1, 1]])), {"axis": -2}),
    ("Greater", (FIVE, TWOS), {}),
    ("GreaterOrEqual", (FIVE, TWOS), {}),
    ("Identity", (GRID,), {}),
    ("Less", (FIVE, TWOS), {}),
    ("LessOrEqual", (FIVE, TWOS), {}),
    ("Max", (FIVE, TWOS, of(1, 1, 1, 1, 1)), {}),
    ("Min", (FIVE, TWOS, of(1)), {}),
    ("Mul", (FIVE, TWOS), {}),
    ("Neg", (FIVE,), {}),
    ("Not", (BOOLS,), {}),
    ("Or", (BOOLS, OTHERS), {}),
    ("Range", (np.array(2), np.array(9), np.array(3)), {}),
    ("Range", (np.array(9), np.array(2), np.array(-1)), {}),
    ("Range", (np.float32(0), np.float32(2), np.float32(0.5)), {}),
    ("ReduceSum", (GRID, of(1)), {}),
    ("ReduceSum", (GRID, of(-1, 0)), {"keepdims": 0}),
    ("ReduceSum", (GRID,), {}),
    ("ReduceSum", (GRID.astype(np.int32), of(0)), {}),
    ("ReduceSum", (GRID, of()), {"noop_with_empty_axes": 1}),
    ("ReduceSum", (GRID, of()), {}),
    ("Reshape", (GRID, of(0, -1)), {}),
    ("Reshape", (GRID, of(4, 0, 2)), {}),
    ("Reshape", (np.zeros((0, 3)), of(3, 0)), {"allowzero": 1}),
    ("ScatterND", (GRID, np.array([[0, 1], [1, 2]]), GRID[0, :2]), {}),
    ("ScatterND", (FIVE, np.array([[-1], [0]]), of(8, 9)), {}),
    ("Shape", (GRID,), {}),
    ("Shape", (GRID,), {"start": -2}),
    ("Shape", (GRID,), {"start": 0, "end": 2}),
    ("Size", (GRID,), {}),
    ("Slice", (GRID, of(1), of(2**63 - 1)), {}),
    ("Slice", (GRID, of(0, -3), of(-1, 99), of(1, 2)), {}),
    ("Slice", (GRID, of(-1), of(-(2**63) + 1), of(-1), of(-2)), {}),
    ("Slice", (GRID, of(0), of(4), None, of(2)), {}),
    ("Squeeze", (GRID[:1, :, :1],), {}),
    ("Squeeze", (GRID[:1, :, :1], of(-1)), {}),
    ("Sub", (FIVE, TWOS), {}),
    ("Tile", (GRID, of(2, 1, 3)), {}),
    ("Transpose", (GRID,), {}),
    ("Transpose", (GRID,), {"perm": [0, 2, 1]}),
    ("Trilu", (GRID,), {}),
    ("Trilu", (GRID, np.array(-1)), {"upper": 0}),
    ("Trilu", (GRID, np.array(2)), {}),
    ("Unsqueeze", (FIVE, of(0, -1)), {}),
    ("Where", (BOOLS, np.array([[1], [2]]), of(5, 6, 7, 8)), {}),
    ("Xor", (BOOLS, OTHERS), {}),
]  # fmt: skip
OF_SHAPE = {"DequantizeLinear", "GatherBlockQuantized"}


def runtimes(node: NodeProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    """What ONNX Runtime gives for ``node``."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feeds.items()
    ]
    graph = helper.make_graph([node], "one", inputs, [helper.make_empty_tensor_value_info("out")])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, feeds)[0]


def node_of(name: str, inputs: tuple, options: dict, domain: str = "") -> tuple[NodeProto, dict]:
    names = ["" if x is None else f"x{index}" for index, x in enumerate(inputs)]
    node = helper.make_node(name, names, ["out"], domain=domain, **options)
    return node, {n: np.asarray(x) for n, x in zip(names, inputs, strict=True) if n}


@pytest.mark.parametrize(
    ("name", "inputs", "options"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)]
)
def test_an_operator(name, inputs, options):
    node, feeds = node_of(name, inputs, options)
    given = [None if x is None else np.asarray(x) for x in inputs]
    made = np.asarray(OPERATORS[""][name](*given, **attributes(node)))
    want = runtimes(node, feeds)
    assert made.dtype == want.dtype
    np.testing.assert_array_equal(made, want)


def test_every_operator_has_a_case():
    names = {name for operators in OPERATORS.values() for name in operators}
    assert {name for name, _, _ in CASES} | OF_SHAPE == names


@pytest.mark.parametrize("name", ["Squeeze", "Unsqueeze"])
def test_axes_as_the_attribute_that_they_were(name):
    (inputs,) = [case[1] for case in CASES if case[0] == name and len(case[1]) == 2]
    by_input = OPERATORS[""][name](*inputs)
    by_attribute = OPERATORS[""][name](inputs[0], axes=inputs[1].tolist())
    np.testing.assert_array_equal(by_attribute, by_input)


@pytest.mark.parametrize(
    ("domain", "name", "inputs", "options"),
    [
        ("", "DequantizeLinear", (GRID.astype(np.int8), np.float32(0.5)), {}),
        (
            "com.microsoft",
            "GatherBlockQuantized",
            (np.zeros((6, 32), np.int8).view(np.uint8), of(4, 1), np.ones((6, 1), np.float32)),
            {"block_size": 32, "bits": 8},
        ),
    ],
)
def test_what_is_made_of_weights_has_its_shape(domain, name, inputs, options):
    node, feeds = node_of(name, inputs, options, domain)
    made = OPERATORS[domain][name](*inputs, **attributes(node))
    want = runtimes(node, feeds)
    assert (made.shape, made.dtype) == (want.shape, want.dtype)


def test_rows_of_a_table_that_is_not_written_down():
    table = np.broadcast_to(np.float32(0), (1 << 40, 1 << 10))  # 4 PB
    assert OPERATORS[""]["Gather"](table, of(7, 1 << 39)).shape == (2, 1 << 10)
