"""The order in which a session packs weights: the table of the vocabulary first."""

from onnx import ModelProto, TensorProto, helper

from onnxgen.graph.rewrites.order import pack_largest_first

NODES = [
    helper.make_node("Transpose", ["table"], ["turned"]),
    helper.make_node("Gather", ["table", "ids"], ["embeds"]),
    helper.make_node("MatMul", ["embeds", "small"], ["hidden"], name="layer"),
    helper.make_node("MatMul", ["hidden", "large"], ["wide"], name="head"),
    helper.make_node("MatMul", ["hidden", "turned"], ["tied"], name="tied head"),
]


def listed(*places: int, **weights: list[int]) -> list[str]:
    """The operators or names of these ``NODES`` once they are in order."""
    tensors = [TensorProto(name=name, dims=dims) for name, dims in weights.items()]
    graph = helper.make_graph([NODES[place] for place in places], "g", [], [], tensors)
    model = ModelProto(graph=graph)
    pack_largest_first(model)
    return [node.name or node.op_type for node in model.graph.node]


def test_the_head_is_listed_first():
    assert listed(1, 2, 3, table=[90, 4], small=[4, 4], large=[4, 80]) == [
        "head", "Gather", "layer",
    ]  # fmt: skip


def test_a_tied_head_brings_its_transpose():
    assert listed(1, 2, 0, 4, table=[90, 4], small=[4, 4]) == [
        "Transpose", "tied head", "Gather", "layer",
    ]  # fmt: skip


def test_a_graph_without_products_stays():
    assert listed(1, table=[90, 4]) == ["Gather"]


def test_nodes_without_their_inputs_are_left_to_onnxruntime():
    nodes = [helper.make_node("Transpose", [], []), helper.make_node("MatMul", ["table"], ["x"])]
    graph = helper.make_graph(nodes, "g", [], [], [TensorProto(name="table", dims=[90, 4])])
    model = ModelProto(graph=graph)
    pack_largest_first(model)
    assert [node.op_type for node in model.graph.node] == ["Transpose", "MatMul"]
