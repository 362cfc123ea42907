"""Donut's answers: text with opening and closing field tokens, read as JSON.

The grammar is that of transformers' ``DonutProcessor.token2json``: ``<s_name>...</s_name>`` is a
field, ``<sep/>`` parts a list, a field that never closes is skipped, and text without any field is
``text_sequence``.
"""

import re
from collections.abc import Container
from typing import Any

_OPEN = re.compile(r"<s_(.*?)>", re.IGNORECASE)
_SEPARATOR = "<sep/>"


def to_json(text: str, tokens: Container[str] = ()) -> Any:
    """The object, or list of objects, that ``text`` describes.

    ``tokens`` are the tokenizer's added tokens: one like ``<yes/>`` is a value of its own, ``yes``.
    """
    fields, rest, parted = _fields(text, tokens)
    if parted:
        return [fields, *_objects(rest, tokens)]
    return fields or {"text_sequence": rest}


def _objects(text: str, tokens: Container[str]) -> list[dict[str, Any]]:
    """One object for each stretch between separators."""
    found, parted = [], True
    while parted:
        fields, text, parted = _fields(text, tokens)
        if fields or parted:
            found.append(fields)
    return found


def _fields(text: str, tokens: Container[str]) -> tuple[dict[str, Any], str, bool]:
    """The fields up to the first separator behind one, what follows, and if there was one."""
    fields: dict[str, Any] = {}
    while opening := _OPEN.search(text):
        name = opening[1]
        closing = re.search(rf"</s_{re.escape(name)}>", text, re.IGNORECASE)
        if closing is None:
            text = text.replace(opening[0], "")
            continue
        # A closing token may stand before the opening one, too; what follows the first goes on.
        end = text.find(closing[0], opening.end())
        if end >= 0:
            value = _value(text[opening.end() : end].strip(), tokens)
            if value is not None:
                fields[name] = value
        text = text[closing.end() :].strip()
        if text.startswith(_SEPARATOR):
            return fields, text[len(_SEPARATOR) :], True
    return fields, text, False


def _value(content: str, tokens: Container[str]) -> Any:
    """What a field holds: objects, or texts; a single one stands for itself. None for nothing."""
    found: list[Any]
    if "<s_" in content and "</s_" in content:
        found = _objects(content, tokens)
    else:
        leaves = [leaf.strip() for leaf in content.split(_SEPARATOR)]
        found = [leaf[1:-2] if _is_value(leaf, tokens) else leaf for leaf in leaves]
    if not found:
        return None
    return found[0] if len(found) == 1 else found


def _is_value(leaf: str, tokens: Container[str]) -> bool:
    return leaf in tokens and leaf.startswith("<") and leaf.endswith("/>")
