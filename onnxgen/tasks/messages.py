"""Chat messages with images, in the forms of transformers and of OpenAI."""

from collections.abc import Mapping, Sequence
from typing import Any

from onnxgen.errors import OptionError
from onnxgen.text.tokenizer import Tokenizer

# Where a part of this type holds its image; none of them: the image comes with the call.
HOLDS = {
    "image": ("image", "path", "url", "base64"),
    "image_url": ("image_url",),
    "input_image": ("image_url",),
    "video": ("video", "frames"),
}
GIVEN = object()  # an image that comes with the call


def without_images(
    messages: Sequence[Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], list[Any], list[Any]]:
    """The messages with bare parts in place of images, the images, and the videos, in order.

    What a part does not hold itself is :data:`GIVEN`. OptionError for a part of no known form.
    """
    bare: list[dict[str, Any]] = []
    images: list[Any] = []
    videos: list[Any] = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, Sequence) and not isinstance(content, str):
            content = [_bare(part, images, videos) for part in content]
        bare.append({**message, "content": content} if "content" in message else dict(message))
    return bare, images, videos


def _bare(part: Any, images: list[Any], videos: list[Any]) -> dict[str, Any]:
    """``part`` as a template sees it; what it holds goes to ``images`` or ``videos``."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "text":
        return dict(part)
    if kind not in HOLDS:
        raise OptionError(
            f"a part of a message of type {kind!r}",
            wanted="text, image, image_url or video",
            do='write it like {"type": "image", "image": ...} or {"type": "text", "text": ...}',
        )
    held = next((part[name] for name in HOLDS[kind] if part.get(name) is not None), GIVEN)
    if isinstance(held, Mapping):  # OpenAI: {"image_url": {"url": ...}}
        held = held.get("url", GIVEN)
    if kind == "video":
        videos.append(held)
        return {"type": "video"}
    images.append(held)
    return {"type": "image"}


def rendered(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]]) -> str:
    """The prompt of ``messages``, which opens an answer.

    Some templates see nothing in a content that is a text, others nothing in a list of parts: what
    a template leaves out is given to it in the other form.
    """
    text = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True)
    if _tells_all(text, messages):
        return text
    for form in (_in_parts, _in_text):
        other = form(messages)
        if other != list(messages):
            again = tokenizer.apply_chat_template(other, add_generation_prompt=True)
            if _tells_all(again, messages):
                return again
    return text


def _texts(message: Mapping[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    return [str(part.get("text", "")) for part in content or () if part.get("type") == "text"]


def _tells_all(text: str, messages: Sequence[Mapping[str, Any]]) -> bool:
    return all(said.strip() in text for message in messages for said in _texts(message))


def _in_parts(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Contents that are texts as lists of one part."""
    return [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        if isinstance(message.get("content"), str)
        else dict(message)
        for message in messages
    ]


def _in_text(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Contents without images as texts."""
    return [
        {**message, "content": "".join(_texts(message))}
        if all(part.get("type") == "text" for part in message.get("content") or ())
        and not isinstance(message.get("content"), str)
        else dict(message)
        for message in messages
    ]
