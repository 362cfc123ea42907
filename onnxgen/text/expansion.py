"""Refuses a ``tokenizer.json`` whose steps would make a short text endless.

A step that writes two characters for each is harmless; sixty of them in a row fill any memory, and
the tokenizers library then aborts the process, at loading already where added tokens are
normalized. So the largest factors of the steps in a row are multiplied before it sees the file.
"""

import json
import re
from math import prod
from typing import Any

from onnxgen.errors import TokenizerError

MOST = 2**16  # sound files stay under a hundred
_NAMES = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_SECTION = re.compile(rf'"(?:{"|".join(_NAMES)})"\s*:\s*(?=\{{)')
_ESCAPED = re.compile(r"\\u00[4-7]")  # a letter that could have been written as it is
_IN_A_ROW = ("normalizers", "pretokenizers", "processors", "decoders")
_BYTES = 4  # of a character, each of which ByteLevel makes a character


def check(data: bytes) -> None:
    """Checks the content of a ``tokenizer.json``.

    Raises:
        TokenizerError: its steps multiply a text by more than MOST.
    """
    for section in _sections(data.decode(errors="replace")):
        if _factor(section) > MOST:
            raise TokenizerError(
                "tokenizer.json has steps that make a text many thousand times longer",
                wanted=f"{MOST} times at most",
            )


def _sections(text: str) -> list[Any]:
    """The steps: few files are parsed for them, as most of a file is its vocabulary."""
    if _ESCAPED.search(text):
        whole = json.loads(text)
        return [whole.get(name) for name in _NAMES] if isinstance(whole, dict) else []
    found = []
    for match in _SECTION.finditer(text):
        try:
            found.append(json.JSONDecoder().raw_decode(text, match.end())[0])
        except (ValueError, RecursionError):  # the library refuses it as well
            continue
    return found


def _factor(part: Any) -> float:
    """By how much a step, or several in a row, can multiply the length of a text."""
    if not isinstance(part, dict):
        return 1
    for name in _IN_A_ROW:
        if isinstance(part.get(name), list):
            return prod(map(_factor, part[name]), start=1.0)
    match part.get("type"):
        case "Replace":
            return _replaced(part.get("pattern"), part.get("content"))
        case "Prepend" if isinstance(part.get("prepend"), str):
            return 1 + len(part["prepend"])
        case "ByteLevel":
            return _BYTES
        case "TemplateProcessing":
            templates = [part.get("single"), part.get("pair")]
            return max(1, *(len(t) for t in templates if isinstance(t, list | str)))
    return 1


def _replaced(pattern: Any, content: Any) -> float:
    if not isinstance(content, str):
        return 1
    text = pattern.get("String") if isinstance(pattern, dict) else pattern
    if isinstance(text, str) and text:
        return max(1, len(content) / len(text))
    return 1 + len(content)  # an empty pattern, or an expression that may match nothing
