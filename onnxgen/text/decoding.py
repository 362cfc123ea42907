"""The decoders of ``tokenizers``, one token at a time.

Streamed text must add up to what decoding all tokens at once gives. Decoding a window of the last
tokens does not give that: what a decoder makes of a token depends on its place, on the run of byte
tokens around it, on the text before. So each decoder is written as what it is, a small machine
that gives a character away as soon as no later token can change it. Knows tokens, not ids.
"""

import codecs
import json
import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Protocol

from tokenizers import Regex, decoders
from tokenizers.decoders import Decoder

from onnxgen.text.native import native


class Stage(Protocol):
    """One step: a token (the first stage) or text in, the text that is certain out."""

    def push(self, text: str) -> str:
        """Takes ``text``; gives what is certain now."""
        ...

    def finish(self) -> str:
        """Nothing follows: gives what was held back."""
        ...


class Row:
    """Stages in a row, itself a stage."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = stages

    def push(self, text: str) -> str:
        """As in :class:`Stage`."""
        for stage in self._stages:
            text = stage.push(text)
            if not text:
                return ""
        return text

    def finish(self) -> str:
        """As in :class:`Stage`."""
        text = ""
        for stage in self._stages:
            text = (stage.push(text) if text else "") + stage.finish()
        return text


Plan = list[Callable[[], Stage]]  # makes the stages of one stream
_Head = Callable[[str, bool], str]  # a token, whether it is the first: what becomes of it
_Part = dict[str, Any]  # the state of one decoder, as in tokenizer.json

_PER_TOKEN = ("Replace", "Strip", "Metaspace", "WordPiece")  # need no neighbours
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2}|\+[0-9A-Fa-f])>")


def plan(decoder: Decoder | None, vocabulary: Callable[[], Collection[str]]) -> Plan | None:
    """How to stream what ``decoder`` makes of tokens; None if it needs them all at once.

    Args:
        decoder: of a tokenizer; None joins tokens by spaces.
        vocabulary: gives all tokens; called only where the answer depends on them.
    """
    if decoder is None:
        return [partial(_Tokens, _spaced)]
    parts = _flat(json.loads(decoder.__getstate__()))
    count = next((i for i, part in enumerate(parts) if part["type"] not in _PER_TOKEN), len(parts))
    head, rest = _head(parts[:count]), parts[count:]
    if head is None:
        return None
    first: Callable[[], Stage] = partial(_Tokens, head)
    if rest and rest[0]["type"] == "ByteFallback":
        first = partial(_ByteRuns, head)
    elif rest and rest[0]["type"] == "BPEDecoder":
        first = partial(_WordEnds, head, rest[0]["suffix"])
    elif rest and rest[0]["type"] == "ByteLevel":
        twice = any(part["type"] == "ByteLevel" for part in rest[1:])
        return None if twice else _texts(rest[1:], [first, _Bytes])
    else:
        return _fused(rest, [first], parts, vocabulary)
    return _fused(rest[1:], [first], parts, vocabulary)


def _fused(
    rest: list[_Part], stages: Plan, parts: list[_Part], vocabulary: Callable[[], Collection[str]]
) -> Plan | None:
    """Continues ``stages`` by ``rest``, which has to fuse the tokens first, if there is any."""
    if not rest:
        return stages
    if rest[0]["type"] != "Fuse":
        return None
    for index, part in enumerate(rest):
        if part["type"] == "ByteLevel":
            before = parts[: len(parts) - len(rest) + index]
            if not _all_byte_level(before, vocabulary()):
                return None
    return _texts(rest[1:], stages)


def _texts(rest: list[_Part], stages: Plan) -> Plan | None:
    """Continues ``stages`` by ``rest``, decoders that see one single token, the text."""
    for part in rest:
        match part:
            case {"type": "Fuse"}:
                pass
            case {"type": "ByteLevel"}:
                stages.append(_Bytes)
            case {"type": "Strip", "content": content, "start": start, "stop": stop}:
                stages.append(partial(_StripText, content, start, stop))
            case {"type": "Replace", "pattern": {"String": pattern}, "content": content} if pattern:
                stages.append(partial(_ReplaceText, pattern, content))
            case _:
                return None
    return stages


def _flat(part: _Part) -> list[_Part]:
    if part["type"] != "Sequence":
        return [part]
    return [inner for outer in part["decoders"] for inner in _flat(outer)]


def _spaced(token: str, first: bool) -> str:
    return token if first else " " + token


def _head(parts: list[_Part]) -> _Head | None:
    """What decoders that take tokens one by one do; None if that can't be told from outside."""
    if not parts:
        return lambda token, first: token
    decoder = decoders.Sequence([_decoder(part) for part in parts])
    filler = "x"  # stands for the tokens before
    if decoder.decode([filler]) != filler or decoder.decode([filler, filler])[:1] != filler:
        return None
    known: dict[tuple[str, bool], str] = {}

    def head(token: str, first: bool) -> str:
        text = known.get((token, first))
        if text is None:
            with native("decode a token"):
                text = decoder.decode([token]) if first else decoder.decode([filler, token])[1:]
            known[token, first] = text
        return text

    return head


def _decoder(part: _Part) -> Decoder:
    match part:
        case {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}:
            return decoders.Replace(Regex(pattern), content)
        case {"type": "Replace", "pattern": {"String": pattern}, "content": content}:
            return decoders.Replace(pattern, content)
        case {"type": "Strip", "content": content, "start": start, "stop": stop}:
            return decoders.Strip(content, start, stop)
        case {"type": "Metaspace", "replacement": replacement, "prepend_scheme": scheme}:
            return decoders.Metaspace(replacement, scheme)
    return decoders.WordPiece(part["prefix"], part["cleanup"])


class _Tokens:
    """Tokens that are text by themselves."""

    def __init__(self, head: _Head) -> None:
        self._head, self._first = head, True

    def push(self, text: str) -> str:
        text, self._first = self._head(text, self._first), False
        return text

    def finish(self) -> str:
        return ""


class _ByteRuns:
    """ByteFallback: a run of ``<0xNN>`` is text if all of it is UTF-8, else all of it is U+FFFD.

    So a run is held until it ends, even past the end of a character.
    """

    def __init__(self, head: _Head) -> None:
        self._head, self._first, self._run = head, True, bytearray()

    def push(self, text: str) -> str:
        text, self._first = self._head(text, self._first), False
        if byte := _BYTE_TOKEN.fullmatch(text):
            self._run.append(int(byte[1], 16))
            return ""
        return self.finish() + text if self._run else text

    def finish(self) -> str:
        run, self._run = bytes(self._run), bytearray()
        try:
            return run.decode()
        except UnicodeDecodeError:
            return "\ufffd" * len(run)


class _WordEnds:
    """BPEDecoder: a suffix ends a word, and becomes a space except in the last token."""

    def __init__(self, head: _Head, suffix: str) -> None:
        self._head, self._suffix = head, suffix
        self._last: str | None = None

    def push(self, text: str) -> str:
        before, self._last = self._last, self._head(text, self._last is None)
        return "" if before is None else before.replace(self._suffix, " ")

    def finish(self) -> str:
        return "" if self._last is None else self._last.replace(self._suffix, "")


def _byte_of() -> dict[str, int]:
    """Character to byte, as GPT-2 writes bytes: printable ones as they are, others from U+0100."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(0x100 + i): b for i, b in enumerate(others)}


BYTE_OF = _byte_of()


class _Bytes:
    """ByteLevel: a token spells bytes; one with any other character stands for itself."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, text: str) -> str:
        try:
            data = bytes([BYTE_OF[char] for char in text])
        except KeyError:
            data = text.encode()
        return self._utf8.decode(data)

    def finish(self) -> str:
        return self._utf8.decode(b"", True)


def _all_byte_level(before: list[_Part], vocabulary: Collection[str]) -> bool:
    """Whether ByteLevel on the fused text does what it does on tokens.

    One character outside its alphabet makes it leave the whole text as it is, so none may come
    out of the ``vocabulary`` and the decoders ``before``.
    """
    for part in before:
        match part:
            case {"type": "Fuse" | "Strip" | "ByteFallback"}:
                pass
            case {"type": "Replace", "pattern": {"String": old}, "content": new}:
                if old == "" or (BYTE_OF.keys() >= set(old) and not BYTE_OF.keys() >= set(new)):
                    return False
            case _:
                return False
    falls_back = any(part["type"] == "ByteFallback" for part in before)
    if falls_back and any(map(_BYTE_TOKEN.fullmatch, vocabulary)):
        return False
    return BYTE_OF.keys() >= set("".join(vocabulary))


class _StripText:
    """Strip on the whole text: at most ``start`` and ``stop`` times ``content`` at its ends."""

    def __init__(self, content: str, start: int, stop: int) -> None:
        self._content, self._start, self._stop, self._held = content, start, stop, ""

    def push(self, text: str) -> str:
        while self._start and text:
            if not text.startswith(self._content):
                self._start = 0
                break
            text, self._start = text[1:], self._start - 1
        if not self._stop:
            return text
        text = self._held + text
        end = text[-self._stop :]
        cut = len(text) - (len(end) - len(end.rstrip(self._content)))
        text, self._held = text[:cut], text[cut:]
        return text

    def finish(self) -> str:
        self._held = ""
        return ""


class _ReplaceText:
    """Replace on the whole text."""

    def __init__(self, pattern: str, content: str) -> None:
        self._pattern, self._content, self._held = pattern, content, ""

    def push(self, text: str) -> str:
        *done, text = (self._held + text).split(self._pattern)
        longest = min(len(text), len(self._pattern) - 1)
        held = next((n for n in range(longest, 0, -1) if text[-n:] == self._pattern[:n]), 0)
        cut = len(text) - held
        self._held = text[cut:]
        return self._content.join([*done, text[:cut]])

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held
