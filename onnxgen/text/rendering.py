"""Renders Jinja templates, and tells in their own words what fails.

A module of its own, for Jinja is a tenth of what a process without chats would have to load.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError, UndefinedError, meta
from jinja2.exceptions import SecurityError

from onnxgen.errors import ChatTemplateError, OnnxgenError
from onnxgen.text import sandbox
from onnxgen.text.budget import OverBudgetError, budget

MAX_TEMPLATE_CHARS = 2**17  # several times the largest that models come with
_MAX_PATTERN = 100  # characters of what strftime_now is asked for
_MAX_REASON = 300
# Marks the place where a message ends; its own last space shows whether a template trims.
_MARK = "CONTINUED_MESSAGE_ENDS_HERE "


@lru_cache(maxsize=32)
def compiled(source: str) -> tuple[Template, frozenset[str]]:
    """The template and the names that it uses without setting them; ChatTemplateError if broken."""
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


def run(template: Template, source: str, data: dict[str, Any]) -> str:
    """What the compiled ``source`` makes of ``data``; ChatTemplateError if it fails."""
    try:
        return sandbox.render(template, data)
    except OnnxgenError:
        raise
    except Exception as error:  # a template can raise whatever Python's operators do
        raise _translated(error, source, "failed") from error


def unfinished(template: Template, source: str, data: dict[str, Any]) -> str:
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
    prompt = run(template, source, data)
    place = prompt.rfind(_MARK.strip())
    if place < 0 or text.strip() not in prompt:
        raise ChatTemplateError(
            "the last message is not in the prompt as it is",
            wanted="a template that keeps messages whole",
            do="leave continue_final_message out",
        )
    kept = prompt[place : place + len(_MARK)] == _MARK
    return prompt[:place] if kept else prompt[:place].rstrip()


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
