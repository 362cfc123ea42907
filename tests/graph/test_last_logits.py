"""Logits of the last columns alone, and what leads to them in the last layer."""

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from onnxgen.graph.rewrites.editing import Draft
from onnxgen.graph.rewrites.last_logits import keep_last

HIDDEN, VOCAB = 8, 11
IDS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
WEIGHTS = {
    "table": (VOCAB, HIDDEN), "places": (5, HIDDEN), "each": (1, 5, 1), "scale": (HIDDEN,),
    "square": (HIDDEN, HIDDEN), "head": (HIDDEN, VOCAB),
}  # fmt: skip


def node(op_type: str, inputs: str, outputs: str, domain: str = "", **told: object) -> NodeProto:
    return helper.make_node(op_type, inputs.split(), outputs.split(), domain=domain, **told)


FIRST = (
    node("Gather", "table input_ids", "embedded"),
    node("LayerNormalization", "embedded scale", "normal"),
    node("MultiHeadAttention", "normal normal normal", "seen", "com.microsoft", num_heads=2),
)
SECOND = (
    node("MatMul", "seen square", "projected"),
    node("Add", "embedded projected", "sum"),
    node("Pow", "sum two", "power"),
    node("ReduceMean", "power last", "mean", keepdims=1),
    node("Sqrt", "mean", "root"),
    node("Div", "sum root", "level"),
    node("Mul", "scale level", "scaled"),
    node("MatMul", "scaled square", "wide"),
    node("Sigmoid", "wide", "gate"),
    node("Mul", "gate wide", "gated"),
)
HEAD = (node("Add", "sum gated", "out"), node("MatMul", "out head", "logits"))


def model(*nodes: NodeProto, outputs: tuple[str, ...] = ()) -> ModelProto:
    chosen = np.random.default_rng(0)
    tensors = [
        numpy_helper.from_array(chosen.standard_normal(shape, np.float32), name)
        for name, shape in WEIGHTS.items()
    ]
    tensors.append(numpy_helper.from_array(np.float32(2), "two"))
    numbers = {"last": [-1], "first": [1], "axis": 1}
    tensors += [numpy_helper.from_array(np.array(v), name) for name, v in numbers.items()]
    given = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["B", "S"])]
    given.append(helper.make_tensor_value_info("position_ids", TensorProto.INT64, ["B", "S"]))
    given.append(helper.make_tensor_value_info("past", TensorProto.FLOAT, [1]))
    told = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["B", "S", VOCAB])]
    told += [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", given, told, tensors)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def run(made: ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    places = np.broadcast_to(np.arange(5), IDS.shape)
    every = {"input_ids": IDS, "position_ids": places, "past": np.zeros(1, np.float32), **feeds}
    return session.run(None, {p.name: every[p.name] for p in session.get_inputs()})


def cut(made: ModelProto) -> set[str]:
    """What is cut to its last columns; the logits that are left must be those of the whole."""
    before = run(made)
    draft = Draft(made, None)
    assert [site.output for site in keep_last(draft)] == ["logits"]
    draft.settle()
    for count in (0, 1, 3):
        after = run(draft.model, num_logits_to_keep=np.array(count))
        np.testing.assert_allclose(after[0], before[0][:, -count:], rtol=1e-4, atol=1e-5)
        for one, other in zip(after[1:], before[1:], strict=True):
            assert np.array_equal(one, other)
    return {n.input[0] for n in draft.model.graph.node if n.op_type == "Slice"}


def test_all_behind_the_last_attention_is_cut():
    assert cut(model(*FIRST, *SECOND, *HEAD)) == {"seen", "embedded"}


def test_operators_of_norms_are_cut_through():
    skip = helper.make_node(
        "SkipSimplifiedLayerNormalization", ["embedded", "projected", "scale"],
        ["normed", "", "", "sum"], domain="com.microsoft",
    )  # fmt: skip
    more = (
        SECOND[0],
        skip,
        node("SimplifiedLayerNormalization", "normed scale", "level", axis=-1),
        node("Gelu", "level", "gated", "com.microsoft"),
    )
    assert cut(model(*FIRST, *more, *HEAD)) == {"seen", "embedded"}


def test_learned_positions_are_hidden_states_too():
    first = (
        node("Gather", "table input_ids", "words"),
        node("Gather", "places position_ids", "place"),
        node("Add", "words place", "embedded"),
        *FIRST[1:],
    )
    assert cut(model(*first, *SECOND, *HEAD)) == {"seen", "embedded"}


STOPS = {
    "a sum over tokens": node("CumSum", "gated axis", "other"),
    "a number for each place": node("Mul", "gated each", "other"),
    "a mean over tokens": node("ReduceMean", "gated first", "other"),
}


@pytest.mark.parametrize("name", STOPS)
def test_what_mixes_tokens_is_not_cut(name):
    ends = (STOPS[name], node("Add", "sum other", "out"), HEAD[1])
    assert cut(model(*FIRST, *SECOND, *ends)) == {"out"}


def test_what_is_told_is_told_whole():
    found = cut(model(*FIRST, *SECOND, *HEAD, outputs=("wide",)))
    assert found == {"wide", "sum"}


def test_what_something_else_reads_stays_whole():
    reader = node("ReduceSum", "sum", "total")
    assert cut(model(*FIRST, *SECOND, reader, *HEAD, outputs=("total",))) >= {"sum"}
