"""Hostile configs end as their lines say."""

import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import onnxruntime
import pytest

import onnxgen
from onnxgen import errors
from scripts.attacks import PLACE
from scripts.attacks.configs import CASES, PROCESSORS
from scripts.fuzz import use
from tests.attacks.endings import assert_same, ends
from tests.attacks.test_models import placed

LINES = json.loads((PLACE / "configs/cases.json").read_text())
TEXTS = [line for line in LINES if line["name"] not in PROCESSORS]
SENSES = [line for line in LINES if line["name"] in PROCESSORS]
MEMORY, SECONDS = 1 << 30, 10  # that a hostile processor may take, beside what the process has


def test_lines_and_builders_are_the_same() -> None:
    assert_same(LINES, CASES.values())


@pytest.mark.parametrize("line", TEXTS, ids=lambda line: line["name"])
def test_hostile_config(
    line: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A library of operators would have to come through here.
    monkeypatch.setattr(onnxruntime.SessionOptions, "register_custom_ops_library", None)
    place = placed(CASES[line["name"]], tmp_path / "model", "configs")
    if line["must"] == "runs":
        assert len(onnxgen.load(place).generate([1, 2, 3], max_new_tokens=3).tokens) == 3
        return
    with ends(line):
        onnxgen.load(place).generate([1, 2, 3], max_new_tokens=3)


def test_an_end_token_that_cannot_come_is_told(tmp_path: Path) -> None:
    place = placed(CASES["generation_eos_beyond"], tmp_path / "model", "configs")
    with pytest.warns(UserWarning, match=r"eos_token_id is \[50256\].*none of these ends"):
        onnxgen.load(place).generate([1, 2, 3], max_new_tokens=3)


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Little may be allocated within; a file that asks for gigabytes ends in another error."""
    import PIL.Image  # noqa: F401 - its libraries are no part of the request

    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    held = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("line", SENSES, ids=lambda line: line["name"])
def test_hostile_processor(line: dict[str, str], tmp_path: Path, little_memory: None) -> None:
    place = placed(CASES[line["name"]], tmp_path / "model", "configs")
    start = time.monotonic()
    with ends(line) as caught:
        use(onnxgen.load(place, threads=1))
    assert time.monotonic() - start < SECONDS
    assert caught.type is not errors.OutOfMemoryError
