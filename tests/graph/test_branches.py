"""Heads that all branches of an ``If`` end with, moved behind it."""

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from onnxgen.graph.rewrites.branches import join_ends
from onnxgen.graph.rewrites.editing import Draft, Site
from onnxgen.graph.rewrites.order import pack_largest_first

TABLE = np.arange(15, dtype=np.float32).reshape(5, 3)  # (V,H)
OTHER = TABLE[::-1].copy()
BIAS = np.float32([1, 2, 3, 4, 5])
X = np.float32([[1, -2, 3]])


def node(op_type: str, inputs: str, output: str, **told: object) -> NodeProto:
    return helper.make_node(op_type, inputs.split(), [output], **told)


def branch(name: str, hidden: str, *ends: NodeProto, own: tuple[TensorProto, ...] = ()):
    """One that makes ``side``, and ``logits`` of what the operator ``hidden`` makes of ``x``."""
    nodes = [node(hidden, "x", "hidden"), *ends, node("Identity", "x", "side")]
    outputs = [helper.make_tensor_value_info(n, 1, None) for n in ("logits", "side")]
    return helper.make_graph(nodes, name, [], outputs, list(own))


HEAD = (
    node("Transpose", "table", "turned", perm=[1, 0]),
    node("MatMul", "hidden turned", "product"),
    node("Add", "bias product", "logits"),
)


def model(then_branch, else_branch, *before: NodeProto) -> ModelProto:
    chosen = helper.make_node(
        "If", ["first"], ["logits", "side"], then_branch=then_branch, else_branch=else_branch
    )
    weights = [("table", TABLE), ("other", OTHER), ("bias", BIAS)]
    weights += [("bytes", TABLE.astype(np.int8)), ("scale", np.float32(0.5))]
    graph = helper.make_graph(
        [*before, chosen],
        "g",
        [
            helper.make_tensor_value_info("first", 9, []),
            helper.make_tensor_value_info("x", 1, [1, 3]),
        ],
        [helper.make_tensor_value_info(n, 1, None) for n in ("logits", "side")],
        [numpy_helper.from_array(value, name) for name, value in weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def moved(*parts) -> tuple[Draft, list[Site]]:
    draft = Draft(model(*parts), None)
    sites = join_ends(draft)
    draft.settle()
    return draft, sites


def operators(draft: Draft) -> list[list[str]]:
    """Those of the main graph and of each branch."""
    return [[n.op_type for n in scope.graph.node] for scope in draft.scope.walk()]


def runs(whole: ModelProto, first: bool) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(
        whole.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(["logits", "side"], {"first": np.array(first), "x": X})


def test_a_head_of_both_branches_is_there_once():
    draft, sites = moved(branch("t", "Relu", *HEAD), branch("e", "Neg", *HEAD))
    assert sites == [Site((), "logits")]
    assert operators(draft) == [
        ["If", "Transpose", "MatMul", "Add"], ["Neg", "Identity"], ["Relu", "Identity"],
    ]  # fmt: skip
    pack_largest_first(draft.model)
    for first, hidden in ((True, [[1, 0, 3]]), (False, [[-1, 2, -3]])):
        logits, side = runs(draft.model, first)
        np.testing.assert_array_equal(logits, np.float32(hidden) @ TABLE.T + BIAS)
        np.testing.assert_array_equal(side, X)


def test_a_table_that_the_main_graph_makes_floats():
    head = (node("Transpose", "floats", "turned", perm=[1, 0]), *HEAD[1:])
    before = node("DequantizeLinear", "bytes scale", "floats")
    draft, sites = moved(branch("t", "Relu", *head), branch("e", "Neg", *head), before)
    assert sites == [Site((), "logits")]
    logits, _ = runs(draft.model, first=True)
    np.testing.assert_array_equal(logits, np.float32([[1, 0, 3]]) @ TABLE.T / 2 + BIAS)


OWN = numpy_helper.from_array(TABLE, "own")
STAYS = {
    "another table": (HEAD, (node("Transpose", "other", "turned", perm=[1, 0]), *HEAD[1:])),
    "another order": (HEAD, (*HEAD[:2], node("Add", "product bias", "logits"))),
    "another operator": (HEAD, (*HEAD[:2], node("Mul", "bias product", "logits"))),
    "no head": ((node("Identity", "hidden", "logits"),),) * 2,
    "no constants": ((node("MatMul", "hidden x", "logits"),),) * 2,
    "read elsewhere": ((*HEAD, node("Exp", "product", "side2"), node("Exp", "side2", "y")),) * 2,
}


@pytest.mark.parametrize("name", STAYS)
def test_what_differs_stays(name):
    one, other = STAYS[name]
    branches = branch("t", "Relu", *one), branch("e", "Neg", *other)
    before = operators(Draft(model(*branches), None))
    draft = Draft(model(*branches), None)
    assert join_ends(draft) == []
    assert operators(draft) == before


def test_a_table_of_the_branches_own_stays():
    head = (node("Transpose", "own", "turned", perm=[1, 0]), *HEAD[1:])
    branches = [branch(name, "Relu", *head, own=(OWN,)) for name in "te"]
    assert moved(*branches)[1] == []


def test_of_two_heads_of_one_tensor_one_stays():
    second = (node("MatMul", "hidden turned", "side"),)
    branches = [branch(name, "Relu", *HEAD[:2], HEAD[2], *second) for name in "te"]
    for one in branches:
        del one.node[-1]  # the other side
    draft, sites = moved(*branches)
    assert sites == [Site((), "logits")]
    for first in (True, False):
        logits, side = runs(draft.model, first)
        np.testing.assert_array_equal(side, np.float32([[1, 0, 3]]) @ TABLE.T)
        np.testing.assert_array_equal(logits, side + BIAS)


def test_what_is_an_output_itself_stays():
    """One name cannot be two outputs of a branch."""
    branches = [branch(name, "Relu", *HEAD) for name in "te"]
    for one in branches:
        del one.node[-1]
        one.output[1].name = "hidden"
    assert moved(*branches)[1] == []
