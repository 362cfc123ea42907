"""Hostile names end as their lines say, and nothing is asked for over the network."""

import json
import socket
from pathlib import Path

import pytest

import onnxgen
from onnxgen import errors
from scripts.attacks import PLACE
from scripts.attacks.models import decoder, put
from scripts.attacks.names import CASES, NAMES

LINES = json.loads((PLACE / "names/cases.json").read_text())


def test_lines_and_builders_are_the_same() -> None:
    assert [(line["name"], line["tries"], line["must"]) for line in LINES] == [
        (case.name, case.tries, case.must) for case in CASES.values()
    ]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["name"])
def test_hostile_name(
    line: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, decoder())
    monkeypatch.setattr(socket, "create_connection", None)
    monkeypatch.setattr(socket.socket, "connect", None)
    given = dict(NAMES[line["name"]])
    given["model"] = given["model"].replace("{folder}", str(tmp_path))
    wanted = getattr(errors, line["must"])
    with pytest.raises(wanted) as caught:
        onnxgen.load(**given)
    assert caught.type is wanted or line["must"] == "OnnxgenError"
