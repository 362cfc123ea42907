"""Hostile graphs end as their lines say, and none that is refused reaches ONNX Runtime."""

import json
import shutil
from contextlib import suppress
from pathlib import Path

import onnxruntime
import pytest

import onnxgen
from onnxgen import errors
from scripts.attacks import PLACE, Case
from scripts.attacks.models import CASES

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
    assert [(line["name"], line["tries"], line["must"]) for line in LINES] == [
        (case.name, case.tries, case.must) for case in CASES.values()
    ]


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
    wanted = getattr(errors, line["must"])
    with pytest.raises(wanted) as caught:
        onnxgen.load(place).generate([1, 2, 3], max_new_tokens=3)
    assert caught.type is wanted or line["must"] == "OnnxgenError"
    assert (not reached) or line["name"] in LATE
    with suppress(wanted):
        onnxgen.inspect(place)
