"""Hostile graphs end as their lines say, and none that is refused reaches ONNX Runtime."""

import json
import shutil
from contextlib import suppress
from pathlib import Path

import onnx
import onnxruntime
import pytest
from onnx import helper

import onnxgen
from onnxgen import errors
from onnxgen.files import resolve
from onnxgen.graph.decoder import DecoderGraph
from onnxgen.graph.encoder import EncoderGraph
from onnxgen.graph.proto import Graph
from onnxgen.runtime.embeddings import Embedder
from onnxgen.runtime.rewriting import prepared
from onnxgen.runtime.session import Engine
from onnxgen.runtime.vision import VisionModel
from onnxgen.tasks.optimizing import optimize
from scripts.attacks import PLACE, Case
from scripts.attacks.models import CASES
from tests.attacks.endings import assert_same, ends
from tests.fixture_models import FIXTURES

LINES = json.loads((PLACE / "models/cases.json").read_text())
# Sound on paper: only ONNX Runtime, or a first run, finds these out.
LATE = {"no_past", "cache_dims_disagree", "logits_width_huge", "deep_bodies"}


def placed(case: Case, folder: Path, kind: str) -> Path:
    """What is to be loaded of an attack, in ``folder``."""
    folder.mkdir()
    if case.kept:
        shutil.copytree(PLACE / kind / case.name, folder, dirs_exist_ok=True)
        return folder
    return case.build(folder)


def test_lines_and_builders_are_the_same() -> None:
    assert_same(LINES, CASES.values())


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["name"])
def test_hostile_graph(line: dict[str, str], tmp_path: Path, monkeypatch) -> None:
    reached = []
    session = onnxruntime.InferenceSession
    monkeypatch.setattr(
        onnxruntime,
        "InferenceSession",
        lambda *given, **options: reached.append(given) or session(*given, **options),
    )
    place = placed(CASES[line["name"]], tmp_path / "model", "models")
    if line["must"] == "runs":
        assert len(onnxgen.load(place).generate([1, 2, 3], max_new_tokens=3).tokens) == 3
        return
    with ends(line):
        onnxgen.load(place).generate([1, 2, 3], max_new_tokens=3)
    assert (not reached) or line["name"] in LATE
    with suppress(getattr(errors, line["must"])):
        onnxgen.inspect(place)


@pytest.mark.parametrize(
    ("model", "graph"),
    [
        ("t5", "encoder_model.onnx"),
        ("t5", "decoder_model_merged.onnx"),
        ("blenderbot", "decoder_with_past_model.onnx"),
        ("gemma3", "onnx/vision_encoder.onnx"),
        ("gemma3", "onnx/embed_tokens.onnx"),
    ],
)
def test_every_way_to_a_session(
    model: str, graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign operator in any of a model's graphs, whoever loads it."""
    folder = tmp_path / "model"
    shutil.copytree(FIXTURES / "models" / model, folder)
    if "with_past" in graph:
        (folder / "decoder_model_merged.onnx").unlink()
    proto = onnx.load(folder / graph)
    taken = proto.graph.input[0].name
    proto.graph.node.insert(0, helper.make_node("Run", [taken], ["held"], domain="evil.corp"))
    onnx.save(proto, folder / graph)
    monkeypatch.setattr(onnxruntime, "InferenceSession", None)
    path = folder / graph
    for way in (
        lambda: onnxgen.load(folder),
        lambda: onnxgen.load(folder, rewrites=False),
        lambda: onnxgen.inspect(folder),
        lambda: optimize(resolve(folder), tmp_path / "out", Engine()),
        lambda: Graph.load(path),
        lambda: DecoderGraph.load(path),
        lambda: EncoderGraph.load(path),
        lambda: prepared(path),
        lambda: Embedder(path),
        lambda: VisionModel(path),
    ):
        with pytest.raises(errors.UnsupportedModelError, match=r"evil\.corp::Run"):
            way()


def test_sessions_are_made_in_two_places_alone() -> None:
    """One for graphs that were read, one for excerpts of them: a third would need the check."""
    package = Path(onnxgen.__file__).parent
    makers = [p.name for p in package.rglob("*.py") if "InferenceSession(" in p.read_text()]
    assert sorted(makers) == ["rewriting.py", "session.py"]
