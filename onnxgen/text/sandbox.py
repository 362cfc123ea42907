"""Where chat templates run: Jinja's immutable sandbox with a budget.

A template comes with a model and is trusted as little as its weights. The sandbox keeps it away
from Python's insides; variables are plain JSON values, so that no object with methods of its own
gets in. The budget bounds what the sandbox does not: steps (turns of loops, calls, filters), time,
and the size of whatever operators, calls, filters and blocks make.

Not bounded: one single operation. The budget is looked at between operations, so sorting one long
list is not interrupted, and writing out lists that hold each other over and over may take long and
much memory. A server that takes templates from its clients renders in a process of its own.
"""

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextvars import ContextVar
from functools import wraps
from typing import Any

from jinja2 import Template, TemplateRuntimeError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_CHARS = 16 * 2**20  # of a text that a template may make
MAX_ITEMS = 2**20  # of a list
MAX_STEPS = 5_000_000
MAX_SECONDS = 20.0
MAX_BITS = 2**16  # of an integer


class OverBudgetError(TemplateRuntimeError):
    """A template takes more than its budget; the message says of what."""


class _Budget:
    """What is left for one rendering."""

    def __init__(self) -> None:
        self._steps = MAX_STEPS
        self._end = time.monotonic() + MAX_SECONDS

    def step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise OverBudgetError(f"more than {MAX_STEPS} steps")
        if time.monotonic() > self._end:
            raise OverBudgetError(f"more than {MAX_SECONDS:.0f} seconds")


_BUDGET: ContextVar[_Budget | None] = ContextVar("budget", default=None)


def render(template: Template, variables: dict[str, Any]) -> str:
    """The output of ``template``, made by an :class:`Environment`, within a budget of its own."""
    token = _BUDGET.set(_Budget())
    try:
        pieces: list[str] = []
        size = 0
        for piece in template.generate(variables):
            pieces.append(piece)
            size += len(piece)
            _fits(size)
        return "".join(pieces)
    finally:
        _BUDGET.reset(token)


class Environment(ImmutableSandboxedEnvironment):
    """The environment in which transformers renders chat templates, within the budget."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationBlock, "jinja2.ext.loopcontrols"],
        )
        del self.globals["lipsum"]  # random text in any amount
        for name, function in self.filters.items():
            self.filters[name] = _bounded(name, function)
        self.filters[_COUNTED] = _counted
        self.filters[_SIZED] = _sized

    def add_filter(self, name: str, function: Callable[..., Any]) -> None:
        """Makes ``function`` a filter, within the budget."""
        self.filters[name] = _bounded(name, function)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Budgeted().visit(super()._parse(source, name, filename))
        tree.set_environment(self)
        return tree

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Calls what the template calls; texts' methods only if their result fits."""
        _step()
        method = getattr(__obj, "__wrapped__", __obj)  # str.format is wrapped by the sandbox
        if isinstance(owner := getattr(method, "__self__", None), str):
            if method.__name__ == "join" and args:
                args = (_list(args[0]), *args[1:])
                _growth("join", args[0], [owner])
            else:
                _growth(method.__name__, owner, [*args, *kwargs.values()])
        return _sized(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Operators whose results can be much larger than what they are given."""
        if isinstance(left, str) and operator == "%":
            _growth("format", left, right if isinstance(right, tuple) else [right])
        elif isinstance(left, int) and isinstance(right, int):
            bits = {"*": left.bit_length() + right.bit_length(), "**": left.bit_length() * right}
            if bits.get(operator, 0) > MAX_BITS:
                raise OverBudgetError("a huge number")
        elif operator == "*":
            for items, times in ((left, right), (right, left)):
                if isinstance(items, (str, list, tuple)) and isinstance(times, int):
                    _fits(len(items) * times, MAX_CHARS if isinstance(items, str) else MAX_ITEMS)
        return _sized(super().call_binop(context, operator, left, right))


class GenerationBlock(Extension):
    """``{% generation %}`` marks what the model says, for training; its content is just shown."""

    tags = {"generation"}  # noqa: RUF012  (as in the base class)

    def parse(self, parser: Parser) -> nodes.Node:
        """The block as a scope: what it sets is unknown after it."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


_COUNTED, _SIZED = "each turn", "result"  # no template can write filters with a space


class _Budgeted(NodeTransformer):
    """Puts the budget's filters where Jinja offers no hook: loops, ``~`` and set blocks."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.iter = _filter(_COUNTED, node.iter, node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        return _filter(_SIZED, self.generic_visit(node), node.lineno)

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if node.filter is None:
            node.filter = _filter(_SIZED, None, node.lineno)
        return node


def _filter(name: str, node: Any, line: int) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=line)


def _counted(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        _step()
        yield item


def _step() -> None:
    budget = _BUDGET.get()
    if budget is not None:  # None while the compiler folds constants
        budget.step()


def _fits(size: int, limit: int | None = None) -> None:
    limit = MAX_CHARS if limit is None else limit
    if size > limit:
        raise OverBudgetError(f"a text or list of more than {limit} characters or items")


def _sized(value: Any) -> Any:
    if isinstance(value, (str, bytes)):
        _fits(len(value))
    elif isinstance(value, (list, tuple)):
        _fits(len(value), MAX_ITEMS)
    return value


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The filter ``function``, refused before it makes too much."""
    position = int(hasattr(function, "jinja_pass_arg"))  # 1: a context comes first

    @wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        _step()
        before, given = args[:position], list(args[position:])
        if name == "join" and given:
            given[0] = _list(given[0])
        if given:
            _growth(name, given[0], [*given[1:], *kwargs.values()])
        return _sized(function(*before, *given, **kwargs))

    return bounded


def _list(items: Any) -> Any:
    """``items`` to be looked at before they are used, which an iterator does not allow."""
    return list(items) if isinstance(items, Iterator) else items


_NUMBER = re.compile(r"\d+")


def _growth(name: str, value: Any, given: Iterable[Any]) -> None:
    """Checks a bound of what the filter or method ``name`` makes of ``value``."""
    given = list(given)
    sizes = [len(v) if isinstance(v, str) else v for v in given if isinstance(v, (str, int))]
    largest, text = max(sizes, default=0), value if isinstance(value, str) else ""
    match name:
        case "center" | "ljust" | "rjust" | "zfill":
            _fits(largest)
        case "batch" | "slice":
            _fits(largest, MAX_ITEMS)
        case "indent" | "expandtabs":
            _fits(largest * (text.count("\n") + text.count("\t") + 1))
        case "wordwrap":
            _fits(max((len(v) for v in given if isinstance(v, str)), default=1) * len(text))
        case "replace" if given:
            pieces = text.count(str(given[0]))
            _fits(pieces * max(len(v) for v in (str(v) for v in given[:2])))
        case "join" if isinstance(value, Collection):
            _fits(len(value) * largest + sum(len(v) for v in value if isinstance(v, str)))
        case "translate" if given and isinstance(given[0], dict):
            _fits(len(text) * max((len(str(v)) for v in given[0].values()), default=0))
        case "tojson" if largest > 100:
            raise OverBudgetError("an indent of more than 100")
        case "format" | "format_map":
            for number in _NUMBER.findall(text):
                _fits(int(number[:12]))
            if "*" in text or text.count("{") > text.count("}") or ":{" in text:
                _fits(largest)
