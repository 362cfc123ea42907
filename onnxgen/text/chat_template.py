"""Messages to a prompt, by the Jinja template that comes with a chat model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError, UndefinedError, meta
from jinja2.exceptions import SecurityError

from onnxgen.errors import ChatTemplateError, OnnxgenError, OptionError
from onnxgen.text import sandbox
from onnxgen.text.budget import OverBudgetError, budget
from onnxgen.text.tool_schema import tool_schema

if TYPE_CHECKING:
    from onnxgen.files import ModelFiles

MAX_TEMPLATE_CHARS = 2**17  # several times the largest that models come with
_MAX_PATTERN = 100  # characters of what strftime_now is asked for
_MAX_REASON = 300
_MAX_DEPTH = 64  # of lists and dicts within each other
_FOLDER = "additional_chat_templates"
_NO_TEMPLATE = "give a template, or use a plain prompt"
# Marks the place where a message ends; its own last space shows whether a template trims.
_MARK = "CONTINUED_MESSAGE_ENDS_HERE "


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
        if add_generation_prompt and continue_final_message:
            raise OptionError("add_generation_prompt and continue_final_message exclude each other")
        source = self.choose(chat_template, with_tools=tools is not None)
        template, used = _compile(source)
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
            return _run(template, source, data)
        return _unfinished(template, source, data)


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


def _refuse(message: Any) -> NoReturn:
    raise _RefusedError(str(message))


class _RefusedError(TemplateError):
    """The template itself called raise_exception."""


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own escapes for HTML, which models have not seen in training.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _now(pattern: str) -> str:
    if len(pattern) > _MAX_PATTERN:  # a long one takes gigabytes in the C library
        raise OverBudgetError(f"a date's pattern of more than {_MAX_PATTERN} characters")
    return datetime.now().strftime(pattern)


@lru_cache(maxsize=1)
def _environment() -> sandbox.Environment:
    environment = sandbox.Environment()
    environment.add_filter("tojson", _to_json)
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    return environment


@lru_cache(maxsize=32)
def _compile(source: str) -> tuple[Template, frozenset[str]]:
    """The compiled template and the names that it uses without setting them."""
    if len(source) > MAX_TEMPLATE_CHARS:
        raise ChatTemplateError(
            f"a chat template of {len(source)} characters", wanted=f"{MAX_TEMPLATE_CHARS} at most"
        )
    environment = _environment()
    try:
        with budget(steps=0):  # constants are not worked out before any rendering
            used = meta.find_undeclared_variables(environment.parse(source))
            return environment.from_string(source), frozenset(used)
    except Exception as error:  # RecursionError, and SyntaxError of misplaced loop controls
        raise _translated(error, source, "is broken") from error


def _run(template: Template, source: str, data: dict[str, Any]) -> str:
    try:
        return sandbox.render(template, data)
    except OnnxgenError:
        raise
    except Exception as error:  # a template can raise whatever Python's operators do
        raise _translated(error, source, "failed") from error


def _unfinished(template: Template, source: str, data: dict[str, Any]) -> str:
    """The prompt up to the end of the last message, without what closes a message."""
    last = data["messages"][-1]
    holder, key = last, "content"
    if isinstance(last.get("content"), list):
        texts = [part for part in last["content"] if isinstance(part, dict) and "text" in part]
        holder, key = (texts[-1] if texts else {}), "text"
    text = holder.get(key)
    if not isinstance(text, str):
        raise ChatTemplateError("the last message has no text to continue")
    holder[key] = text + _MARK
    prompt = _run(template, source, data)
    place = prompt.rfind(_MARK.strip())
    if place < 0 or text.strip() not in prompt:
        raise ChatTemplateError(
            "the last message is not in the prompt as it is",
            wanted="a template that keeps messages whole",
            do="leave continue_final_message out",
        )
    kept = prompt[place : place + len(_MARK)] == _MARK
    return prompt[:place] if kept else prompt[:place].rstrip()


def _translated(error: Exception, source: str, how: str) -> ChatTemplateError:
    """``error`` as one of ours, with its line, in the template's own words."""
    line = error.lineno if isinstance(error, TemplateSyntaxError) else _line(error)
    where = f" in line {line}" if line else ""
    if isinstance(error, OverBudgetError):
        return ChatTemplateError(f"the chat template takes too much{where}: {error.message}")
    refused = isinstance(error, _RefusedError)
    told = refused or isinstance(error, (TemplateSyntaxError, UndefinedError, SecurityError))
    reason = str(error.args[0]) if told and error.args else type(error).__name__
    how = "refused" if refused else how
    return ChatTemplateError(f"the chat template {how}{where}: {_without_content(reason, source)}")


def _without_content(reason: str, source: str) -> str:
    """``reason`` in words of the template and of Jinja: others may be out of the messages."""
    words = set(_WORDS.findall(source)) | _JINJAS
    found = _WORDS.findall(reason[:_MAX_REASON])
    kept = (w if w in words or w.isspace() or _COUNT.fullmatch(w) else "..." for w in found)
    return " ".join("".join(kept).split())


_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_COUNT = re.compile("[0-9]{1,4}")
# The words of the exceptions that are told, and Python's names of types.
_JINJAS = {
    *"'.,:;()[]{}%#|=-",
    *_WORDS.findall(
        "has no attribute element element undefined object dict list str int float bool tuple None "
        "NoneType is not safely callable access to of unsafe unexpected expected token got char at "
        "end template print statement block begin Unexpected Encountered unknown tag Jinja was "
        "looking for the following tags or The innermost that needs be closed No filter test "
        "named found this of you probably made nesting mistake missing closing comment raw Invalid "
        "Missing bytes character expression name can assign parser method RecursionError "
        "OverflowError SyntaxError MemoryError TypeError ValueError ZeroDivisionError KeyError "
        "IndexError AttributeError UnicodeEncodeError RuntimeError TemplateRuntimeError "
    ),
}


def _line(error: Exception) -> int | None:
    """The template's line in the traceback, which Jinja rewrites for this."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
