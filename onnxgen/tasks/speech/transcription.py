"""One call of a Whisper: recordings read as their turn comes, and what was said in each.

Letters: T samples, M mel bins, F frames.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxgen.audio.features import LogMel
from onnxgen.audio.merging import Part, merge, spans
from onnxgen.audio.reading import read
from onnxgen.audio.transcript import Segment, SpeechTokens, Transcript
from onnxgen.errors import (
    AudioError,
    CancelledError,
    OnnxgenError,
    OptionError,
    UnsupportedModelError,
)
from onnxgen.generation.config import GenerationConfig
from onnxgen.runtime.memory import enough
from onnxgen.tasks.asking import Functions
from onnxgen.tasks.speech.longform import LongForm, Recording
from onnxgen.tasks.speech.options import SpeechOptions
from onnxgen.tasks.speech.prompt import Whisper
from onnxgen.tasks.speech.windows import Listener

if TYPE_CHECKING:
    from onnxgen.tasks.speech_to_text import SpeechToText

READING = ("sampling_rate", "max_seconds", "max_bytes")
BATCH = 8  # recordings or chunks at once


class Transcription:
    """Runs once; a recording that cannot be read is among ``failures``, the others go on."""

    def __init__(
        self,
        model: SpeechToText,
        sources: Sequence[Any],
        options: SpeechOptions,
        config: GenerationConfig,
        functions: Functions,
        reading: Mapping[str, Any],
    ) -> None:
        self._model, self._sources, self._options = model, sources, options
        self._config, self._reading = config, reading
        if config.seeds is not None and len(config.seeds) != len(sources):
            raise OptionError(
                f"{len(config.seeds)} seeds for {len(sources)} recordings", wanted="one for each"
            )
        self.failures: dict[int, OnnxgenError] = {}
        self.duration: dict[int, float] = {}  # seconds of each recording that was read
        self._results: dict[int, Transcript] = {}
        assert isinstance(model.extractor, LogMel)
        self._mel: LogMel = model.extractor
        start = model.starts(config, 1)[0]
        whisper = Whisper(model.defaults, model.files.json("config.json"), start)
        self._languages = self._each_language(whisper)
        self._listener = Listener(model, whisper, options, config, functions)
        width = model.model.vocab_size
        begin = width + 1 if whisper.no_times is None else whisper.no_times + 1
        end = min(self._listener.ends, default=width)
        self._speech = SpeechTokens(end, begin, model.tokenizer.decode)
        batch = options.batch_size or BATCH
        prompt = self._prompt(whisper)
        self._long = LongForm(self._listener, self._mel, self._speech, prompt, batch)

    def run(self) -> Generator[tuple[int, list[Segment]], None, None]:
        """The number of a recording with its next segments, as soon as they are settled."""
        with enough("hear the recordings"):
            yield from self._run()

    def _run(self) -> Iterator[tuple[int, list[Segment]]]:
        if self._options.chunk_length_s is not None:
            yield from self._chunks()
            return
        kept: dict[int, list[Segment]] = {}
        for recording, segments in self._long.run(self._recordings()):
            own = kept.setdefault(recording.index, [])
            own += segments
            if recording.done:
                self._finish(recording, kept.pop(recording.index))
            yield recording.index, segments

    def results(self) -> list[Transcript]:
        """What was said in each recording that could be read, once all are done."""
        return [self._results[i] for i in sorted(self._results)]

    def result(self, index: int) -> Transcript | None:
        """That of one recording, if it is done."""
        return self._results.get(index)

    def cancel(self) -> None:
        """From any thread: ends what runs within a node, with CancelledError."""
        self._listener.cancel()

    def _recordings(self) -> Iterator[Recording]:
        for index, source in enumerate(self._sources):
            if (samples := self._read(index, source)) is None:
                continue
            try:
                recording = self._long.recording(
                    index,
                    self._mel(samples),  # (M,F)
                    self._mel.frames(len(samples)),
                    language=self._languages[index],
                    seed=self._seed(index),
                )
            except (AudioError, OptionError) as error:
                self.failures[index] = error
            else:
                yield recording

    def _read(self, index: int, source: Any) -> Any:
        """The waveform (T,); None, with the failure noted, if there is none."""
        if self._listener.cancelled.cancelled:
            raise CancelledError("the request was cancelled")
        rate = self._mel.sampling_rate
        try:
            samples = read(source, rate, **self._reading)
        except OnnxgenError as error:
            self.failures[index] = error
            return None
        self.duration[index] = len(samples) / rate
        return samples

    def _finish(self, recording: Recording, segments: Sequence[Segment]) -> None:
        self._results[recording.index] = Transcript(
            text=self._speech.text(recording.tokens),
            segments=tuple(segments),
            language=recording.language,
            language_probability=recording.language_probability,
            duration=self.duration[recording.index],
        )

    def _chunks(self) -> Iterator[tuple[int, list[Segment]]]:
        """Each recording in chunks that overlap, many at a time, merged when all are heard."""
        options, rate = self._options, self._mel.sampling_rate
        for index, source in enumerate(self._sources):
            if (samples := self._read(index, source)) is None:
                continue
            cuts = spans(len(samples), rate, options.chunk_length_s or 0, options.stride_length_s)
            try:
                chunks = [
                    self._long.recording(
                        number,
                        self._mel(samples[cut.start : cut.stop]),
                        self._mel.frames(cut.stop - cut.start),
                        language=self._languages[index],
                        seed=self._seed(index),
                    )
                    for number, cut in enumerate(cuts)
                ]
            except AudioError as error:
                self.failures[index] = error
                continue
            for _ in self._long.run(iter(chunks)):
                pass
            parts = [
                Part(
                    chunk.tokens,
                    chunk.ends if options.words else None,
                    (
                        (cut.stop - cut.start) / rate,
                        cut.left / rate,
                        cut.right / rate,
                    ),
                    chunk.language,
                    chunk.chances if options.words else None,
                )
                for chunk, cut in zip(chunks, cuts, strict=True)
            ]
            segments = merge(parts, self._speech, timestamps=bool(options.return_timestamps))
            first = chunks[0]
            self._results[index] = Transcript(
                text="".join(segment.text for segment in segments),
                segments=tuple(segments),
                language=first.language,
                language_probability=first.language_probability,
                duration=self.duration[index],
            )
            yield index, segments

    def _each_language(self, whisper: Whisper) -> list[str | None]:
        """The language of each recording; OptionError for one that the model lacks."""
        language, count = self._options.language, len(self._sources)
        if language is None or isinstance(language, str):
            each: list[Any] = [language] * count
        elif isinstance(language, list | tuple):
            each = list(language)
        else:
            raise OptionError(f"language is {language!r}", wanted="a code or a name, or several")
        if len(each) != count:
            raise OptionError(
                f"{len(each)} languages for {count} recordings",
                wanted="one, or one for each recording",
            )
        times = bool(self._options.return_timestamps)
        for one in each:
            whisper.init(one, self._options.task, times)
        return each

    def _seed(self, index: int) -> int | None:
        seeds = self._config.seeds
        return seeds[index] if seeds is not None else self._config.seed

    def _prompt(self, whisper: Whisper) -> list[int]:
        """What was said before, as ids that open with <|startofprev|>."""
        options, model = self._options, self._model
        if options.prompt_ids is not None:
            return model.checked("prompt_ids", options.prompt_ids)
        if options.initial_prompt is None:
            return []
        if whisper.previous is None:
            raise UnsupportedModelError(
                "initial_prompt is given, and the model names no token for what was said before",
                wanted="prev_sot_token_id in generation_config.json",
                do="leave it out",
            )
        text = " " + options.initial_prompt.strip()
        ids = model.tokenizer.encode(text, add_special_tokens=False)
        if any(token >= self._speech.end for token in ids):
            raise OptionError("initial_prompt holds special tokens", wanted="plain text")
        kept = (model.capacity or 448) // 2 - 1
        return [whisper.previous, *ids[-kept:]]
