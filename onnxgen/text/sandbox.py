"""Where chat templates run: Jinja's immutable sandbox with a budget.

A template comes with a model and is trusted as little as its weights. The sandbox keeps it away
from Python's insides; variables are plain JSON values, so that no object with methods of its own
gets in, and of the values only texts, lists and dicts have methods. :mod:`onnxgen.text.budget`
bounds what the sandbox does not.

Where Jinja offers no hook, filters stand in the tree: no template can name them. Constants are
not folded, as that would be work before any rendering.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

from jinja2 import Template, nodes, pass_context, pass_eval_context
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, markup_join, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from onnxgen.text import budget
from onnxgen.text.budget import OverBudgetError, check_growth, fits, listed, made, step, weighed

# Filters that look at no more than the outermost list, so that what is in it need not be weighed.
_SHALLOW = {
    *("attr", "batch", "count", "d", "default", "first", "items", "last", "length", "list", "map"),
    *("random", "reject", "rejectattr", "reverse", "safe", "select", "selectattr", "slice"),
}
_LAZY = {"batch", "items", "map", "reject", "rejectattr", "select", "selectattr", "slice"}
_PASSING = {"attr", "d", "default", "first", "last", "random"}  # what they give is not new
_COMPARING = {
    *("in", "==", "eq", "equalto", "!=", "ne", ">", "gt", "greaterthan", "ge", ">="),
    *("<", "lt", "lessthan", "<=", "le"),
}
_UNNEEDED = {"fromkeys", "maketrans"}  # methods that make what has no bounds here
_COUNTED, _MADE, _WEIGHED, _JOINED = "each turn", "what is made", "what is read", "what is joined"


def render(template: Template, variables: dict[str, Any]) -> str:
    """The output of ``template``, made by an :class:`Environment`, within a budget of its own."""
    with budget.budget():
        pieces: list[str] = []
        size = 0
        for piece in template.generate(variables):
            pieces.append(piece)
            size += len(piece)
            fits(size)
        return "".join(pieces)


class Environment(ImmutableSandboxedEnvironment):
    """The environment in which transformers renders chat templates, within the budget."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationBlock, "jinja2.ext.loopcontrols"],
            finalize=_shown,
            optimized=False,
        )
        del self.globals["lipsum"]  # random text in any amount
        self.globals["namespace"] = _Namespace
        for name, function in self.filters.items():
            self.filters[name] = _bounded(name, function)
        for name in _COMPARING:
            self.tests[name] = _comparing(self.tests[name])  # type: ignore[arg-type]
        self.filters |= {_COUNTED: _counted, _MADE: made, _WEIGHED: weighed, _JOINED: _joined}

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """The text that a macro or a block makes."""
        pieces = list(pieces)
        fits(sum(map(len, pieces)))
        text: str = made("".join(pieces))
        return text

    def add_filter(self, name: str, function: Callable[..., Any]) -> None:
        """Makes ``function`` a filter, within the budget."""
        self.filters[name] = _bounded(name, function)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Budgeted().visit(super()._parse(source, name, filename))
        tree.set_environment(self)
        return tree

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may see this attribute; numbers and bytes have none for it."""
        if isinstance(obj, (int, float, bytes)) or attr in _UNNEEDED:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """``obj[argument]``; a tuple is weighed before it is hashed."""
        return super().getitem(obj, weighed(argument))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Calls what the template calls, if what goes in and what comes out is not too much."""
        step()
        if isinstance(__obj, (Macro, LoopContext)) or __obj is _Namespace:  # counted themselves
            return super().call(__context, __obj, *args, **kwargs)
        method = getattr(__obj, "__wrapped__", __obj)  # str.format is wrapped by the sandbox
        owner = getattr(method, "__self__", None)
        name = method.__name__ if isinstance(owner, str) else ""
        if name == "join" and args:
            args = (listed(args[0]), *args[1:])
            check_growth(name, args[0], [owner], {})
        else:
            read = owner if isinstance(owner, (str, list, tuple)) else None
            check_growth(name, read, list(args), kwargs)
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(owner, dict):  # what it gives is not new
            return result
        return made(result, budget.ITEM_BYTES if isinstance(result, list) else 0)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Operators whose results can be much larger than what they are given."""
        if isinstance(left, (str, bytes)) and operator == "%":
            args = list(right) if isinstance(right, tuple) else [right]
            check_growth("format", left, args, {})
        elif isinstance(left, int) and isinstance(right, int):
            bits = {"*": left.bit_length() + right.bit_length(), "**": left.bit_length() * right}
            if bits.get(operator, 0) > budget.MAX_BITS:
                raise OverBudgetError("a huge number")
        elif operator == "*":
            for items, times in ((left, right), (right, left)):
                if isinstance(items, (str, bytes, list, tuple)) and isinstance(times, int):
                    text = isinstance(items, (str, bytes))
                    fits(len(items) * times, budget.MAX_CHARS if text else budget.MAX_ITEMS)
        return made(super().call_binop(context, operator, left, right))


class GenerationBlock(Extension):
    """``{% generation %}`` marks what the model says, for training; its content is just shown."""

    tags = {"generation"}  # noqa: RUF012  (as in the base class)

    def parse(self, parser: Parser) -> nodes.Node:
        """The block as a scope: what it sets is unknown after it."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Namespace(Namespace):
    """Jinja's, which can change after it was weighed, so it shows nothing of what it holds."""

    def __repr__(self) -> str:
        return "<Namespace>"


class _Budgeted(NodeTransformer):
    """Puts the budget's filters where Jinja offers no hook."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.iter = _filter(_COUNTED, node.iter, node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filter(_JOINED, nodes.Tuple(node.nodes, "load", lineno=node.lineno), node.lineno)

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if node.filter is None:
            node.filter = _filter(_MADE, None, node.lineno)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filter(_MADE, node, node.lineno) if isinstance(node.arg, nodes.Slice) else node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _weighed(node.expr)
        for operand in node.ops:
            operand.expr = _weighed(operand.expr)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.key = _weighed(node.key)
        return node


def _filter(name: str, node: Any, line: int) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=line)


def _weighed(node: nodes.Expr) -> nodes.Expr:
    return node if isinstance(node, nodes.Const) else _filter(_WEIGHED, node, node.lineno)


def _counted(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        step()
        yield item


@pass_context
def _shown(context: Context, value: Any) -> Any:
    """``value``, as it goes into the output."""
    del context  # asked for so that no constant is shown while the template is compiled
    step()
    return weighed(value)


@pass_eval_context
def _joined(context: nodes.EvalContext, values: tuple[Any, ...]) -> Any:
    """``~``"""
    weighed(values)
    return made((markup_join if context.autoescape else str_join)(values))


def _comparing(function: Callable[..., bool]) -> Callable[..., bool]:
    @wraps(function)
    def comparing(*values: Any) -> bool:
        weighed(values)
        return function(*values)

    return comparing


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The filter ``function``, refused before it makes too much."""
    position = int(hasattr(function, "jinja_pass_arg"))  # 1: a context comes first

    @wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        step()
        before, given = args[:position], list(args[position:])
        if given and name not in _LAZY:
            given[0] = listed(given[0])
        if given:
            check_growth(name, None if name in _SHALLOW else given[0], given[1:], kwargs)
        result = function(*before, *given, **kwargs)
        return result if name in _PASSING else made(result)

    return bounded
