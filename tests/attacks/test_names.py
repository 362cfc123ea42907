"""Hostile names end as their lines say, and nothing is asked for over the network."""

import json
import socket
from pathlib import Path

import pytest

import onnxgen
from scripts.attacks import PLACE
from scripts.attacks.models import decoder, put
from scripts.attacks.names import CASES, NAMES
from tests.attacks.endings import assert_same, ends

LINES = json.loads((PLACE / "names/cases.json").read_text())


def test_lines_and_builders_are_the_same() -> None:
    assert_same(LINES, CASES.values())


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["name"])
def test_hostile_name(
    line: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, decoder())
    empty = tmp_path / "some" / "where" / "else"  # names may be paths, and lead up from here
    empty.mkdir(parents=True)
    monkeypatch.chdir(empty)
    monkeypatch.setattr(socket, "create_connection", None)
    monkeypatch.setattr(socket.socket, "connect", None)
    given = dict(NAMES[line["name"]])
    given["model"] = given["model"].replace("{folder}", str(tmp_path))
    with ends(line):
        onnxgen.load(**given)
