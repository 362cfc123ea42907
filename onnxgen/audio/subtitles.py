"""Transcripts as files: txt, vtt, srt, tsv and json, byte for byte as openai-whisper writes them.

Where it differs, the other file would be broken or lack something: ``-->`` is replaced in cues of
words too, blank lines in cues and line breaks in rows of tsv are left out, a segment without words
stays among segments with words, JSON is not escaped to ASCII.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from onnxgen.audio.transcript import Segment, Transcript, Word
from onnxgen.errors import OptionError

LONG_PAUSE = 3.0  # seconds
ENDLESS = 1000  # letters of a line, words of a line


@dataclass(frozen=True, slots=True)
class Layout:
    """How words become subtitles.

    ``max_line_width`` is in letters, ``max_line_count`` in lines of a subtitle (it needs a width).
    With both, subtitles go on over the end of a segment, but not over a pause of 3 s.
    ``max_words_per_line`` ends a subtitle after so many words of a segment. ``highlight_words``
    repeats the subtitle for each word, which it underlines.

    OptionError for numbers below 1, and for options that leave another one without effect.
    """

    max_line_width: int | None = None
    max_line_count: int | None = None
    max_words_per_line: int | None = None
    highlight_words: bool = False

    def __post_init__(self) -> None:
        for name in ("max_line_width", "max_line_count", "max_words_per_line"):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if value is not None and not (whole and value >= 1):
                raise OptionError(f"{name} is {value!r}", wanted="a whole number of 1 or more")
        if self.max_line_count and not self.max_line_width:
            raise OptionError("max_line_count is given without max_line_width", wanted="both")
        if self.max_line_count and self.max_words_per_line:
            raise OptionError("max_words_per_line is given with max_line_count", wanted="one")

    @property
    def by_segment(self) -> bool:
        """Whether a segment begins a subtitle."""
        return self.max_line_width is None or self.max_line_count is None


class Cue(NamedTuple):
    """A subtitle: its text, and from when to when it is shown, in milliseconds."""

    start: int
    end: int
    text: str


def render(transcript: Transcript, name: str, layout: Layout | None = None) -> str:
    """``transcript`` as the content of a file; ``name`` is one of FORMATS.

    OptionError for an unknown format, for a layout where there are no cues, or no words to lay out.
    """
    if name in _CUES:
        return _CUES[name](cues(transcript, layout or Layout()))
    if name not in _PLAIN:
        raise OptionError.unknown(name, FORMATS, "the list of formats")
    if layout is not None:
        raise OptionError(
            f"a layout of subtitles is given for {name}", wanted=f"one of {', '.join(_CUES)}"
        )
    return _PLAIN[name](transcript)


def cues(transcript: Transcript, layout: Layout) -> list[Cue]:
    """The subtitles: one a segment, or laid out where there are words."""
    segments = _closed(transcript)
    if any(segment.words is not None for segment in segments):
        runs = list(_runs(segments, layout.max_words_per_line or ENDLESS))
        subtitles = [_shown(words, layout.highlight_words) for words in _subtitles(runs, layout)]
        shown = [cue for subtitle in subtitles for cue in subtitle]
    elif segments and layout != Layout():
        raise OptionError(
            "a layout of subtitles is given, but the transcript has no times of words",
            do="ask for timestamps of words",
        )
    else:
        shown = [_cue(one.start, one.end, one.text.strip()) for one in segments]
    return [cue._replace(text=_safe(cue.text)) for cue in shown]


def _safe(text: str) -> str:
    """``text`` without what would end its cue."""
    return re.sub(r"\n\s*\n", "\n", text).replace("-->", "->")


class _Closed(NamedTuple):
    """A segment that has both times."""

    start: float
    end: float
    text: str
    words: tuple[Word, ...] | None


def _closed(transcript: Transcript) -> list[_Closed]:
    """The segments; a time that the model left out is where the neighbour, or the audio, ends."""
    closed: list[_Closed] = []
    for i, one in enumerate(transcript.segments):
        start = one.start if one.start is not None else closed[-1].end if closed else 0.0
        end = one.end
        if end is None:
            following = [later.start for later in transcript.segments[i + 1 : i + 2]]
            known = [time for time in (*following, transcript.duration) if time is not None]
            end = max(start, known[0]) if known else start
        closed.append(_Closed(start, end, one.text, one.words))
    return closed


def _runs(segments: Sequence[_Closed], most: int) -> Iterator[Sequence[Word]]:
    """The words of each segment, ``most`` at a time."""
    for one in segments:
        words = one.words or ((Word(one.text, one.start, one.end),) if one.text.strip() else ())
        for i in range(0, len(words), most):
            yield words[i : i + most]


def _subtitles(runs: Sequence[Sequence[Word]], layout: Layout) -> Iterator[list[Word]]:
    """The words of each subtitle; those that begin a line but the first have a line break."""
    subtitle: list[Word] = []
    length, lines = 0, 1  # letters of the last line, lines so far
    last = runs[0][0].start if runs else 0.0
    for run in runs:
        for i, word in enumerate(run):
            pause = not layout.by_segment and word.start - last > LONG_PAUSE
            ends = i == 0 and bool(subtitle) and layout.by_segment
            fits = length + len(word.text) <= (layout.max_line_width or ENDLESS)
            if length and fits and not pause and not ends:
                length += len(word.text)
            else:
                text = word.text.strip()
                full = layout.max_line_count and (pause or lines >= layout.max_line_count)
                if ends or (subtitle and full):
                    yield subtitle
                    subtitle, lines = [], 1
                elif length:
                    lines += 1
                    text = "\n" + text
                length = len(text.strip())
                word = replace(word, text=text)
            subtitle.append(word)
            last = word.start
    if subtitle:
        yield subtitle


def _shown(words: Sequence[Word], highlight: bool) -> Iterator[Cue]:
    """The subtitle of ``words``; to highlight, one for each of them and for each pause."""
    texts = [word.text for word in words]
    whole = _cue(words[0].start, words[-1].end, "".join(texts))
    if not highlight:
        yield whole
        return
    shown_until = whole.start
    for i, word in enumerate(words):
        bare = word.text.lstrip()
        marked = f"{word.text[: len(word.text) - len(bare)]}<u>{bare}</u>"
        cue = _cue(word.start, word.end, "".join([*texts[:i], marked, *texts[i + 1 :]]))
        if cue.start != shown_until:
            yield Cue(shown_until, cue.start, whole.text)
        yield cue
        shown_until = cue.end


def _cue(start: float, end: float, text: str) -> Cue:
    return Cue(_milliseconds(start), _milliseconds(end), text)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _clock(milliseconds: int, mark: str, hours: bool) -> str:
    """``01:02:03.004`` with the decimal ``mark``; without ``hours`` 0 of them are left out."""
    rest, thousandths = divmod(milliseconds, 1000)
    minutes, seconds = divmod(rest, 60)
    hour, minutes = divmod(minutes, 60)
    before = f"{hour:02}:" if hours or hour else ""
    return f"{before}{minutes:02}:{seconds:02}{mark}{thousandths:03}"


def _vtt(cues: Sequence[Cue]) -> str:
    return "WEBVTT\n\n" + "".join(
        f"{_clock(start, '.', False)} --> {_clock(end, '.', False)}\n{text}\n\n"
        for start, end, text in cues
    )


def _srt(cues: Sequence[Cue]) -> str:
    return "".join(
        f"{number}\n{_clock(start, ',', True)} --> {_clock(end, ',', True)}\n{text}\n\n"
        for number, (start, end, text) in enumerate(cues, 1)
    )


def _txt(transcript: Transcript) -> str:
    return "".join(f"{segment.text.strip()}\n" for segment in transcript.segments)


def _tsv(transcript: Transcript) -> str:
    rows = ["start\tend\ttext\n"]
    for one in _closed(transcript):
        text = re.sub(r"[\t\n\r]", " ", one.text.strip())
        rows.append(f"{_milliseconds(one.start)}\t{_milliseconds(one.end)}\t{text}\n")
    return "".join(rows)


def _json(transcript: Transcript) -> str:
    segments = [_fields(i, one, transcript) for i, one in enumerate(transcript.segments)]
    content = {"text": transcript.text, "segments": segments, "language": transcript.language}
    return json.dumps(content, ensure_ascii=False)


def _fields(number: int, segment: Segment, transcript: Transcript) -> dict[str, Any]:
    """A segment as JSON has it; what is not known is left out, but times, which are null.

    Its language is there only if it is another one than the transcript's.
    """
    another = segment.language if segment.language != transcript.language else None
    words = segment.words and [_word_fields(word) for word in segment.words]
    fields = {
        "id": number,
        "seek": segment.seek,
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": segment.tokens,
        "temperature": segment.temperature,
        "avg_logprob": segment.avg_logprob,
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech_prob,
        "words": words,
        "language": another,
    }
    return {k: v for k, v in fields.items() if v is not None or k in ("start", "end")}


def _word_fields(word: Word) -> dict[str, Any]:
    fields = {"word": word.text, **asdict(word)}
    del fields["text"]
    return {k: v for k, v in fields.items() if v is not None}


_CUES: dict[str, Callable[[Sequence[Cue]], str]] = {"vtt": _vtt, "srt": _srt}
_PLAIN: dict[str, Callable[[Transcript], str]] = {"txt": _txt, "tsv": _tsv, "json": _json}
FORMATS = ("txt", "vtt", "srt", "tsv", "json")
