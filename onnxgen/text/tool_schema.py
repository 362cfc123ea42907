"""Python functions as the JSON schemas in which models are told of tools.

The rules are transformers': types come from the hints, texts from a Google-style docstring, and a
hint or a text that is missing is an error, as a model would have to guess.
"""

import inspect
import json
import re
import types
from collections.abc import Callable
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from onnxgen.errors import OptionError

Schema = dict[str, Any]

_SIMPLE: dict[Any, Schema] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    types.NoneType: {"type": "null"},
    Any: {},
}
_MEDIA = {("PIL.Image", "Image"): "image", ("torch", "Tensor"): "audio"}
_CHOICES = re.compile(r"\(choices:\s*(.*?)\)\s*$", re.IGNORECASE)


def tool_schema(function: Callable[..., Any]) -> Schema:
    """The schema of ``function``: name, description, parameters, and what it returns.

    The docstring needs a description of each argument under ``Args:``, which may end in
    ``(choices: ["a", "b"])``; ``Returns:`` is optional.

    Raises:
        OptionError: no docstring, an argument without hint or description, a hint that has no
            schema, choices that are no JSON list of texts.
    """
    name = function.__name__
    doc = (inspect.getdoc(function) or "").strip()
    if not doc:
        raise OptionError(f"the tool {name} has no docstring", wanted="what it does, and Args:")
    described = _arguments(_block(doc, "Args", until=("Returns", "Raises")) or "")
    parameters = _parameters(function)
    properties = parameters["properties"]
    returned = properties.pop("return", None)
    for argument, schema in properties.items():
        if not described.get(argument):
            raise OptionError(
                f"the docstring of the tool {name} does not describe {argument}",
                wanted=f"a line '{argument}: ...' under 'Args:'",
            )
        text = described[argument]
        if choices := _CHOICES.search(text):
            schema["enum"] = _enum(choices[1], name, argument)
            text = text[: choices.start()].strip()
        schema["description"] = text
    description = re.split("Args:|Returns:|Raises:", doc, maxsplit=1)[0].strip()
    tool = {"name": name, "description": description, "parameters": parameters}
    if returned is not None:
        text_of_return = _block(doc, "Returns", until=("Raises",))
        described_return = {} if text_of_return is None else {"description": text_of_return}
        tool["return"] = returned | described_return
    return {"type": "function", "function": tool}


def _block(doc: str, title: str, until: tuple[str, ...]) -> str | None:
    """What stands under the line ``title:``, up to the next of ``until``."""
    start = re.search(rf"\n\s*{title}:\n", doc)
    if start is None:
        return None
    end = "|".join(f"{other}:" for other in until)
    return re.split(end, doc[start.end() :], maxsplit=1)[0].strip()


def _arguments(block: str) -> dict[str, str]:
    """Argument to description, which may go on over several lines."""
    described: dict[str, list[str]] = {}
    argument = ""
    for line in block.splitlines():
        if start := re.match(r"\s*(\w+):(.*)", line):
            argument, line = start.groups()
            described[argument] = []
        if argument and line.strip():
            described[argument].append(line.strip())
    return {argument: " ".join(lines) for argument, lines in described.items()}


def _parameters(function: Callable[..., Any]) -> Schema:
    try:
        hints = get_type_hints(function)
    except Exception as error:  # a hint in quotes can be any code
        raise OptionError(f"the type hints of the tool {function.__name__} are broken") from error
    required = []
    for argument in inspect.signature(function).parameters.values():
        if argument.annotation is argument.empty:
            raise OptionError(
                f"the tool {function.__name__} has no type hint for {argument.name}",
                wanted="a hint for each argument",
            )
        if argument.default is argument.empty:
            required.append(argument.name)
    properties = {argument: _schema(hint) for argument, hint in hints.items()}
    schema: Schema = {"type": "object", "properties": properties}
    return schema | ({"required": required} if required else {})


def _schema(hint: Any) -> Schema:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None:
        return _simple(hint)
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is Literal:
        return _literal(arguments)
    if origin is list:
        return {"type": "array"} | ({"items": _schema(arguments[0])} if arguments else {})
    if origin is tuple:
        if len(arguments) == 1 or ... in arguments:
            raise OptionError(
                "a tool has a tuple of one type or of any length",
                wanted="a list",
                do="use list[...]",
            )
        items = [_schema(argument) for argument in arguments]
        return {"type": "array"} | ({"prefixItems": items} if items else {})
    if origin is dict:
        values = {"additionalProperties": _schema(arguments[1])} if len(arguments) == 2 else {}
        return {"type": "object"} | values
    raise OptionError(f"a tool has a type hint without a schema: {getattr(origin, '__name__', '')}")


def _simple(hint: Any) -> Schema:
    media = (getattr(hint, "__module__", ""), getattr(hint, "__qualname__", ""))
    if media in _MEDIA:
        return {"type": _MEDIA[media]}
    try:
        return dict(_SIMPLE.get(hint, {"type": "object"}))
    except TypeError:  # no hashable hint
        return {"type": "object"}


def _union(arguments: tuple[Any, ...]) -> Schema:
    schemas = [_schema(argument) for argument in arguments if argument is not types.NoneType]
    if len(schemas) == 1:
        schema = schemas[0]
    elif any("type" not in schema for schema in schemas):
        raise OptionError("a tool has a union with Any", do="use Any alone")
    elif all(isinstance(schema["type"], str) for schema in schemas):
        schema = {"type": sorted(schema["type"] for schema in schemas)}
    else:
        schema = {"anyOf": schemas}
    return schema | ({"nullable": True} if types.NoneType in arguments else {})


def _literal(values: tuple[Any, ...]) -> Schema:
    if any(type(value) not in _SIMPLE for value in values):
        raise OptionError("a tool has a Literal of something else than plain values")
    kinds = list(dict.fromkeys(_SIMPLE[type(value)]["type"] for value in values))
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": list(values)}


def _enum(choices: str, tool: str, argument: str) -> list[str]:
    try:
        return [choice.strip() for choice in json.loads(choices)]
    except (ValueError, AttributeError, TypeError) as error:
        raise OptionError(
            f"the choices of {argument} of the tool {tool} are broken",
            wanted='(choices: ["one", "two"])',
        ) from error
