"""``onnxgen bench``: what is measured is told, in a table, as JSON and as a picture."""

import json

import pytest

from onnxgen.cli import main
from tests.cli.loaded import keep
from tests.cli.running import LLAMA
from tests.fixture_models import FIXTURES

FEW = ["--new-tokens", "6", "--repeats", "2"]


@pytest.fixture(autouse=True)
def _loaded_once(monkeypatch):
    keep(monkeypatch)


def test_a_line_for_each_length_and_number_of_rows(capsys):
    words = ["--prompt-tokens", "8", "20", "--rows", "1", "3", *FEW]
    assert main(["bench", str(LLAMA.folder), *words]) == 0
    out, err = capsys.readouterr()
    head, *rows, peak = out.splitlines()
    assert [row.split()[:2] for row in rows] == [["8", "1"], ["20", "1"], ["8", "3"], ["20", "3"]]
    assert head.split()[:2] == ["prompt", "rows"]
    assert peak.startswith("peak memory ")
    assert err == ""


def test_the_numbers_are_those_of_the_times(capsys):
    assert main(["bench", str(LLAMA.folder), "--prompt-tokens", "10", "--json", *FEW]) == 0
    speed, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert speed["prompt_speed"] == pytest.approx(10 / speed["first_token_ms"] * 1000)
    p50, p90, p99 = speed["step_ms"]
    assert 0 < p50 <= p90 <= p99
    assert speed["decode_speed"] == pytest.approx(1000 / p50, rel=0.2)
    assert last["peak_memory_bytes"] > 10_000_000


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--rows", "0"], 2, "rows are [0]"),
        (["--new-tokens", "1"], 2, "new tokens are 1"),
        (["--prompt-tokens", "100000"], 1, "of 100000 tokens"),
    ],
)
def test_wrong_numbers(capsys, words, code, says):
    assert main(["bench", str(LLAMA.folder), *words]) == code
    assert says in capsys.readouterr().err


def test_models_of_other_tasks(capsys):
    assert main(["bench", str(FIXTURES / "models/whisper")]) == 2
    assert "no text model" in capsys.readouterr().err


def test_a_picture(tmp_path, capsys):
    path = tmp_path / "speeds.svg"
    words = ["--prompt-tokens", "8", "20", "--plot", str(path), *FEW]
    assert main(["bench", str(LLAMA.folder), *words]) == 0
    assert "decoded tokens a second" in path.read_text()
