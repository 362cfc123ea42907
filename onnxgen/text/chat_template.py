"""Messages to a prompt, by the Jinja template that comes with a chat model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

from onnxgen.errors import ChatTemplateError, OptionError
from onnxgen.text.tool_schema import tool_schema

if TYPE_CHECKING:
    from onnxgen.files import ModelFiles

_MAX_DEPTH = 64  # of lists and dicts within each other
_FOLDER = "additional_chat_templates"
_NO_TEMPLATE = "give a template, or use a plain prompt"


class ChatTemplate:
    """The chat templates of a model.

    Args:
        templates: name to Jinja source; a model with a single one calls it "default".
    """

    def __init__(self, templates: Mapping[str, str]) -> None:
        self.templates = dict(templates)

    @classmethod
    def from_files(cls, files: ModelFiles) -> ChatTemplate | None:
        """The templates of a model folder, None if it has none.

        ``chat_template.jinja`` and the files in ``additional_chat_templates`` go before all; then,
        for a model with a processor, ``chat_template.json``; then ``tokenizer_config.json``.
        """
        templates = {}
        if (text := files.text("chat_template.jinja")) is not None:
            templates["default"] = text
        for path in sorted((files.folder / _FOLDER).glob("*.jinja")):
            if (text := files.text(f"{_FOLDER}/{path.name}")) is not None:
                templates[path.stem] = text
        stored: Any = templates
        if not stored and (
            files.path("preprocessor_config.json") or files.path("processor_config.json")
        ):
            stored = files.json("chat_template.json").get("chat_template")
        if not stored:
            stored = files.json("tokenizer_config.json").get("chat_template")
        return cls(_named(stored)) if stored else None

    def choose(self, name_or_source: str | None = None, with_tools: bool = False) -> str:
        """The source to render: what is asked for, else the one for tools, else the default.

        Raises:
            ChatTemplateError: there is none, none of that name, or several without a default.
        """
        names = ", ".join(sorted(self.templates))
        if name_or_source is not None:
            if name_or_source in self.templates:
                return self.templates[name_or_source]
            if "{" not in name_or_source:  # else a misspelt name would be the prompt
                raise ChatTemplateError(
                    f"no chat template has the name {name_or_source[:100]!r}",
                    wanted="Jinja source or a name" + (f": {names}" if names else ""),
                )
            return name_or_source
        for name in ("tool_use", "default") if with_tools else ("default",):
            if name in self.templates:
                return self.templates[name]
        if not self.templates:
            raise ChatTemplateError("there is no chat template", do=_NO_TEMPLATE)
        raise ChatTemplateError("several chat templates and no default", wanted=f"one of: {names}")

    def render(
        self,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        special_tokens: Mapping[str, Any] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt for ``messages``.

        Args:
            messages: dicts with ``role`` and ``content``, of JSON-like values.
            tools: JSON schemas of functions, or functions (:func:`tool_schema` describes them).
            documents: dicts, by convention with ``title`` and ``text``.
            chat_template: name of a template, or Jinja source.
            add_generation_prompt: ends with what opens an answer.
            continue_final_message: ends within the last message, for the model to go on with.
            special_tokens: tokens that the template may name.
            variables: further variables of the template; they overrule ``special_tokens``.

        Raises:
            ChatTemplateError: no template, a broken one, or one that refuses the messages or takes
                more than its budget (:mod:`onnxgen.text.budget`).
            OptionError: arguments that are no plain data, contradict each other, or that the
                template makes no use of.
        """
        from onnxgen.text import rendering  # loads Jinja

        if add_generation_prompt and continue_final_message:
            raise OptionError("add_generation_prompt and continue_final_message exclude each other")
        source = self.choose(chat_template, with_tools=tools is not None)
        template, used = rendering.compiled(source)
        data = {
            "messages": _dicts(messages, "messages"),
            "tools": None if tools is None else [_tool(tool) for tool in tools],
            "documents": None if documents is None else _dicts(documents, "documents"),
            "add_generation_prompt": add_generation_prompt,
        }
        if not data["messages"]:
            raise OptionError("there are no messages", wanted="one or more")
        given = {name: plain(value, name) for name, value in (variables or {}).items()}
        _check_used(used, given, [name for name in ("tools", "documents") if data[name]])
        data = {**(special_tokens or {}), **given, **data}
        if not continue_final_message:
            return rendering.run(template, source, data)
        return rendering.unfinished(template, source, data)


def plain(value: Any, what: str, depth: int = 0) -> Any:
    """``value`` rebuilt from JSON's types alone, so that a template meets no other object.

    Raises:
        OptionError: ``what`` holds something else, or is nested too deeply.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # of a subclass: the bare text
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if depth >= _MAX_DEPTH:
        raise OptionError(f"{what} is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise OptionError(f"{what} has a key that is no text", wanted="JSON-like data")
        return {str.__str__(key): plain(v, what, depth + 1) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, what, depth + 1) for item in value]
    raise OptionError(
        f"{what} holds a {type(value).__name__}",
        wanted="JSON-like data: dicts, lists, texts, numbers, booleans, None",
    )


def _dicts(values: Any, what: str) -> list[dict[str, Any]]:
    if not isinstance(values, (list, tuple)) or not all(isinstance(v, Mapping) for v in values):
        raise OptionError(f"{what} is no list of dicts", wanted="[{'role': ..., 'content': ...}]")
    dicts: list[dict[str, Any]] = plain(values, what)
    return dicts


def _tool(tool: Any) -> dict[str, Any]:
    if isinstance(tool, FunctionType):
        return tool_schema(tool)
    if not isinstance(tool, Mapping):
        raise OptionError(
            f"a tool is a {type(tool).__name__}", wanted="functions, or JSON schemas of functions"
        )
    schema: dict[str, Any] = plain(tool, "tools")
    return schema


def _check_used(used: frozenset[str], given: Mapping[str, Any], tables: Sequence[str]) -> None:
    """Nothing that the caller gives may be dropped by a template that does not know of it."""
    for name in given:
        if name not in used:
            raise OptionError.unknown(name, used - _COMMON, "the chat template")
    for name in tables:
        if name not in used:
            raise OptionError(f"the chat template makes no use of {name}", do="leave them out")


_COMMON = {"messages", "raise_exception", "strftime_now", "namespace", "range", "dict"}


def _stored_error() -> ChatTemplateError:
    return ChatTemplateError(
        "the model's chat_template is not stored as one",
        wanted="Jinja source, or a list of {name, template}",
    )


def _named(stored: Any) -> dict[str, str]:
    """Name to source, from each form in which models keep templates."""
    if isinstance(stored, str):
        return {"default": stored}
    if isinstance(stored, list):
        try:
            stored = {entry["name"]: entry["template"] for entry in stored}
        except (TypeError, KeyError) as error:
            raise _stored_error() from error
    if not isinstance(stored, dict) or not all(
        isinstance(text, str) for text in (*stored, *stored.values())
    ):
        raise _stored_error()
    return stored
