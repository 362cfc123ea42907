"""Long audio in chunks that overlap, and one text from what was heard in each of them.

Both sides of a chunk, its strides, are heard in the neighbour too, and cut where they agree best.
The rules are those of ``chunk_iter`` and ``_decode_asr`` in transformers 4.57.6. A single answer
about long audio, of several windows in a row, goes through the same rules.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from onnxgen.audio.segments import PRECISION
from onnxgen.audio.transcript import Segment, SpeechTokens
from onnxgen.audio.words import Heard, heard, to_words
from onnxgen.errors import OptionError

WINDOW = 1500  # positions of the encoder
NO_STRIDE = (0.0, 0.0, 0.0)


class Span(NamedTuple):
    """A chunk: samples ``start`` to before ``stop``; ``left`` and ``right`` of them are strides."""

    start: int
    stop: int
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class Part:
    """What was heard in one chunk.

    ``tokens`` are without prompt and padding. ``times``, their ends in seconds from the start of
    the chunk, are needed for words. ``stride`` has the chunk's length and its left and right
    stride in seconds; None for audio that was not cut.
    """

    tokens: Sequence[int]
    times: Sequence[float] | None = None
    stride: tuple[float, float, float] | None = None
    language: str | None = None
    probabilities: Sequence[float] | None = None


def spans(
    samples: int, rate: int, length_s: float, stride_s: float | tuple[float, float] | None = None
) -> list[Span]:
    """The chunks of ``samples`` at ``rate`` Hz.

    Args:
        samples: of the whole audio.
        rate: in Hz.
        length_s: seconds of a chunk; the last may be shorter.
        stride_s: seconds of both strides, or of the left and the right one; a sixth of
            ``length_s`` by default.

    OptionError where the strides leave nothing of a chunk.
    """
    if stride_s is None:
        stride_s = length_s / 6
    both = stride_s if isinstance(stride_s, tuple) else (stride_s, stride_s)
    length, left, right = (round(seconds * rate) for seconds in (length_s, *both))
    step = length - left - right
    if step <= 0 or min(left, right) < 0:
        raise OptionError(
            f"chunks of {length_s:g} s have strides of {both[0]:g} s and {both[1]:g} s",
            wanted="strides that together are shorter than a chunk",
        )
    found = []
    for start in range(0, samples, step):
        last = start + length >= samples
        stop = min(start + length, samples)
        found.append(Span(start, stop, left if start else 0, 0 if last else right))
        if last:
            break
    return found


def merge(parts: Sequence[Part], speech: SpeechTokens, *, timestamps: bool) -> list[Segment]:
    """The segments of the whole audio; their texts, one after another, are its text.

    Timestamps in the tokens say where segments begin and end; the last one has no end if the model
    did not close it. Where they were not asked for (``timestamps``), another language begins
    another segment. If the parts have times, the segments have words.
    """
    merger = _Merger(speech, timestamps, words=any(part.times is not None for part in parts))
    for part in parts:
        merger.add(part)
    return merger.finish()


class _Merger:
    """Goes through the tokens of one chunk after another, and holds back what may still change."""

    def __init__(self, speech: SpeechTokens, timestamps: bool, words: bool) -> None:
        self._speech, self._timestamps, self._words = speech, timestamps, words
        self._segments: list[Segment] = []
        self._start: float | None = None  # of the open segment
        self._held: list[list[Heard]] = []  # its tokens, by the earlier chunks that it is in
        self._current: list[Heard] = []  # and those of this chunk
        self._skip = False  # the next timestamp is the second of a pair that is left out
        self._language: str | None = None
        self._offset = 0.0  # of the chunk in the audio, in seconds

    def add(self, part: Part) -> None:
        """The next chunk."""
        language = part.language or self._language
        if self._language is not None and language != self._language and not self._timestamps:
            self._close(None)
        self._language = language
        length, left, right = part.stride or NO_STRIDE
        self._offset -= left
        first, held = self._inner(part)
        clock = _Clock(part.tokens, self._speech.timestamps)
        spoken = heard(part.tokens, part.times, part.probabilities, self._offset)
        for i, one in enumerate(spoken):
            if one.token < self._speech.end:
                self._current.append(one)
            elif one.token >= self._speech.timestamps:
                time = clock.read(i) + self._offset
                self._mark(one.token, round(time + clock.window, 2), first, held)
        self._offset += length - right
        if self._current:
            self._held.append(self._current)
            self._current = []
        elif not any(self._held):
            self._held, self._start = [], None

    def _inner(self, part: Part) -> tuple[float, float]:
        """The first timestamp behind the left stride, and the first of those to hold back.

        These are in the right stride, if there is one. The last is held back wherever it is.
        """
        begin = self._speech.timestamps
        length, left, right = part.stride or NO_STRIDE
        held = math.inf
        for token in reversed(part.tokens if right else ()):
            if token >= begin:
                if held < math.inf and (token - begin) * PRECISION < length - right:
                    break
                held = token
        return left / PRECISION + begin, held

    def _mark(self, token: int, time: float, first: float, held: float) -> None:
        """A timestamp opens a segment, closes it, or is left to the neighbouring chunk."""
        if token >= held:
            self._skip = True  # decided in the next chunk, which hears it too
        elif self._skip or (self._held and token < first):
            self._skip = False
        elif self._start is None:
            self._start = time
        elif time != self._start:  # the same again does not close, but opens
            self._close(time)

    def _close(self, end: float | None) -> None:
        """Ends the open segment at ``end``."""
        spoken = join([*self._held, self._current])
        tokens = tuple(one.token for one in spoken)
        words = to_words(spoken, self._speech, self._language) if self._words else None
        text = self._speech.decode(tokens)
        segment = Segment(self._start, end, text, tokens, words, self._language)
        self._segments.append(segment)
        self._held, self._current, self._start = [], [], None

    def finish(self) -> list[Segment]:
        """All segments, with what no timestamp closed as the last one."""
        if self._held:
            self._close(None)
        return self._segments


class _Clock:
    """Reads timestamps, which count from the beginning of the window that they are in.

    A time that goes back begins the next window. ``window`` is where that is, in seconds: 30 s
    after the last one if that ended with a single timestamp, else at the last pair.
    """

    def __init__(self, tokens: Sequence[int], begin: int) -> None:
        self._tokens, self._begin = tokens, begin
        self._before = self._last = self.window = 0.0

    def read(self, i: int) -> float:
        """The time of token ``i``, in seconds from the beginning of its window."""
        time = (self._tokens[i] - self._begin) * PRECISION
        if time < self._last:
            if i >= 2 and min(self._tokens[i - 2 : i]) < self._begin:
                self.window += PRECISION * WINDOW
            else:
                self._last = self._before
                self.window += self._before
        self._before, self._last = self._last, time
        return time


def join(sequences: Sequence[Sequence[Heard]]) -> list[Heard]:
    """One sequence from several, of which each overlaps with the next one."""
    joined: list[Heard] = []
    left = sequences[0]
    for right in sequences[1:]:
        left_end, right_start = _seam(left, right)
        joined += left[:left_end]
        left = right[right_start:]
    return [*joined, *left]


def _seam(left: Sequence[Heard], right: Sequence[Heard]) -> tuple[int, int]:
    """Where to leave ``left`` and to enter ``right``: in the middle of where they agree best.

    ``right`` is laid over the end of ``left``, shifted by 1, 2, ... tokens. A shift is the better
    the greater the share of tokens that agree in it, and of like ones the longer. At least two
    tokens have to agree. Tokens do so if they are the same, and the left is not later.
    """
    n, m = len(left), len(right)
    if not n or not m:
        return n, 0
    a, b = (np.array([one[:3] for one in side], np.float64) for side in (left, right))
    (ids, starts, ends), (right_ids, right_starts, right_ends) = a.T[:, :, None], b.T[:, None, :]
    ordered = (starts < right_starts) | ((starts == right_starts) & (ends <= right_ends))
    rows, columns = np.nonzero((ids == right_ids) & ordered)
    shifts = np.arange(1, n + m)
    agree = np.bincount(n - rows + columns, minlength=n + m)[1:]
    scores = np.where(agree > 1, agree / shifts + shifts / 10000, 0)
    if not scores.any():
        return n, 0
    shift = int(shifts[np.argmax(scores)])
    left_span = max(0, n - shift) + min(n, n + m - shift)
    right_span = max(0, shift - n) + min(m, shift)
    return left_span // 2, right_span // 2
