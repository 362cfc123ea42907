"""Sizes as model files write them: a number, a list, or one of several sets of names."""

from collections.abc import Collection
from typing import Any

from onnxgen.errors import ModelFileError, UnsupportedModelError

Size = dict[str, int]
Form = tuple[str, ...]  # the names of a size

EXACT: Form = ("height", "width")
EDGE: Form = ("shortest_edge",)
FORMS: tuple[Form, ...] = (
    EXACT,
    EDGE,
    ("shortest_edge", "longest_edge"),
    ("max_height", "max_width"),
)
_MOST = 1_000_000


def shown(value: Any) -> str:
    """``value`` as a message shows it."""
    text = repr(value)
    return text if len(text) < 100 else f"{text[:100]}..."


def read_size(
    value: Any,
    where: str,
    *,
    forms: Collection[Form] = FORMS,
    number: Form | None = EXACT,
    width_first: bool = False,
) -> Size:
    """The size in ``value`` by names, which are one of ``forms``; ``where`` is for messages.

    Args:
        number: which form a single number means; None if the file does not tell.
        width_first: a list is (width, height), as in Donut's old files, else (height, width).

    Raises:
        ModelFileError: no size.
        UnsupportedModelError: a form that is not in ``forms``, or a number that may mean two.
    """
    if isinstance(value, list | tuple):
        if len(value) != 2:
            raise ModelFileError(f"{where} is {shown(value)}", wanted="two numbers")
        sides = [_side(side, where) for side in value]
        value = dict(zip(("width", "height") if width_first else EXACT, sides, strict=True))
    elif not isinstance(value, dict):
        side = _side(value, where)
        if number is None:
            raise UnsupportedModelError(
                f"{where} is {side}, and the class of the file is not known",
                wanted="height and width, or shortest_edge: classes read a number either way",
                do="write the size out in the file",
            )
        value = dict.fromkeys(number, side)
    size = {
        name: _side(side, f"{where}.{name}") for name, side in value.items() if side is not None
    }
    if not any(size.keys() == set(form) for form in forms):
        raise UnsupportedModelError(
            f"{where} has the names {', '.join(map(str, size)) or 'of nothing'}",
            wanted=" or ".join(" + ".join(form) for form in forms),
        )
    return size


def _side(value: Any, where: str) -> int:
    if type(value) is not int or not 1 <= value <= _MOST:
        raise ModelFileError(f"{where} is {shown(value)}", wanted=f"an integer, 1 to {_MOST}")
    return value
