"""One call of a model that hears waveforms (Moonshine): each recording as a whole.

Letters: T samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onnxgen.audio.features import RawWaveform
from onnxgen.audio.reading import read
from onnxgen.audio.transcript import Segment, Transcript
from onnxgen.errors import AudioError, CancelledError, OnnxgenError, OptionError, SessionError
from onnxgen.generation.config import GenerationConfig
from onnxgen.runtime.memory import enough
from onnxgen.runtime.session import Cancel
from onnxgen.tasks.asking import Extras, Functions, Source
from onnxgen.tasks.speech.options import SpeechOptions

if TYPE_CHECKING:
    from onnxgen.runtime.encoder import Encoding
    from onnxgen.tasks.speech_to_text import SpeechToText

# Moonshine's model card: no one says more, and what says more has lost its way.
TOKENS_PER_SECOND = 6.5
SHORT = 0.1  # seconds; below, an encoder's first layers may have nothing to slide over


class Waves:
    """Runs once, a recording after the other; one that fails is among ``failures``."""

    def __init__(
        self,
        model: SpeechToText,
        sources: Sequence[Any],
        options: SpeechOptions,
        config: GenerationConfig,
        functions: Functions,
        reading: Mapping[str, Any],
    ) -> None:
        self._model, self._sources, self._config = model, sources, config
        self._reading = reading
        assert isinstance(model.extractor, RawWaveform)
        self._extractor: RawWaveform = model.extractor
        if given := options.given():
            raise OptionError(f"{given[0]} for a model that knows nothing of it", do="leave it out")
        self.failures: dict[int, OnnxgenError] = {}
        self.duration: dict[int, float] = {}
        self._results: dict[int, Transcript] = {}
        self._cancelled = functions.cancel or Cancel()
        self._functions = replace(functions, cancel=self._cancelled)

    def run(self) -> Generator[tuple[int, list[Segment]], None, None]:
        """The number of a recording with what was said in it."""
        with enough("hear the recordings"):
            yield from self._run()

    def _run(self) -> Iterator[tuple[int, list[Segment]]]:
        for index, source in enumerate(self._sources):
            if self._cancelled.cancelled:
                raise CancelledError("the request was cancelled")
            try:
                samples = read(source, self._extractor.sampling_rate, **self._reading)
            except OnnxgenError as error:
                self.failures[index] = error
                continue
            seconds = self.duration[index] = len(samples) / self._extractor.sampling_rate
            values, mask = self._extractor([samples])  # (1,T) both

            def encode(cancel: Cancel, values: Any = values, mask: Any = mask) -> Encoding:
                return self._model.encoder.encode(values, mask, cancel)

            extras = Extras(source=Source(encode))
            prompts = self._model.decoder_prompts(None, self._config, 1)
            config = self._bounded(seconds, len(prompts[0]))
            request = self._model.ask(prompts, config, self._functions, extras)
            try:
                with closing(request.steps()) as steps:
                    for _ in steps:
                        pass
            except SessionError as error:
                if seconds >= SHORT:
                    raise
                self.failures[index] = AudioError(
                    f"{seconds:.3f} s are too short for the model", wanted=f"{SHORT} s or more"
                )
                self.failures[index].__cause__ = error
                continue
            answer = request.results()[0][0]
            if not answer.text.strip():
                warnings.warn(
                    f"nothing was heard in recording {index}, which has {seconds:.1f} s: there may "
                    "be no speech in it, or the model's dtypes are too coarse",
                    stacklevel=2,
                )
            segment = Segment(0.0, seconds, answer.text, answer.tokens)
            self._results[index] = Transcript(answer.text, (segment,), duration=seconds)
            yield index, [segment]

    def results(self) -> list[Transcript]:
        """What was said in each recording that could be read, once all are done."""
        return [self._results[i] for i in sorted(self._results)]

    def result(self, index: int) -> Transcript | None:
        """That of one recording, if it is done."""
        return self._results.get(index)

    def cancel(self) -> None:
        """From any thread: ends what runs within a node, with CancelledError."""
        self._cancelled.cancel()

    def _bounded(self, seconds: float, prompt: int) -> GenerationConfig:
        """The options, with a bound on the answer's length where they have none."""
        config = self._config
        if config.max_new_tokens is not None or config.max_length not in (None, 20):
            return config
        return replace(config, max_new_tokens=max(int(seconds * TOKENS_PER_SECOND) - prompt, 1))
