"""JSON for people: what holds no more than plain values, or fits a line, stays on one."""

import json
from typing import Any

WIDTH = 100


def dump(value: Any, indent: int = 0) -> str:
    """The text of a value that begins `indent` spaces from the left, without a final newline."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(line) + indent <= WIDTH or plain(value):
        return line
    space = " " * (indent + 1)
    if isinstance(value, dict):
        parts = [
            f"{space}{json.dumps(key)}: {dump(each, indent + 1)}" for key, each in value.items()
        ]
        return "{\n" + ",\n".join(parts) + f"\n{' ' * indent}}}"
    parts = [space + dump(each, indent + 1) for each in value]
    return "[\n" + ",\n".join(parts) + f"\n{' ' * indent}]"


def plain(value: dict[str, Any] | list[Any]) -> bool:
    """Whether it is a list of numbers and texts."""
    return isinstance(value, list) and not any(isinstance(each, dict | list) for each in value)
