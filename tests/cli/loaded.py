"""Models that are loaded once for many calls of the command in this process."""

from functools import cache
from typing import Any

import pytest

import onnxgen

_load = onnxgen.load


@cache
def _kept(model: str, options: tuple[tuple[str, Any], ...]) -> Any:
    return _load(model, **dict(options))


def keep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command takes a model again that an earlier call has loaded in the same way."""

    def load(model: str, **options: Any) -> Any:
        return _kept(model, tuple(sorted(options.items())))

    monkeypatch.setattr(onnxgen, "load", load)
