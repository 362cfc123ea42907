"""Hostile configs end as their lines say."""

import json
from pathlib import Path

import onnxruntime
import pytest

import onnxgen
from onnxgen import errors
from scripts.attacks import PLACE
from scripts.attacks.configs import CASES
from tests.attacks.test_models import placed

LINES = json.loads((PLACE / "configs/cases.json").read_text())


def test_lines_and_builders_are_the_same() -> None:
    assert [(line["name"], line["tries"], line["must"]) for line in LINES] == [
        (case.name, case.tries, case.must) for case in CASES.values()
    ]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["name"])
def test_hostile_config(
    line: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A library of operators would have to come through here.
    monkeypatch.setattr(onnxruntime.SessionOptions, "register_custom_ops_library", None)
    place = placed(CASES[line["name"]], tmp_path / "model", "configs")
    if line["must"] == "runs":
        assert len(onnxgen.load(place).generate([1, 2, 3], max_new_tokens=3).tokens) == 3
        return
    wanted = getattr(errors, line["must"])
    with pytest.raises(wanted) as caught:
        onnxgen.load(place).generate([1, 2, 3], max_new_tokens=3)
    assert caught.type is wanted or line["must"] == "OnnxgenError"
