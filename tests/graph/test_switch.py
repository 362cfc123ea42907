"""LongRoPE: a graph that changes to another rotary table where a sequence becomes long."""

import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxgen
from onnxgen.graph.decoder import DecoderGraph
from tests.fixture_models import FIXTURES

SHORT = 16  # rows of the short table; the long one has 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """``gqa_values`` with its rotary tables behind an ``If`` on the mask's length."""
    source = FIXTURES / "handmade/gqa_values"
    folder = tmp_path_factory.mktemp("long") / "model"
    shutil.copytree(source, folder)
    proto = onnx.load(source / "model.onnx")
    graph = proto.graph
    tables = {t.name: numpy_helper.to_array(t) for t in graph.initializer if "_cache" in t.name}
    kept = [t for t in graph.initializer if t.name not in tables]
    del graph.initializer[:]
    graph.initializer.extend([*kept, numpy_helper.from_array(np.array(SHORT), "switch_at")])
    graph.initializer.append(numpy_helper.from_array(np.array(1), "one"))

    def branch(name, rows):
        values = {k: v[:rows] * (1 if rows == SHORT else 1.5) for k, v in tables.items()}
        nodes = [
            helper.make_node("Constant", [], [f"{k}_{name}"], value=numpy_helper.from_array(v))
            for k, v in values.items()
        ]
        outs = [
            helper.make_tensor_value_info(f"{k}_{name}", TensorProto.FLOAT, v.shape)
            for k, v in values.items()
        ]
        return helper.make_graph(nodes, name, [], outs)

    chosen = helper.make_node(
        "If",
        ["is_long"],
        list(tables),
        then_branch=branch("long", 64),
        else_branch=branch("short", SHORT),
    )
    before = [
        helper.make_node("Shape", ["attention_mask"], ["mask_shape"]),
        helper.make_node("Gather", ["mask_shape", "one"], ["total_now"]),
        helper.make_node("Greater", ["total_now", "switch_at"], ["is_long"]),
        chosen,
    ]
    nodes = [*before, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.save(proto, folder / "model.onnx")
    return folder


def test_both_tables_bound_the_capacity(folder):
    capacity = DecoderGraph.load(folder / "model.onnx").capacity
    assert (capacity.rows, capacity.switch) == (64, SHORT)


def test_a_sequence_never_crosses_from_one_table_to_the_other(folder):  # known problem C2
    expected = json.loads((FIXTURES / "handmade/gqa_values/expected.json").read_text())
    model = onnxgen.load(folder)
    prompt, greedy = expected["prompts"][2], expected["greedy"][2]
    result = model.generate(prompt, max_new_tokens=30, eos_token_id=None)
    room = SHORT - len(prompt) + 1  # the last token is never fed
    assert (list(result.tokens), result.finish_reason) == (greedy[:room], "length")
    long = model.generate([*prompt, *greedy[:10]], max_new_tokens=30, eos_token_id=None)
    assert len(long.tokens) == 30
