"""What was said, and when: the values that the functions of this room pass on.

Times are seconds from the start of the audio. Languages are Whisper's codes, such as ``en``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpeechTokens:
    """What a Whisper tokenizer has to tell: which ids are text, and what they spell.

    Ids below ``end``, the end of text, are text. Those from ``timestamps`` on, the id of
    ``<|0.00|>``, are times. Ids between are special. ``decode`` gives the text of text ids, with
    U+FFFD for bytes that are no character.
    """

    end: int
    timestamps: int
    decode: Callable[[Sequence[int]], str]

    def text(self, tokens: Sequence[int]) -> str:
        """The text of ``tokens``; those that are no text are left out."""
        return self.decode([token for token in tokens if token < self.end])


@dataclass(frozen=True, slots=True)
class Word:
    """A word with the space before it and the punctuation around it.

    ``probability`` is the mean of its tokens', where these are known.
    """

    text: str
    start: float
    end: float
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """Something said in one go.

    ``start`` is None where the model gave no times, ``end`` where the audio broke off within the
    segment. ``tokens`` are its ids: all that the model gave, if the segment was cut from one
    window; text alone, if it was merged from chunks. ``words`` are None unless asked for.

    Of the window that the segment comes from, where they are known: its first frame ``seek``, and
    the ``temperature``, ``avg_logprob``, ``compression_ratio`` and ``no_speech_prob`` of its answer
    (see :mod:`onnxgen.audio.quality`).
    """

    start: float | None
    end: float | None
    text: str
    tokens: tuple[int, ...] = ()
    words: tuple[Word, ...] | None = None
    language: str | None = None
    seek: int | None = None
    temperature: float | None = None
    avg_logprob: float | None = None
    compression_ratio: float | None = None
    no_speech_prob: float | None = None


@dataclass(frozen=True, slots=True)
class Transcript:
    """The answer to one recording of ``duration`` seconds."""

    text: str
    segments: tuple[Segment, ...] = ()
    language: str | None = None
    duration: float | None = None
    language_probability: float | None = None  # where the language was detected

    @property
    def words(self) -> tuple[Word, ...]:
        """The words of all segments; empty where none were asked for."""
        return tuple(word for segment in self.segments for word in segment.words or ())
