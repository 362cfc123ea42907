"""Graphs that cannot generate are refused with the reason and what to do."""

import onnx
import pytest
from onnx import helper

from onnxgen.errors import UnsupportedModelError
from onnxgen.graph.decoder import DecoderGraph, Mode
from tests.fixture_models import FIXTURES

REFUSED = FIXTURES / "handmade/refused"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("encoder_only", "gives no logits"),
        ("cache_without_present", "past_key_values.0.key"),
        ("rank4_logits", "rank 4"),
        ("string_cache", "type string"),
    ],
)
def test_refusal_names_the_reason(name, reason):  # known problem C8
    with pytest.raises(UnsupportedModelError, match=reason) as caught:
        DecoderGraph.load(REFUSED / name / "model.onnx")
    assert caught.value.do


def test_presents_without_pasts_are_no_cache():
    graph = DecoderGraph.load(REFUSED / "present_without_past/model.onnx")
    assert graph.mode is Mode.NONE
    assert graph.extra_outputs


# known problem S8
@pytest.mark.parametrize("operator", ["BeamSearch", "GreedySearch", "Sampling"])
def test_a_search_within_the_graph_is_never_run(operator, tmp_path):
    proto = onnx.load(FIXTURES / "handmade/gqa_values/model.onnx")
    inputs = ["input_ids", "", "", "", ""]
    node = helper.make_node(operator, inputs, ["sequences"], domain="com.microsoft", name="search")
    proto.graph.node.append(node)
    onnx.save(proto, tmp_path / "model.onnx")
    with pytest.raises(UnsupportedModelError, match=rf"operator {operator} \(node 'search'\)"):
        DecoderGraph.load(tmp_path / "model.onnx")
