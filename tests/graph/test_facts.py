"""The facts that the inspector reads equal those that each hand-written graph was built with."""

import onnx
import pytest
from onnx import helper

from onnxgen.graph.decoder import DecoderGraph, Mode
from onnxgen.graph.lengths import Lengths
from tests.fixture_models import FIXTURES, found

LENGTHS = {
    "values": Lengths.VALUES,
    "mask_length": Lengths.MASK_LENGTH,
    "past_length": Lengths.PAST_LENGTH,
    "host": Lengths.HOST,
    "positions": Lengths.POSITIONS,
    None: None,
}


@pytest.mark.parametrize("fixture", found("handmade"), ids=lambda f: f.name)
def test_facts_of_handmade_graphs(fixture):  # known problems C9, C19, L9
    graph = fixture.facts()["decoder"]
    keys = sorted((s for s in graph.caches if s.kind != "value"), key=lambda s: s.layer)
    values = sorted((s for s in graph.caches if s.kind != "key"), key=lambda s: s.layer)
    hidden = {
        "mode": str(graph.mode),
        "lengths": {v: k for k, v in LENGTHS.items()}[graph.lengths],
        "ragged": graph.ragged,
        "layers": len({s.layer for s in graph.caches}),
        "states": len(graph.states),
        "capacity": graph.capacity.rows,
        "logits": str(graph.logits_kind),
    }
    facts = fixture.expected["facts"]
    assert {k: v for k, v in hidden.items() if k in facts} == {
        k: v for k, v in facts.items() if k in hidden
    }
    assert [s.input for s in keys] != [] or graph.mode is Mode.NONE
    assert len({s.output for s in graph.slots}) == len(graph.slots)
    if fixture.folder.name not in {"packed_key_value", "packed_past", "static_scatter"}:
        assert [_width(s) for s in keys] == facts["key_size"][: len(keys)]
        assert [_width(s) for s in values] == facts["value_size"][: len(values)]


def _width(slot):
    """D: the axis that is neither batch, heads nor sequence; Bloom's keys have it before P."""
    return slot.sizes[1] if slot.seq_axis == len(slot.sizes) - 1 else slot.sizes[-1]


def test_window_of_the_layer_that_has_one():
    graph = DecoderGraph.load(FIXTURES / "handmade/gqa_window/model.onnx")
    assert {(s.layer, s.window) for s in graph.caches} == {(0, 5), (1, None)}


def test_a_view_behind_the_attention_does_not_hide_its_attributes(tmp_path):
    """The present leaves through two transposes; the window is still that of the attention."""
    proto = onnx.load(FIXTURES / "handmade/gqa_window/model.onnx")
    graph = proto.graph
    (node,) = [n for n in graph.node if "present.0.key" in n.output]
    node.output[list(node.output).index("present.0.key")] = "inner"
    graph.node.extend(
        helper.make_node("Transpose", [source], [target], perm=[0, 2, 1, 3])
        for source, target in [("inner", "turned"), ("turned", "present.0.key")]
    )
    onnx.save(proto, tmp_path / "model.onnx")
    slots = {s.input: s for s in DecoderGraph.load(tmp_path / "model.onnx").caches}
    assert slots["past_key_values.0.key"].window == 5
    assert slots["past_key_values.0.key"].seq_axis == 2
