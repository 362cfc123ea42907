"""Recordings of any length, window after window: each begins where the one before made sense.

The rules are those of ``WhisperGenerationMixin.generate`` in transformers 4.57.6, for each
recording as if it were alone, also where several run together.

Letters: M mel bins, F frames of 0.01 s.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np

from onnxgen.audio.features import LogMel
from onnxgen.audio.languages import code_of
from onnxgen.audio.segments import PRECISION, STRIDE, split
from onnxgen.audio.transcript import Segment, SpeechTokens
from onnxgen.audio.words import in_order, with_words
from onnxgen.errors import OptionError
from onnxgen.generation.softmax import softmax
from onnxgen.runtime.encoder import Encoding
from onnxgen.runtime.watch import Floats
from onnxgen.tasks.speech.windows import Answer, Listener, Voice, Window

WARM = 0.5  # answers at lower temperatures are good enough to be the prompt of what follows


@dataclass(slots=True)
class Recording:
    """A recording on its way."""

    index: int
    features: Floats  # (M,F)
    heard: int  # frames that are audio
    opening: list[int | None]  # the decoder's first ids
    times: bool  # whether timestamps are asked for
    voice: Voice
    trusted: bool  # whether what was heard is the prompt of what follows
    history: list[Sequence[int]] = field(default_factory=list)  # tokens, segment by segment
    tokens: list[int] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)  # of the tokens, in seconds, if words are asked
    chances: list[float] = field(default_factory=list)
    language: str | None = None
    language_probability: float | None = None
    seek: int = 0  # the next window's first frame
    spoken: float = 0.0  # the end of the last word, in seconds

    @property
    def done(self) -> bool:
        """Whether its end is reached."""
        return bool(self.seek >= self.features.shape[1])


class LongForm:
    """Transcribes recordings together, at most ``batch`` windows at once.

    ``prompt`` is what was said before all of them, <|startofprev|> included.
    """

    def __init__(
        self,
        listener: Listener,
        mel: LogMel,
        speech: SpeechTokens,
        prompt: Sequence[int] = (),
        batch: int = 1,
    ) -> None:
        self._listener, self._mel, self._speech = listener, mel, speech
        self._prompt, self._batch = list(prompt), batch
        self._options, self._whisper = listener.options, listener.whisper
        positions = listener.host.capacity or 448
        self._kept = positions // 2 - 1  # tokens of what was heard before

    def recording(
        self,
        index: int,
        features: Floats,
        heard: int,
        *,
        language: str | None = None,
        seed: int | None = None,
    ) -> Recording:
        """A recording at its start; OptionError where one beyond a window is to have no times."""
        options, times = self._options, bool(self._options.return_timestamps)
        if features.shape[1] > self._mel.window_frames and not times:
            if options.return_timestamps is False:
                frames, most = features.shape[1], self._mel.window_frames
                raise OptionError(
                    f"return_timestamps is False for a recording of {frames / 100:.0f} s",
                    wanted=f"at most {most / 100:.0f} s without timestamps",
                    do="leave it out, or give chunk_length_s",
                )
            times = True
        history: list[Sequence[int]] = []
        if self._prompt and options.prompt_condition_type != "all-segments":
            known = self._prompt[0] == self._whisper.previous
            history.append(self._prompt[1:] if known else self._prompt)
        opening = self._whisper.init(language, options.task, times)
        trusted = bool(options.condition_on_prev_tokens)
        recording = Recording(index, features, heard, opening, times, Voice(seed), trusted, history)
        if language is not None:
            recording.language = code_of(language)
        return recording

    def run(self, recordings: Iterator[Recording]) -> Iterator[tuple[Recording, list[Segment]]]:
        """Each recording with the segments of its next window, until all are done."""
        active: list[Recording] = []
        exhausted = False
        while True:
            while not exhausted and len(active) < self._batch:
                new = next(recordings, None)
                exhausted = new is None
                active += [] if new is None else [new]
            if not active:
                return
            for recording, answer in self._round(active):
                yield recording, self._take(recording, answer)
            active = [recording for recording in active if not recording.done]

    def _round(self, active: Sequence[Recording]) -> list[tuple[Recording, Answer]]:
        """The answers to the next window of each recording."""
        listener = self._listener
        mel = np.stack([self._mel.window(r.features, r.seek) for r in active])  # (B,M,F)
        encoding = listener.host.encoder.encode(mel, None, listener.cancelled)
        unknown = [i for i, r in enumerate(active) if None in r.opening]
        if unknown:
            self._detect(encoding, active, unknown)
        windows = [
            Window(
                self._prefix(r) + self._opening(r),
                len(r.opening),
                self._frames(r),
                r.times,
                r.voice,
            )
            for r in active
        ]
        return list(zip(active, listener.hear(encoding, windows), strict=True))

    def _frames(self, recording: Recording) -> int:
        """How many frames of the next window are audio."""
        return max(0, min(recording.heard - recording.seek, self._mel.window_frames))

    def _opening(self, recording: Recording) -> list[int]:
        return [token for token in recording.opening if token is not None]

    def _prefix(self, recording: Recording) -> list[int]:
        """What stands before the decoder's opening: what was said before."""
        previous = self._whisper.previous
        if not (recording.trusted and recording.history):
            return self._prompt
        head = [] if previous is None else [previous]
        if self._prompt and self._options.prompt_condition_type == "all-segments":
            head = self._prompt
        begin = self._speech.timestamps
        said: list[int] = []
        for tokens in recording.history:
            twice = len(tokens) > 2 and tokens[-2] >= begin
            said += tokens[:-1] if twice else tokens
        return [*head, *said[-self._kept :]]

    def _take(self, recording: Recording, answer: Answer) -> list[Segment]:
        """Moves on by what the answer says, and gives its segments."""
        frames = min(self._mel.window_frames, recording.features.shape[1] - recording.seek)
        start, recording.trusted = recording.seek, self._trusts(answer)
        if answer.skipped:
            recording.seek += frames
            return []
        offset = start * PRECISION / STRIDE
        segments, advance = split(answer.tokens, self._speech, frames, offset)
        recording.seek += advance
        recording.history += [segment.tokens for segment in segments]
        place, told = 0, []
        for segment in segments:
            told.append(self._told(segment, recording, answer, start, place))
            place += len(segment.tokens)
        recording.tokens += answer.tokens[:place]
        return told

    def _trusts(self, answer: Answer) -> bool:
        return bool(self._options.condition_on_prev_tokens) and answer.temperature < WARM

    def _told(
        self, segment: Segment, recording: Recording, answer: Answer, seek: int, place: int
    ) -> Segment:
        """The segment with all that is known; ``place`` is its first token's in the answer."""
        segment = replace(
            segment,
            language=recording.language,
            seek=seek,
            temperature=answer.temperature,
            avg_logprob=answer.avg_logprob,
            compression_ratio=answer.compression_ratio,
            no_speech_prob=answer.no_speech_prob,
        )
        if answer.times is None:
            return segment
        own = slice(place, place + len(segment.tokens))
        offset = seek * PRECISION / STRIDE
        # A window may begin in the filling behind a short recording, or a chunk's last part.
        last = recording.heard * PRECISION / STRIDE
        times = [min(time + offset, last) for time in answer.times[own]]
        chances = (answer.probabilities or ())[own]
        recording.ends += times
        recording.chances += chances
        segment = with_words(segment, times, self._speech, recording.language, chances)
        words = in_order(segment.words or (), recording.spoken, max(last, recording.spoken))
        recording.spoken = words[-1].end if words else recording.spoken
        return replace(segment, words=words)

    def _detect(
        self, encoding: Encoding, active: Sequence[Recording], unknown: Sequence[int]
    ) -> None:
        """Finds the language of those that have none yet, by one step of the decoder."""
        whisper, model = self._whisper, self._listener.host.model
        ones = np.ones(len(active), np.int64)
        begin = model.start(1, encoding=encoding, cancel=self._listener.cancelled)
        with closing(begin) as decoder:
            logits = decoder.step(np.full((len(active), 1), whisper.start), ones).copy()  # (B,V)
        ids = np.array(sorted(whisper.languages.values()))
        for i in unknown:
            shares = softmax(logits[i : i + 1, ids])[0]
            best, recording = int(shares.argmax()), active[i]
            token = int(ids[best])
            place = recording.opening.index(None)
            recording.opening[place] = token
            recording.language = whisper.language_of(token)
            recording.language_probability = float(shares[best])
        decoder.close()
