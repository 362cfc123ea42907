"""What may be given as a prompt, and how several are told from one."""

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from onnxgen.errors import OptionError

Message = Mapping[str, Any]
# A text, a chat, or token ids.
Prompt = str | Sequence[Message] | Sequence[int]


def as_list(prompt: Any) -> tuple[list[Prompt], bool]:
    """Prompts as a list, and whether they came as one; OptionError for what is no prompt."""
    if hasattr(prompt, "tolist"):  # an array of ids
        prompt = prompt.tolist()
    if isinstance(prompt, str) or is_chat(prompt):
        return [prompt], False
    if isinstance(prompt, Sequence) and prompt and not isinstance(prompt, bytes):
        if all(isinstance(part, Integral) for part in prompt):
            return [prompt], False
        if all(isinstance(part, str) or _is_ids_or_chat(part) for part in prompt):
            return list(prompt), True
    raise OptionError(
        f"a prompt of type {type(prompt).__name__}" + ("" if prompt else ", which is empty"),
        wanted="a text, a list of messages, a list of token ids, or a list of such prompts",
    )


def checked_ids(what: str, ids: Any, width: int) -> list[int]:
    """``ids`` as whole numbers below ``width``, the logits'; OptionError for all else."""
    wanted = f"token ids from 0 to {width - 1}"
    rows = ids.tolist() if hasattr(ids, "tolist") else ids
    if isinstance(rows, str | bytes) or not isinstance(rows, Sequence):
        raise OptionError(f"{what} is a {type(ids).__name__}", wanted=wanted)
    for token in rows:
        if not isinstance(token, Integral) or not 0 <= int(token) < width:
            raise OptionError(f"{what} holds {token!r}"[:200], wanted=wanted)
    return [int(token) for token in rows]


def is_chat(prompt: Any) -> bool:
    """Whether ``prompt`` is a list of messages."""
    return isinstance(prompt, Sequence) and bool(prompt) and isinstance(prompt[0], Mapping)


def holds_images(prompt: Any) -> bool:
    """Whether a message of the chat ``prompt`` has a part that is no text."""
    if not is_chat(prompt):
        return False
    contents = [message.get("content") for message in prompt if isinstance(message, Mapping)]
    parts = [part for c in contents if isinstance(c, list | tuple) for part in c]
    return any(isinstance(part, Mapping) and part.get("type", "text") != "text" for part in parts)


def _is_ids_or_chat(part: Any) -> bool:
    return isinstance(part, Sequence) and all(isinstance(p, Integral | Mapping) for p in part)
