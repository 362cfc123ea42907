"""Tokens to words: where characters are whole, then at spaces, then with their punctuation.

The rules are those of ``_combine_tokens_into_words`` in transformers 4.57.6, which has them from
openai-whisper. Knows no times but those that come with the tokens.
"""

import string
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from onnxgen.audio.transcript import Segment, SpeechTokens, Word

# These are written without spaces, so that each character is a word.
UNSPACED = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
BEFORE = "\"'“¡¿([{-"  # belongs to the word that follows
AFTER = "\"'.。,，!！?？:：”)]}、"  # noqa: RUF001  belongs to the word before
BROKEN = "\ufffd"


class Heard(NamedTuple):
    """A token of text, and from when to when it was spoken."""

    token: int
    start: float = 0.0
    end: float = 0.0
    probability: float | None = None


class Piece(NamedTuple):
    """``text`` of the tokens from place ``start`` to before ``stop``."""

    text: str
    start: int
    stop: int


def heard(
    tokens: Sequence[int],
    times: Sequence[float] | None,
    probabilities: Sequence[float] | None = None,
    offset: float = 0.0,
) -> list[Heard]:
    """``tokens`` with when they were spoken; ``times`` are their ends, in seconds after ``offset``.

    A token begins where the one before it ends. Without ``times`` all are 0.
    """
    if times is None:
        return [Heard(token) for token in tokens]
    rounded = [round(float(time) + offset, 2) for time in (0.0, *times)]
    chances = [None] * len(tokens) if probabilities is None else [float(p) for p in probabilities]
    spans = pairwise(rounded)
    return [
        Heard(token, start, end, chance)
        for token, (start, end), chance in zip(tokens, spans, chances, strict=True)
    ]


def with_words(
    segment: Segment,
    times: Sequence[float],
    speech: SpeechTokens,
    language: str | None = None,
    probabilities: Sequence[float] | None = None,
) -> Segment:
    """``segment`` with its words.

    ``times`` are the ends of all its tokens, in seconds from the start of the audio, and
    ``probabilities`` those of the tokens.
    """
    spoken = heard(segment.tokens, times, probabilities)
    if spoken and segment.start is not None:
        spoken[0] = spoken[0]._replace(start=round(segment.start, 2))
    return replace(segment, words=to_words(spoken, speech, language))


def in_order(words: Sequence[Word], begin: float, end: float) -> tuple[Word, ...]:
    """``words`` with times that never go back, from ``begin`` to ``end`` seconds.

    A window may begin before the last word of the one before it is said to end, which transformers
    leaves so.
    """
    ordered = []
    for word in words:
        start = min(max(word.start, begin), end)
        begin = min(max(word.end, start), end)
        ordered.append(replace(word, start=start, end=begin))
    return tuple(ordered)


def to_words(
    spoken: Sequence[Heard], speech: SpeechTokens, language: str | None
) -> tuple[Word, ...]:
    """The words of the tokens ``spoken``, of which those that are no text are left out."""
    spoken = [one for one in spoken if one.token < speech.end]
    pieces = split_words([one.token for one in spoken], speech.decode, language)
    return tuple(_word(piece.text, spoken[piece.start : piece.stop]) for piece in pieces)


def _word(text: str, spoken: Sequence[Heard]) -> Word:
    known = [one.probability for one in spoken if one.probability is not None]
    mean = sum(known) / len(known) if known else None
    return Word(text, spoken[0].start, spoken[-1].end, mean)


def split_words(
    tokens: Sequence[int], decode: Callable[[Sequence[int]], str], language: str | None
) -> list[Piece]:
    """The words that ``tokens``, all of them text, spell in ``language``; None has spaces."""
    pieces = _characters(tokens, decode)
    if language not in UNSPACED:
        pieces = _at_spaces(pieces)
    return [piece for piece in _with_punctuation(pieces) if piece.text]


def _joined(left: Piece, right: Piece) -> Piece:
    return Piece(left.text + right.text, left.start, right.stop)


def _characters(tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[Piece]:
    """The smallest pieces whose characters are whole, or are as broken in the whole text."""
    whole = decode(tokens)
    pieces: list[Piece] = []
    start, done = 0, 0
    for stop in range(1, len(tokens) + 1):
        text = decode(tokens[start:stop])
        at = text.find(BROKEN)
        if at < 0 or whole[done + at : done + at + 1] == BROKEN:
            pieces.append(Piece(text, start, stop))
            start, done = stop, done + len(text)
    if start < len(tokens):  # the rest of a broken character; transformers fails here
        rest = Piece("" if pieces else whole, start, len(tokens))
        pieces.append(_joined(pieces.pop(), rest) if pieces else rest)
    return pieces


def _at_spaces(pieces: Sequence[Piece]) -> list[Piece]:
    """Joins pieces that have no space between them, except punctuation."""
    joined: list[Piece] = []
    for piece in pieces:
        begins = piece.text.startswith(" ") or piece.text.strip() in string.punctuation
        if begins or not joined:
            joined.append(piece)
        else:
            joined[-1] = _joined(joined[-1], piece)
    return joined


def _with_punctuation(pieces: Sequence[Piece]) -> list[Piece]:
    """Joins opening marks with the piece after them, then others with the piece before them."""
    opened: list[Piece] = []  # from the last to the first
    for piece in reversed(pieces):
        if opened and piece.text.startswith(" ") and piece.text.strip() in BEFORE:
            opened[-1] = _joined(piece, opened[-1])
        else:
            opened.append(piece)
    closed: list[Piece] = []
    for piece in reversed(opened):
        if closed and not closed[-1].text.endswith(" ") and piece.text in AFTER:
            closed[-1] = _joined(closed[-1], piece)
        else:
            closed.append(piece)
    return closed
