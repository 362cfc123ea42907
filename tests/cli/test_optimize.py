"""``onnxgen optimize``: the folder that it writes runs as the model does."""

import json

import onnx
import pytest

import onnxgen
from onnxgen.cli import main
from tests.cli.running import LLAMA
from tests.fixture_models import FIXTURES

MODELS = FIXTURES / "models"


def operators(path) -> set[str]:
    model = onnx.load(path, load_external_data=False)
    return {node.op_type for node in model.graph.node}


def test_a_model_is_written_rewritten(tmp_path, capsys):
    out = tmp_path / "new" / "fast"
    assert main(["optimize", str(LLAMA.folder), str(out)]) == 0
    told = capsys.readouterr().out
    assert "attention to GroupQueryAttention" in told
    assert {path.name for path in out.iterdir()} >= {"model.onnx", "config.json", "tokenizer.json"}
    assert "Softmax" not in operators(out / "model.onnx")
    onnx.checker.check_model(out / "model.onnx")  # nodes in order, among others
    written = onnxgen.load(out, rewrites=False)
    assert written.model.graph.mode == "in_place"
    prompt = [5, 9, 12, 40]
    plain = onnxgen.load(LLAMA.folder, rewrites=False)
    assert written.generate(prompt).tokens == plain.generate(prompt).tokens


@pytest.mark.parametrize("name", ["smolvlm", "bart", "llama-pair", "t5-q8", "genai-llama-pruned"])
def test_layouts_stay(tmp_path, name):
    out = tmp_path / "out"
    assert main(["optimize", str(MODELS / name), str(out)]) == 0
    found, before = onnxgen.inspect(out), onnxgen.inspect(MODELS / name)
    assert found.runs
    assert [s.graph for s in found.sessions] == [s.graph for s in before.sessions]
    assert found.task == before.task
    assert [p.name for p in tmp_path.iterdir()] == ["out"]  # nothing half done beside it


def test_weights_outside_of_the_graph_come_along(tmp_path):
    out = tmp_path / "out"
    source = FIXTURES / "handmade/external_data"
    assert main(["optimize", str(source), str(out)]) == 0
    prompt = json.loads((source / "expected.json").read_text())["prompts"][0]
    answers = [onnxgen.load(path).generate(prompt, max_new_tokens=4) for path in (source, out)]
    assert answers[0].tokens == answers[1].tokens


def test_a_folder_that_is_there_is_left_alone(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert main(["optimize", str(LLAMA.folder), str(tmp_path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
