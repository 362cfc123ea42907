"""Speech to text: recordings in, what was said in them out, with times if wanted."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from numbers import Real
from typing import Any

from onnxgen.audio.features import LogMel, extractor
from onnxgen.audio.transcript import Segment, Transcript
from onnxgen.errors import ModelFileError, OptionError, UnsupportedModelError
from onnxgen.files import ModelFiles
from onnxgen.generation.config import GenerationConfig
from onnxgen.runtime.session import PLAIN, Engine
from onnxgen.tasks.encoder_decoder import EncoderDecoder
from onnxgen.tasks.speech.options import NAMES, SpeechOptions
from onnxgen.tasks.speech.transcription import READING, Transcription
from onnxgen.tasks.speech.waves import Waves

OWN = (*sorted(NAMES), *READING)
UNTOLD = ("output_scores", "logprobs", "top_logprobs")  # a transcript has no place for them


class SpeechToText(EncoderDecoder):
    """A speech encoder and its decoder: Whisper and its like hear spectrograms, Moonshine waves."""

    def __init__(self, files: ModelFiles, engine: Engine = PLAIN) -> None:
        super().__init__(files, engine)
        config = files.json("preprocessor_config.json") or files.json("processor_config.json")
        if not config:
            raise ModelFileError(
                f"{files.source} has no preprocessor_config.json",
                wanted="how audio becomes features",
                do="download the whole repository",
            )
        self.extractor = extractor(config)
        main = self.encoder.graph.main
        if len(main.shape) != (3 if isinstance(self.extractor, LogMel) else 2):
            raise UnsupportedModelError(
                f"the encoder of {files.source} takes {main.name} {list(main.shape)}",
                wanted="what preprocessor_config.json describes",
                do="download the repository again, with all its files of one export",
            )

    def generate(
        self, audio: Any, *, config: GenerationConfig | None = None, **keywords: Any
    ) -> Transcript | list[Transcript]:
        """What is said in a recording, or in each of a list of them.

        A recording is whatever :func:`onnxgen.audio.reading.read` takes: a path, bytes, a binary
        file, an array (with ``sampling_rate`` if that is not the model's), or a dict of both.
        ``keywords`` are the options of :class:`SpeechOptions` and :class:`GenerationConfig`, what
        :class:`onnxgen.tasks.request.Functions` lists, and the limits ``max_seconds`` and
        ``max_bytes``.

        Raises:
            AudioError, InputNotFoundError: no recording, or a broken one.
            OptionError: an unknown option, a wrong value, or a language that the model lacks.
        """
        sources, several = as_recordings(audio)
        call = self.transcription(sources, config, keywords)
        with closing(call.run()) as steps:
            for _ in steps:
                pass
        if call.failures:
            raise next(iter(call.failures.values()))
        results = call.results()
        return results if several else results[0]

    def stream(
        self, audio: Any, *, config: GenerationConfig | None = None, **keywords: Any
    ) -> Iterator[Segment]:
        """The segments of one recording, each as soon as it is settled."""
        call = self.transcription([audio], config, keywords)
        return self._segments(call)

    def _segments(self, call: Transcription | Waves) -> Iterator[Segment]:
        with closing(call.run()) as steps:
            for _, segments in steps:
                yield from segments
        if call.failures:
            raise call.failures[0]

    def transcription(
        self, sources: Sequence[Any], config: GenerationConfig | None, keywords: Mapping[str, Any]
    ) -> Transcription | Waves:
        """A checked call, ready to run: for those who want progress, or to cancel."""
        reading = {name: keywords[name] for name in READING if keywords.get(name) is not None}
        windows = isinstance(self.extractor, LogMel)
        own = OWN if windows else tuple(name for name in OWN if name != "temperature")
        rest = {name: value for name, value in keywords.items() if name not in own}
        merged, functions = self._merged(config, rest, own, {})
        if (merged.num_return_sequences or 1) > 1:
            raise OptionError("num_return_sequences for speech", wanted="one answer", do="drop it")
        for name in UNTOLD:
            if keywords.get(name):
                raise OptionError(f"{name} for speech, where nothing tells it", do="leave it out")
        options = SpeechOptions.of({n: keywords[n] for n in own if n in keywords}, self.defaults)
        kind = Transcription if windows else Waves
        return kind(self, sources, options, merged, functions, reading)


def as_recordings(audio: Any) -> tuple[list[Any], bool]:
    """Recordings as a list, and whether they came as one; a list of numbers is one recording."""
    if isinstance(audio, list | tuple) and not (audio and isinstance(audio[0], Real)):
        if not audio:
            raise OptionError("there is no recording", wanted="one at least")
        return list(audio), True
    return [audio], False
