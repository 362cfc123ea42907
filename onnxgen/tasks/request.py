"""One request on a decoder: checked before it runs, then run by the method that it asks for."""

import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np

from onnxgen.errors import LogitsError, OptionError
from onnxgen.generation import config as options
from onnxgen.generation import pipeline
from onnxgen.generation.beams import BeamOptions, Beams, beam_search
from onnxgen.generation.choosing import Chooser
from onnxgen.generation.config import GenerationConfig
from onnxgen.generation.guidance import GuidedSteps
from onnxgen.generation.hypotheses import Hypothesis
from onnxgen.generation.loop import Clock, Row, padded, run
from onnxgen.generation.processors import guidance_scale
from onnxgen.generation.protocol import Steps
from onnxgen.generation.results import Generation, Piece, Statistics, Step
from onnxgen.generation.sampling import Sampler, new_sampler
from onnxgen.generation.sequences import Sequences
from onnxgen.generation.stopping import Criterion, any_of, stop_strings
from onnxgen.runtime import memory
from onnxgen.runtime.decoder import Decoder, DecoderModel
from onnxgen.runtime.encoder import Encoding
from onnxgen.runtime.scene import Scene
from onnxgen.runtime.session import Cancel
from onnxgen.tasks.asking import NOTHING, Extras, Functions
from onnxgen.tasks.prompts import checked_ids
from onnxgen.tasks.selected import Selection
from onnxgen.tasks.speculating import Guesses
from onnxgen.text.stream import TextStream
from onnxgen.text.token_bytes import token_bytes
from onnxgen.text.tokenizer import Tokenizer


class Request:
    """Prompts with all that is to be done with them; runs once.

    ``room`` says how many new tokens may follow a prompt of so many tokens. Where ``extras`` has a
    source, the model attends to what is encoded of it, and the prompts are those of its decoder.
    """

    def __init__(
        self,
        model: DecoderModel,
        tokenizer: Tokenizer | None,
        prompts: Sequence[Sequence[int]],
        config: GenerationConfig,
        functions: Functions,
        room: Callable[[int], int],
        extras: Extras = NOTHING,
    ) -> None:
        self.config, self.tokenizer = config, tokenizer
        self._extras, self._cancel = extras, functions.cancel or Cancel()
        source = self._source = extras.source
        self._model, self._functions = model, functions
        self._prompts = [list(prompt) for prompt in prompts]
        self._budgets = [
            min(options.new_tokens(config, len(p)), room(len(p))) for p in self._prompts
        ]
        self._stop_ids = options.stop_ids(config)
        if self._stop_ids and min(self._stop_ids) >= model.vocab_size:
            # Not refused: configs of small models often keep the default id of a large vocabulary.
            warnings.warn(
                f"eos_token_id is {sorted(self._stop_ids)}, and the model chooses among "
                f"{model.vocab_size} tokens: none of these ends an answer",
                stacklevel=4,
            )
        self._criterion = self._criteria()
        self.beams, self.copies = config.num_beams or 1, config.num_return_sequences or 1
        self._sampler = self._new_sampler()
        self._processors = pipeline.build(
            config,
            sampling=bool(config.do_sample),
            beams=self.beams,
            stop_ids=self._stop_ids,
            vocab_size=model.vocab_size,
            custom=functions.logits_processor,
            task=extras.rules,
            encoder_has_ids=source is None or source.ids is not None,
            prefix_allowed_tokens_fn=functions.prefix_allowed_tokens_fn,
        )
        self._beam_options = self._new_beam_options() if self.beams > 1 else None
        self._guesses = Guesses.of(config, functions.proposer, functions.assistant_model)
        self._statistics: Statistics | None = None
        self.selection = self._new_selection()
        self.rows = self._new_rows()
        if functions.cache is not None and (source or len(self.rows) > 1 or self.beams > 1):
            what = "an encoder" if source else "several rows"
            raise OptionError(f"a cache with {what}", wanted="one prompt, one answer")
        if self.beams > 1 and config.top_logprobs:
            warnings.warn("top_logprobs does nothing with beams", stacklevel=4)
        self._guidance = self._scale()
        self._negatives = self._checked_negatives()
        if self._guesses is not None:
            self._guesses.check(model, tokenizer, self._unfit())
        self.clock = Clock()
        self._found: list[Beams] = []
        self._chooser: Chooser | None = None
        # The last token of a row is returned but never fed.
        self._capacity = max(
            len(p) + b - 1 for p, b in zip(self._prompts, self._budgets, strict=True)
        )
        model.check(self._capacity)
        self._encoded: Encoding | None = None
        self._check_memory()

    # -- running ---------------------------------------------------------------------------------

    def steps(self) -> Generator[Step, None, None]:
        """Runs to the end; frees the caches then, or when closed or failing.

        Beams give one step, the last.
        """
        self.clock = Clock(self.config.max_time)
        with memory.enough("answer"), self._blaming():
            decoder = self._start()
            with closing(self._guided(decoder)) as steps:
                yield from self._steps(steps)
                if self._functions.cache is not None:
                    self._functions.cache.keep(decoder, [*self._keys, *self.rows[0].tokens])

    def _steps(self, steps: Steps) -> Iterator[Step]:
        if self._beam_options is not None:
            self._search(steps, self._beam_options)
            yield self._outcome()
            return
        self._chooser = self._new_chooser()
        with self._runner() as run_rows:
            yield from run_rows(steps, self.rows, self._chooser, self.clock, self.copies)

    def answers(self) -> list[Any]:
        """Runs to the end; each prompt's answer, a list of them where it is to have several."""
        with closing(self.steps()) as steps:
            for _ in steps:
                pass
        results = self.results()
        return [found[0] for found in results] if self.copies == 1 else results

    def pieces(self) -> Generator[Piece, None, None]:
        """Runs to the end, a piece of text for each token. OptionError for beams.

        Closed early, or left with an error, it frees what the run holds.
        """
        if self.beams > 1:
            raise OptionError(
                f"a stream of {self.beams} beams, whose tokens are not settled until the end",
                do="use generate, or num_beams=1",
            )
        return self._pieces()

    def _pieces(self) -> Generator[Piece, None, None]:
        streams = [TextStream(self.tokenizer) if self.tokenizer else None for _ in self.rows]
        with closing(self.steps()) as steps:
            for step in steps:
                for index, token, reason in zip(
                    step.rows, step.tokens, step.finish_reasons, strict=True
                ):
                    stream, text = streams[index], ""
                    if stream is not None:
                        text = stream.push(token) + (stream.finish() if reason else "")
                    yield self._piece(text, token, index, reason)

    def _piece(self, text: str, token: int, index: int, reason: str | None) -> Piece:
        told = self._chooser.told[index] if self._chooser else None
        logprob = told.logprobs[-1] if told and told.logprobs else None
        best = tuple(told.top_logprobs[-1]) if told and told.top_logprobs else ()
        return Piece(text, token, index, reason, logprob, best)

    def cancel(self) -> None:
        """From any thread: ends the run within a node, with CancelledError."""
        self._cancel.cancel()

    # -- results ---------------------------------------------------------------------------------

    def results(self) -> list[list[Generation]]:
        """The answers of each prompt, once the steps are done."""
        if self._beam_options is not None:
            return [
                [self._beam_result(i, best, found) for best in found.hypotheses]
                for i, found in enumerate(self._found)
            ]
        each = [self._row_result(row) for row in self.rows]
        return [each[i : i + self.copies] for i in range(0, len(each), self.copies)]

    def _row_result(self, row: Row) -> Generation:
        told = self._chooser.told[row.index] if self._chooser else None
        return Generation(
            text=self._decoded(row.tokens),
            tokens=tuple(row.tokens),
            finish_reason=row.finish_reason or "length",
            prompt_tokens=self._prompt_tokens(row.index // self.copies),
            timings=self.clock.timings(len(row.tokens)),
            token_logprobs=tuple(told.logprobs) if told and told.logprobs else None,
            top_logprobs=tuple(map(tuple, told.top_logprobs)) if told and told.logprobs else None,
            scores=np.stack(told.scores) if told and told.scores else None,
            transition_scores=tuple(told.transitions) if told and told.transitions else None,
            speculation=self._statistics,
        )

    def _beam_result(self, prompt: int, best: Hypothesis, found: Beams) -> Generation:
        return Generation(
            text=self._decoded(best.tokens),
            tokens=best.tokens,
            finish_reason=best.finish_reason,
            prompt_tokens=self._prompt_tokens(prompt),
            timings=self.clock.timings(len(best.tokens)),
            token_logprobs=best.token_logprobs,
            scores=np.stack(found.scores) if found.scores else None,
            sequence_score=best.score,
            beam_indices=best.beam_indices,
            transition_scores=best.transition_scores,
        )

    def _prompt_tokens(self, prompt: int) -> int:
        return len((self._encoder_ids or self._prompts)[prompt])

    @property
    def _encoder_ids(self) -> Sequence[Sequence[int]] | None:
        return self._source.ids if self._source else None

    def _decoded(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens) if self.tokenizer else ""

    # -- parts -----------------------------------------------------------------------------------

    def _check_memory(self) -> None:
        """OutOfMemoryError where caches and logits would take more than there is."""
        model, cache = self._model, self._functions.cache
        if cache is not None and cache.holds(model, self._capacity):
            return
        rows = len(self._prompts) * self.beams if self.beams > 1 else len(self.rows)
        each = (rows, self._capacity, max(map(len, self._prompts)))
        needed = model.needs(*each) * (1 if self._guidance is None else 2)
        if self._guesses is not None and self._guesses.assistant is not None:
            needed += self._guesses.assistant.model.needs(*each)
        if self.config.output_scores:
            needed += 4 * rows * max(self._budgets) * model.vocab_size
        memory.check(needed, rows, self._capacity, model.memory_limit)

    def _criteria(self) -> Criterion | None:
        found = list(self._functions.stopping_criteria)
        if self.config.stop_strings is not None:
            if self.tokenizer is None:
                raise OptionError(
                    "stop_strings without a tokenizer", do="put tokenizer.json beside the model"
                )
            found.append(stop_strings(self.config.stop_strings, token_bytes(self.tokenizer)))
        return any_of(found)

    def _new_sampler(self) -> Sampler | None:
        if not self.config.do_sample:
            return None
        return self._extras.sampler or new_sampler(
            seed=self.config.seed,
            seeds=self.config.seeds,
            rng=self.config.rng or "philox",
            prompts=len(self._prompts),
            returned=1 if self.beams > 1 else self.copies,
        )

    def _new_beam_options(self) -> BeamOptions:
        config = self.config
        return BeamOptions(
            num_beams=self.beams,
            num_return_sequences=self.copies,
            length_penalty=1.0 if config.length_penalty is None else config.length_penalty,
            early_stopping=config.early_stopping or False,
            stop_ids=self._stop_ids,
        )

    def _new_selection(self) -> Selection:
        names = ("logits_processor", "prefix_allowed_tokens_fn")
        return Selection(
            self._model,
            self.config,
            stop_ids=self._stop_ids,
            beam_options=self._beam_options,
            others=[name for name in names if getattr(self._functions, name)]
            + ["guesses"] * (self._guesses is not None)
            + ["the task's own rules"] * bool(self._extras.rules or self._extras.heat != 1),
        )

    def _unfit(self) -> list[str]:
        """What excludes speculative decoding."""
        return (
            ["several rows"] * (len(self.rows) > 1)
            + ["beams"] * (self.beams > 1)
            + ["an encoder"] * (self._source is not None)
            + ["guidance_scale"] * (self._guidance is not None)
        )

    @contextmanager
    def _runner(self) -> Iterator[Any]:
        """What runs the rows: step by step, or with guesses."""
        if self._guesses is None:
            yield run
            return
        plain = pipeline.build(
            self.config,
            sampling=bool(self.config.do_sample),
            beams=1,
            stop_ids=self._stop_ids,
            vocab_size=self._model.vocab_size,
        )
        with self._guesses.speculation(
            self._model,
            prompt=self._prompts[0],
            capacity=self._capacity,
            processors=plain,
            sampler=self._sampler,
            never=self._extras.never,
            cancel=self._cancel,
        ) as speculation:
            self._statistics = speculation.statistics
            yield speculation.run

    def _new_rows(self) -> list[Row]:
        copies = 1 if self.beams > 1 else self.copies
        return [
            Row(i * copies + j, prompt, budget, self._stop_ids, self._criterion)
            for i, (prompt, budget) in enumerate(zip(self._prompts, self._budgets, strict=True))
            for j in range(copies)
        ]

    def _sequences(self) -> Sequences:
        prompts = [row.prompt for row in self.rows]
        ends = [len(row.prompt) + row.budget for row in self.rows]
        samples = [row.index // (len(self.rows) // len(self._prompts)) for row in self.rows]
        return Sequences(prompts, ends, samples, self._encoder_ids or self._prompts)

    def _new_chooser(self) -> Chooser:
        return self.selection.chooser(
            self._sequences(),
            self._processors,
            self._sampler,
            logprobs=bool(self.config.logprobs),
            top_logprobs=self.config.top_logprobs or 0,
            scores=bool(self.config.output_scores),
            heat=self._extras.heat,
        )

    def _start(self) -> Decoder:
        chunk = self.config.prefill_chunk_size
        cache = self._functions.cache
        if cache is None:
            self._encoded = self._source.encode(self._cancel) if self._source else None
            return self._model.start(
                self._capacity,
                prefill_chunk_size=chunk,
                encoding=self._encoded,
                watch=self._extras.watch,
                scene=self._scene(0),
                cancel=self._cancel,
            )
        keys, cancel = self._keys, self._cancel
        decoder, held = cache.resume(self._model, keys, self._capacity, chunk, cancel)
        decoder.show(self._scene(held))
        self.rows[0].fed = held
        return decoder

    @contextmanager
    def _blaming(self) -> Iterator[None]:
        """Blames an encoder whose states are not finite for the logits that are not."""
        try:
            yield
        except LogitsError as error:
            if self._encoded is None or self._encoded.finite:
                raise
            raise LogitsError(
                f"{self._encoded.name} gives values that are not finite",
                wanted="finite states for the decoder",
                do="try another dtype of the encoder (fp16 overflows in some)",
            ) from error
        finally:
            self._encoded = None

    @property
    def _keys(self) -> list[int]:
        """What tells the tokens of the one prompt from others."""
        return list(self._extras.keys or self._prompts[0])

    def _scene(self, held: int) -> Scene | None:
        return self._extras.scene(self._cancel, held) if self._extras.scene else None

    def _scale(self) -> float | None:
        value = self.config.guidance_scale
        if value is None or value == 1:
            if self._functions.negative_prompt_ids is not None:
                raise OptionError("negative_prompt_ids without guidance_scale", do="give both")
            return None
        if self._functions.cache is not None or self._source is not None:
            what = "an encoder-decoder" if self._source else "a cache"
            raise OptionError(f"guidance_scale with {what}", do="leave one of them out")
        return guidance_scale(value)

    def _checked_negatives(self) -> list[list[int]] | None:
        """The prompts to keep away from; OptionError where they are not one for each prompt."""
        given, name = self._functions.negative_prompt_ids, "negative_prompt_ids"
        if given is None:
            return None
        rows = given.tolist() if hasattr(given, "tolist") else given
        if not isinstance(rows, list | tuple) or len(rows) != len(self._prompts):
            raise OptionError(f"{name} are not one for each prompt", wanted="lists of token ids")
        checked = [checked_ids(name, row, self._model.vocab_size) for row in rows]
        if not all(checked):
            raise OptionError(f"{name} holds an empty prompt", wanted="at least one token in each")
        return checked

    def _guided(self, decoder: Decoder) -> Steps:
        if self._guidance is None:
            return self.selection.steps(decoder)
        negatives = self._negatives
        longest = max(map(len, negatives)) if negatives else 1
        other = self._model.start(longest + max(self._budgets) - 1, cancel=self._cancel)
        return GuidedSteps(decoder, other, self._guidance, negatives, padded)

    def _search(self, steps: Steps, beam_options: BeamOptions) -> None:
        self._found = beam_search(
            steps,
            self._sequences(),
            beam_options,
            self._processors,
            sampler=self._sampler,
            criterion=self._criterion,
            expired=self.clock.expired,
            normalize=self._guidance is None,  # guided scores are not to be normalised again
            keep_scores=bool(self.config.output_scores),
            logprobs=bool(self.config.logprobs),
            clock=self.clock,
            propose=self.selection.proposer(self._sampler),
        )

    def _outcome(self) -> Step:
        """The best answer of each prompt, by its last token."""
        best = [found.hypotheses[0] for found in self._found]
        tokens = [b.tokens[-1] if b.tokens else -1 for b in best]
        return Step(range(len(best)), tokens, [b.finish_reason for b in best])
