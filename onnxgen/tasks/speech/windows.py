"""What is said in windows: several at once, tried again at higher temperatures where need be.

The rules are those of ``WhisperGenerationMixin.generate_with_fallback`` in transformers 4.57.6,
for each window as if it were alone.

Letters: B windows, P tokens of a decoder's prompt, V vocabulary.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np

from onnxgen.audio.alignment import along, token_times
from onnxgen.audio.quality import Verdict, average_logprob, compression_ratio
from onnxgen.errors import ModelFileError, UnsupportedModelError
from onnxgen.generation import processors
from onnxgen.generation.config import GenerationConfig, stop_ids
from onnxgen.generation.results import Generation
from onnxgen.generation.sampling import SEEDS, Sampler, TorchSampler
from onnxgen.generation.sequences import Processor
from onnxgen.generation.softmax import softmax
from onnxgen.generation.whisper_rules import timestamps
from onnxgen.runtime.encoder import Encoding
from onnxgen.runtime.session import Cancel
from onnxgen.runtime.watch import Watch
from onnxgen.tasks.asking import Extras, Functions, Source
from onnxgen.tasks.encoder_decoder import EncoderDecoder
from onnxgen.tasks.speech.options import SpeechOptions
from onnxgen.tasks.speech.prompt import Whisper

STEP = 0x9E3779B97F4A7C15  # parts the seeds of one recording's draws


@dataclass(slots=True)
class Voice:
    """What a recording carries from window to window beside its tokens."""

    seed: int | None = None
    draws: int = 0  # answers that were sampled so far
    sampler: Sampler | None = None  # torch's goes on from answer to answer
    single: bool = False  # a sampled answer leaves all later ones without beams


@dataclass(frozen=True, slots=True)
class Window:
    """One window: its decoder's prompt, of which the last ``opening`` ids are Whisper's own."""

    prompt: Sequence[int]
    opening: int
    frames: int  # that are audio
    times: bool  # whether the answer has timestamps
    voice: Voice


@dataclass(frozen=True, slots=True)
class Answer:
    """What was heard in a window."""

    tokens: tuple[int, ...]  # without the end
    temperature: float
    skipped: bool  # there is no speech
    avg_logprob: float | None = None
    compression_ratio: float | None = None
    no_speech_prob: float | None = None
    times: Sequence[float] | None = None  # of each token's end, in seconds from the window's start
    probabilities: Sequence[float] | None = None


@dataclass(slots=True)
class Listener:
    """Decodes windows for one call, until it is cancelled."""

    host: EncoderDecoder
    whisper: Whisper
    options: SpeechOptions
    config: GenerationConfig
    functions: Functions
    cancelled: Cancel = field(init=False)
    rules: list[Processor] = field(init=False)
    ends: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        """Builds what all windows share; OptionError for suppressed ids that make no sense."""
        self.cancelled = self.functions.cancel or Cancel()
        self.functions = replace(self.functions, cancel=self.cancelled)
        config, vocab = self.config, self.host.model.vocab_size
        self.ends, self.rules = stop_ids(config), []
        if config.begin_suppress_tokens is not None:
            rule = processors.suppress_at_begin(
                config.begin_suppress_tokens, vocab_size=vocab, after_bos=False
            )
            self.rules.append(rule)
        if config.suppress_tokens is not None:
            self.rules.append(processors.suppress(config.suppress_tokens, vocab))
        self.config = replace(config, suppress_tokens=None, begin_suppress_tokens=None)

    def cancel(self) -> None:
        """From any thread: ends what runs, with CancelledError."""
        self.cancelled.cancel()

    def _times(self) -> Processor:
        whisper = self.whisper
        if whisper.no_times is None:
            raise ModelFileError(
                "times are asked for, and generation_config.json has no no_timestamps_token_id",
                do="download a newer generation_config.json",
            )
        vocab, end = self.host.model.vocab_size, min(self.ends, default=None)
        return timestamps(whisper.no_times, end, vocab, max_initial=whisper.max_initial)

    def hear(self, encoding: Encoding, windows: Sequence[Window]) -> list[Answer]:
        """The answers to ``windows``, encoded as the rows (B) of ``encoding``."""
        found: dict[int, Answer] = {}
        waiting = list(range(len(windows)))
        temperatures = self.options.temperatures
        for attempt, temperature in enumerate(temperatures):
            last = attempt + 1 == len(temperatures)
            again = []
            for places in self._parts(windows, waiting, temperature):
                own = encoding
                if len(places) < len(windows):
                    own = encoding.rows(np.array(places), self.host.model.device)
                answers = self._ask(own, [windows[i] for i in places], temperature)
                for place, (answer, verdict) in zip(places, answers, strict=True):
                    found[place] = answer
                    if verdict is Verdict.RETRY and not last:
                        again.append(place)
            waiting = sorted(again)
            if not waiting:
                break
        return [found[i] for i in range(len(windows))]

    def _parts(
        self, windows: Sequence[Window], places: Sequence[int], temperature: float
    ) -> Iterable[list[int]]:
        """The windows that may run as one batch.

        Those with as many beams, with or without times; those with times of words, and those that
        torch draws for, alone.
        """
        torch = temperature > 0 and self.config.rng == "torch"
        if self.options.words or torch:
            return [[place] for place in places]
        alike: dict[tuple[bool, bool], list[int]] = {}
        for place in places:
            window = windows[place]
            alike.setdefault((window.times, window.voice.single), []).append(place)
        return alike.values()

    def _ask(
        self, encoding: Encoding, windows: Sequence[Window], temperature: float
    ) -> list[tuple[Answer, Verdict]]:
        """One attempt on windows that run together."""
        thresholds, words = self.options.thresholds, self.options.words
        watch = Watch(
            back=windows[0].opening - 1 if thresholds.no_speech is not None else None,
            heads=self._heads() if words else {},
        )
        config, sampler = self._tuned(windows, temperature)
        extras = Extras(
            source=Source(lambda cancel: encoding),
            rules=[*self.rules, self._times()] if windows[0].times else self.rules,
            watch=watch,
            sampler=sampler,
            heat=temperature or 1.0,
        )
        prompts = [window.prompt for window in windows]
        request = self.host.ask(prompts, config, self.functions, extras)
        with closing(request.steps()) as steps:
            for _ in steps:
                pass
        answers = []
        for row, (window, found) in enumerate(zip(windows, request.results(), strict=True)):
            silence = self._silence(watch, row)
            answers.append(self._judged(found[0], window, temperature, silence, watch))
        return answers

    def _tuned(
        self, windows: Sequence[Window], temperature: float
    ) -> tuple[GenerationConfig, Sampler | None]:
        """The options of an attempt, and torch's generator where it draws."""
        voices = [window.voice for window in windows]
        config = replace(self.config, do_sample=temperature > 0, temperature=1.0, logprobs=True)
        if temperature <= 0:
            return replace(config, num_beams=1 if voices[0].single else config.num_beams), None
        for voice in voices:
            voice.single, voice.draws = True, voice.draws + 1
        config = replace(config, num_beams=1, temperature=float(temperature))
        if config.rng == "torch":
            first = voices[0]
            first.sampler = first.sampler or TorchSampler(first.seed or 0, 1)
            return config, first.sampler
        if voices[0].seed is None:
            return config, None
        seeds = [((voice.seed or 0) + STEP * voice.draws) % SEEDS for voice in voices]
        return replace(config, seed=None, seeds=seeds), None

    def _silence(self, watch: Watch, row: int) -> float | None:
        if watch.back is None or self.whisper.no_times is None:
            return None
        return float(softmax(watch.logits[row][None])[0, self.whisper.no_times - 1])

    def _judged(
        self,
        found: Generation,
        window: Window,
        temperature: float,
        silence: float | None,
        watch: Watch,
    ) -> tuple[Answer, Verdict]:
        tokens, logprobs = found.tokens, found.token_logprobs or ()
        ratio = compression_ratio(tokens, self.host.model.vocab_size) if tokens else None
        average = average_logprob(logprobs) if logprobs else None
        verdict = self.options.thresholds.judge(ratio, average, silence)
        times = None
        if watch.heads:
            rows = found.beam_indices or [0] * len(tokens)
            weights = along(watch.steps[: len(tokens)], [0, *rows[1:]])  # (A,N,T)
            times = token_times(weights, len(window.prompt), window.frames).tolist()
        ended = bool(tokens) and tokens[-1] in self.ends
        answer = Answer(
            tokens=tokens[:-1] if ended else tokens,
            temperature=temperature,
            skipped=verdict is Verdict.SKIP,
            avg_logprob=average,
            compression_ratio=ratio,
            no_speech_prob=silence,
            times=times,
            probabilities=np.exp(logprobs).tolist() if logprobs else None,
        )
        return answer, verdict

    def _heads(self) -> Mapping[str, Sequence[int]]:
        """The outputs with the weights of the alignment heads, and which heads of each."""
        if not self.whisper.heads:
            raise ModelFileError(
                "times of words are asked for, and generation_config.json has no alignment_heads",
                do="take the generation_config.json of the original model",
            )
        outputs = {}
        for name in self.host.model.graph.extra_outputs:
            if number := re.fullmatch(r"cross_(?:attentions?|qk)[._](\d+)", name):
                outputs[int(number[1])] = name
        heads: dict[str, list[int]] = {}
        for layer, head in self.whisper.heads:
            if layer not in outputs:
                raise UnsupportedModelError(
                    f"{self.host.model.graph.path.name} does not give the cross-attention of layer "
                    f"{layer}, which tells the times of words",
                    wanted="an export with cross-attentions (its name often ends in _timestamped)",
                    do="ask for return_timestamps=True, or take such an export",
                )
            heads.setdefault(outputs[layer], []).append(head)
        return heads
