"""What a template may take: steps, time, memory, and the size of each thing that it makes.

A single operation cannot be interrupted, so each is judged before it begins: by what it would
read, where parts that stand in several places count each time (a list that holds another twice,
and so on sixty times over, is small, but writing it out is not), and by what it would make.
"""

import re
import sys
import time
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Set, ValuesView
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, islice
from typing import Any, NamedTuple

from jinja2 import TemplateRuntimeError

MAX_STEPS = 5_000_000  # turns of loops, calls, filters, outputs
MAX_SECONDS = 5.0
MAX_BYTES = 2**29  # of all that it makes together
MAX_CHARS = 16 * 2**20  # of a text, and of what one operation reads
MAX_ITEMS = 2**20  # of a list
MAX_DEPTH = 100  # of lists and dicts within each other
MAX_BITS = 2**16  # of an integer
_MAX_SLOW = 2**16  # characters for what takes a microsecond for each, or more with their number
ITEM_BYTES = 64  # of a small text or number
_ITEM = 16  # characters that an item counts for, beside its own
_SCALARS = (int, float, bool, type(None))


class OverBudgetError(TemplateRuntimeError):
    """A template takes more than its budget; the message says of what."""


class _Budget:
    """What is left for one rendering."""

    def __init__(self, steps: int) -> None:
        self._steps, self._bytes = steps, MAX_BYTES
        self._end = time.monotonic() + MAX_SECONDS

    def step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise OverBudgetError(f"more than {MAX_STEPS} steps")
        if time.monotonic() > self._end:
            raise OverBudgetError(f"more than {MAX_SECONDS:.0f} seconds")

    def take(self, size: int) -> None:
        self._bytes -= size
        if self._bytes < 0:
            raise OverBudgetError(f"more than {MAX_BYTES} bytes in all")


_BUDGET: ContextVar[_Budget | None] = ContextVar("budget", default=None)


@contextmanager
def budget(steps: int | None = None) -> Iterator[None]:
    """A budget of its own for what is done within, of MAX_STEPS unless told."""
    token = _BUDGET.set(_Budget(MAX_STEPS if steps is None else steps))
    try:
        yield
    finally:
        _BUDGET.reset(token)


def step() -> None:
    """One step of work."""
    if (own := _BUDGET.get()) is not None:
        own.step()


def fits(size: int, limit: int | None = None) -> None:
    """OverBudgetError for a text of more than ``limit`` characters, or a list of as many items."""
    limit = MAX_CHARS if limit is None else limit
    if size > limit:
        raise OverBudgetError(f"a text or list of more than {limit} characters or items")


def made(value: Any, each: int = 0) -> Any:
    """``value``, which an operation just made, with ``each`` bytes for each of its items."""
    if isinstance(value, (str, bytes, list, tuple, dict)):
        fits(len(value), MAX_CHARS if isinstance(value, (str, bytes)) else MAX_ITEMS)
        if (own := _BUDGET.get()) is not None:
            own.take(sys.getsizeof(value) + each * len(value))
    elif isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise OverBudgetError("a huge number")
    return value


class Weight(NamedTuple):
    """How much some values are together; ``number`` is the largest integer in them."""

    chars: int
    items: int
    depth: int
    number: int


def weigh(values: Iterable[Any]) -> Weight:
    """The weight of ``values`` when each part is written out, or compared, where it stands.

    Raises:
        OverBudgetError: it is too much.
    """
    chars = items = number = deepest = 0
    open_: list[Iterator[Any]] = [iter(values)]
    while open_:
        for item in open_[-1]:
            items += 1
            if isinstance(item, (str, bytes)):
                chars += len(item)
            elif isinstance(item, _SCALARS):
                if isinstance(item, int):
                    number = max(number, abs(item))
            elif (inner := _parts(item)) is not None:
                open_.append(inner)
                deepest = max(deepest, len(open_) - 1)
                if deepest > MAX_DEPTH:
                    raise OverBudgetError(f"lists more than {MAX_DEPTH} deep")
                break
            fits(chars + _ITEM * items)
        else:
            open_.pop()
    return Weight(chars, items, deepest, number)


def _parts(value: Any) -> Iterator[Any] | None:
    """What ``value`` holds, None where it shows nothing of it."""
    if isinstance(value, Mapping):
        return chain(value.keys(), value.values())
    if isinstance(value, (list, tuple, Set, KeysView, ValuesView, ItemsView)):
        return iter(value)
    return None


def weighed(value: Any) -> Any:
    """``value``, if it is not too much to be read."""
    if not isinstance(value, (str, *_SCALARS)):
        step()
        weigh([value])
    return value


def listed(items: Any) -> Any:
    """``items`` to be looked at before they are used, which an iterator does not allow."""
    if isinstance(items, (Iterator, range)):
        return made(list(islice(items, MAX_ITEMS + 1)), ITEM_BYTES)
    return items


_NUMBER = re.compile(r"\d+")
_BREAKS = "\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"
_COMPUTED = re.compile(r"\{[^{}]*\{")  # a width that is a field itself
_STARRED = re.compile(r"%[^%a-zA-Z]*\*")


def check_growth(name: str, value: Any, args: list[Any], named: Mapping[str, Any]) -> None:
    """Refuses the filter or method ``name`` of ``value`` where it would make or take too much."""
    given = [*args, *named.values()]
    whole, weight = weigh([value]), weigh(given)
    text = value if isinstance(value, str) else ""
    match name:
        case "center" | "ljust" | "rjust" | "zfill":
            fits(weight.number)
        case "batch" | "slice":
            fits(weight.number, MAX_ITEMS)
        case "indent" | "expandtabs":
            fits((weight.number + weight.chars) * (sum(map(text.count, _BREAKS)) + 1))
        case "replace" if given:
            text, old = str(value), str(args[0] if args else named.get("old", ""))
            fits(len(text) + text.count(old) * max(len(str(v)) for v in given))
        case "join":
            fits(whole.items * weight.chars + whole.chars)
        case "translate" if args and isinstance(args[0], dict):
            fits(len(text) * max((len(str(v)) for v in args[0].values()), default=0))
        case "split" | "rsplit" if args and isinstance(args[0], str) and args[0]:
            fits(text.count(args[0]) if len(given) < 2 else 0, MAX_ITEMS)
        case "split" | "rsplit" if not given:
            fits(len(text) // 2, MAX_ITEMS)
        case "splitlines":
            fits(sum(map(text.count, _BREAKS)), MAX_ITEMS)
        case "tojson":
            if max(weight.chars, weight.number) > 100:
                raise OverBudgetError("an indent of more than 100")
            fits(whole.items * whole.depth * (weight.chars + weight.number) + whole.chars)
        case "round" if weight.number > 1000:
            raise OverBudgetError("a huge number")
        case "sum" if any(isinstance(v, (list, tuple)) for v in given):
            fits(whole.items**2)  # each sum is a list of its own
        case "format" | "format_map":
            _check_format(str(value), given, weight)
        case "urlize" | "striptags" | "unescape" | "wordwrap" | "pprint" | "xmlattr" | "title":
            fits(whole.chars + _ITEM * (whole.items - 1), _MAX_SLOW)
            fits(weight.chars, 1000)


def _check_format(text: str, given: list[Any], weight: Weight) -> None:
    for number in _NUMBER.findall(text):
        fits(int(number[:12]))
    if _COMPUTED.search(text.replace("{{", "")):
        raise OverBudgetError("a huge number: a width that is computed")
    if _STARRED.search(text):
        fits(weight.number)
    longest = max((weigh([value]).chars for value in given), default=0)
    fits(len(text) + max(text.count("%"), text.count("{")) * longest)
