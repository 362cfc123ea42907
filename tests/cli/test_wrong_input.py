"""Whatever is wrong ends in a clear error of ours, exit code 1 or 2, and never in a traceback."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxgen.cli import main
from onnxgen.runtime import session
from tests.cli.running import LLAMA
from tests.fixture_models import FIXTURES

MODEL = str(LLAMA.folder)
HANDMADE = FIXTURES / "handmade"
Place = Callable[[Path, pytest.MonkeyPatch], list[str]]


def copied(folder: Path, place: Path) -> Path:
    return Path(shutil.copytree(folder, place / "model"))


def generate(*words: str) -> Place:
    return lambda place, patch: ["generate", *words]


def no_decoder(place: Path, patch: pytest.MonkeyPatch) -> list[str]:
    (place / "config.json").write_text("{}")
    return ["generate", str(place), "z"]


def corrupt_graph(place: Path, patch: pytest.MonkeyPatch) -> list[str]:
    graph = copied(LLAMA.folder, place) / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:-1000])
    return ["generate", str(graph.parent), "z"]


def missing_part(place: Path, patch: pytest.MonkeyPatch) -> list[str]:
    folder = copied(HANDMADE / "external_data", place)
    (folder / "model.onnx_data_1").unlink()
    return ["generate", str(folder), "z"]


def broken_config(place: Path, patch: pytest.MonkeyPatch) -> list[str]:
    folder = copied(LLAMA.folder, place)
    (folder / "config.json").write_text("{")
    return ["generate", str(folder), "z"]


def bad_template(text: str) -> Place:
    def place_it(place: Path, patch: pytest.MonkeyPatch) -> list[str]:
        folder = copied(LLAMA.folder, place)
        (folder / "chat_template.jinja").write_text(text)
        return ["chat", str(folder), "-m", "Hi"]

    return place_it


def no_template(place: Path, patch: pytest.MonkeyPatch) -> list[str]:
    folder = copied(LLAMA.folder, place)
    (folder / "chat_template.jinja").unlink()
    return ["chat", str(folder), "-m", "Hi"]


def both_packages(place: Path, patch: pytest.MonkeyPatch) -> list[str]:
    for name in ("onnxruntime", "onnxruntime_gpu"):
        folder = place / f"{name}-1.31.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.31.0\n"
        )
    patch.syspath_prepend(place)
    return ["generate", MODEL, "z"]


def no_cuda(place: Path, patch: pytest.MonkeyPatch) -> list[str]:
    patch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    return ["generate", MODEL, "z", "--device", "cuda"]


def no_package(place: Path, patch: pytest.MonkeyPatch) -> list[str]:
    patch.setattr(session, "_installed", lambda name: False)
    patch.setitem(sys.modules, "onnxruntime", None)
    return ["generate", MODEL, "z"]


@pytest.mark.parametrize(
    ("place_it", "code", "says"),
    [
        pytest.param(generate("no/such/folder", "z"), 1, ["no/such/folder"], id="no folder"),
        pytest.param(no_decoder, 1, ["no decoder graph", "model.onnx"], id="no decoder"),
        pytest.param(corrupt_graph, 1, ["model.onnx", "to do"], id="corrupt graph"),
        pytest.param(missing_part, 1, ["model.onnx_data_1"], id="missing data part"),
        pytest.param(broken_config, 1, ["config.json", "JSON"], id="broken config"),
        pytest.param(generate(f"{MODEL}:q5", "z"), 2, ["q5", "q4"], id="unknown dtype"),
        pytest.param(generate(MODEL, "z", "--dtype", "q4"), 2, ["fp32"], id="absent dtype"),
        pytest.param(generate(MODEL, "z", "-o", "topk=1"), 2, ["'top_k'"], id="unknown option"),
        pytest.param(generate(MODEL, "z", "--num-beams", "0"), 2, ["num_beams"], id="no beams"),
        pytest.param(generate(MODEL, "z", "--device", "tpu"), 2, ["tpu", "cuda"], id="device"),
        pytest.param(no_cuda, 1, ["onnxgen[gpu]"], id="no cuda"),
        pytest.param(generate(MODEL, "z", "--threads", "0"), 2, ["threads is 0"], id="threads"),
        pytest.param(generate(MODEL, "z" * 200), 1, ["200 tokens", "128"], id="too long"),
        pytest.param(generate(MODEL, ""), 2, ["prompt is empty"], id="empty prompt"),
        pytest.param(generate(MODEL, "\udcff"), 1, ["to do"], id="no unicode"),
        pytest.param(
            generate(str(HANDMADE / "gqa_values"), "z"), 1, ["tokenizer.json"], id="no tokenizer"
        ),
        pytest.param(
            generate(str(HANDMADE / "refused/rank4_logits"), "z"), 1, ["rank 4"], id="refused"
        ),
        pytest.param(bad_template("{% for %}"), 1, ["chat template", "line 1"], id="bad template"),
        pytest.param(
            bad_template("{{ raise_exception('no user') }}"), 1, ["no user"], id="template refuses"
        ),
        pytest.param(no_template, 1, ["no chat template", "onnxgen generate"], id="no template"),
        pytest.param(both_packages, 1, ["both onnxruntime", "pip uninstall"], id="both packages"),
        pytest.param(no_package, 1, ["not installed", "onnxgen[cpu]"], id="no package"),
    ],
)
def test_wrong_input(place_it, code, says, tmp_path, monkeypatch, capsys):
    words = place_it(tmp_path, monkeypatch)
    assert main(words) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("onnxgen: error: ")
    assert "Traceback" not in err
    assert [text for text in says if text not in err] == []
    assert all(line.startswith(("  wanted: ", "  to do: ")) for line in err.splitlines()[1:])


@pytest.mark.parametrize("command", ["inspect", "download"])
@pytest.mark.parametrize("place_it", [no_decoder, corrupt_graph, missing_part])
def test_commands_without_a_session_refuse_it_too(command, place_it, tmp_path, monkeypatch, capsys):
    words = [command, place_it(tmp_path, monkeypatch)[1]]
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("onnxgen: error: ")


def test_debugging_shows_the_traceback(monkeypatch, capsys):
    monkeypatch.setenv("ONNXGEN_DEBUG", "1")
    assert main(["generate", "no/such/folder", "z"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "onnxgen: error: " in err


def test_an_error_that_should_not_be_says_where_but_quotes_nothing(monkeypatch, capsys):
    def fail(*_, **__):
        raise KeyError("a secret")

    monkeypatch.setattr("onnxgen.text.tokenizer.Tokenizer.encode", fail)
    assert main(["generate", MODEL, "z"]) == 1
    err = capsys.readouterr().err
    assert "unexpected KeyError in text_generation.py, line " in err
    assert "ONNXGEN_DEBUG=1" in err
    assert "secret" not in err
    assert "Traceback" not in err
