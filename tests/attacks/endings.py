"""How attacks end, by the lines of their ``cases.json``."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from onnxgen import errors


def assert_same(lines: Iterable[dict[str, str]], cases: Iterable[Any]) -> None:
    """The lines are those of what builds the attacks."""
    assert [(line["name"], line["tries"], line["must"]) for line in lines] == [
        (case.name, case.tries, case.must) for case in cases
    ]


@contextmanager
def ends(line: dict[str, str]) -> Iterator[Any]:
    """What is within ends in the error of ``line``; pytest's account of it."""
    wanted = getattr(errors, line["must"])
    with pytest.raises(wanted) as caught:
        yield caught
    assert caught.type is wanted or line["must"] == "OnnxgenError"
