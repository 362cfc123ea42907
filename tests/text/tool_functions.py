"""Functions as a user offers them to a model: sound ones and ones that no schema can describe."""

from typing import Any, Literal, Optional, Union


def weather(city: str, unit: str = "C") -> float:
    """
    The temperature in a city.

    Args:
        city: Where to look,
            for example "Paris"
        unit: Of the answer (choices: ["C", "F"])

    Returns:
        The temperature.
    """


def search(query: str, limit: int = 5, exact: bool = False):
    """Looks things up.

    Args:
        query: What to look for.
        limit: At most so many results.

        exact: Whether words
          must match
          as they are.

    Raises:
        KeyError: nothing found.
    """


def everything(
    a: Optional[int],  # noqa: UP045
    b: list[str],
    c: dict[str, float],
    d: dict,
    e: list,
    f: Union[str, int],  # noqa: UP007
    g: int | float | None,
    h: list[int] | dict[str, bool],
    i: Literal["x", "y"],
    j: Literal[1, "one", None],
    k: Any,
    m: tuple[int, str],
    n: "list[list[bool]]",
    o: object,
    p: None,
    q: Optional[list[Optional[int]]] = None,  # noqa: UP045
) -> dict[str, list[int]]:
    """Takes every kind of type.

    Second paragraph of the description.

    Args:
        a: A
        b: B
        c: C (choices: ["1", " 2 "])
        d: D (CHOICES: ["x"])
        e: E: with a colon
        f: F
        g: G
        h: H
        i: I
        j: J
        k: K (not choices: really)
        m: M
        n: N
        o: O
        p: P
        q: Q
    Returns:
        A dict
        of lists
    """


def nothing():
    """Does nothing."""


def only_returns() -> str:
    """Says something.

    Returns:
        What it says. Raises: never.
    """


def inline_sections(x: int):
    """Text with Args: inside the line.

    Args:
        x: The x.
    """


def no_docstring(x: int):
    pass


def no_hint(x):
    """No hint.

    Args:
        x: Something.
    """


def not_described(x: int, y: int):
    """Does not describe all.

    Args:
        x: Something.
    """


def typed_description(x: int):
    """Names types in the docstring.

    Args:
        x (int): Something.
    """


def no_arguments_section(x: int):
    """Has no section of arguments."""


def bad_choices(x: str):
    """Choices that are no JSON.

    Args:
        x: One of (choices: [a, b])
    """


def open_tuple(x: tuple[int, ...]):
    """A tuple of any length.

    Args:
        x: Numbers.
    """


def tuple_of_one(x: tuple[int]):
    """A tuple of one.

    Args:
        x: Number.
    """


def a_set(x: set[int]):
    """A set.

    Args:
        x: Numbers.
    """


def odd_literal(x: Literal[b"x"]):
    """A literal of bytes.

    Args:
        x: Bytes.
    """


def unknown_name(x: "Missing"):  # noqa: F821
    """A hint that names nothing.

    Args:
        x: Something.
    """


def union_with_any(x: Union[list[int], Any]):  # noqa: UP007
    """A union with Any.

    Args:
        x: Something.
    """


ALL = [
    weather,
    search,
    everything,
    nothing,
    only_returns,
    inline_sections,
    no_docstring,
    no_hint,
    not_described,
    typed_description,
    no_arguments_section,
    bad_choices,
    open_tuple,
    tuple_of_one,
    a_set,
    odd_literal,
    unknown_name,
    union_with_any,
]
