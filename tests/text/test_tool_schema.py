"""Schemas of functions are those of transformers 4.57.6."""

import functools

import pytest

from onnxgen.errors import OptionError
from onnxgen.text.chat_template import ChatTemplate
from onnxgen.text.tool_schema import tool_schema
from tests.text import tool_functions
from tests.text.goldens import golden

SCHEMAS = golden("schemas")


def order(value):
    """``value`` with the order of its keys, which templates show."""
    if isinstance(value, dict):
        return [(key, order(v)) for key, v in value.items()]
    return [order(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("function", tool_functions.ALL, ids=lambda function: function.__name__)
def test_schema(function):
    expected = SCHEMAS[function.__name__]
    if "error" in expected:
        with pytest.raises(OptionError):
            tool_schema(function)
    else:
        assert order(tool_schema(function)) == order(expected)


def test_enough_of_both():
    errors = [schema for schema in SCHEMAS.values() if "error" in schema]
    assert len(errors) >= 10
    assert len(SCHEMAS) - len(errors) >= 6


def described_as_nothing(x: int):
    """An argument with an empty description.

    Args:
        x:
    """


def test_empty_description():
    with pytest.raises(OptionError, match="does not describe x"):
        tool_schema(described_as_nothing)


@pytest.mark.parametrize(
    "tool", [functools.partial(tool_functions.weather), print, str.upper, type("T", (), {}), "x"]
)
def test_only_plain_functions(tool):
    template = ChatTemplate({"default": "{{ tools }}{{ messages }}"})
    with pytest.raises(OptionError, match="a tool is a"):
        template.render([{"role": "user", "content": "x"}], tools=[tool])
