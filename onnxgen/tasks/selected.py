"""What chooses a request's tokens: processors on the host, or a graph where the logits are.

Letters: B rows still running, I prompts still running, N beams, K candidates, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxgen.generation.beams import BeamOptions
from onnxgen.generation.candidates import Candidates, Propose
from onnxgen.generation.choosing import Chooser
from onnxgen.generation.config import GenerationConfig
from onnxgen.generation.loop import Row
from onnxgen.generation.protocol import Floats, Ints, Steps
from onnxgen.generation.sampling import Sampler, refuse
from onnxgen.generation.sequences import Sequences
from onnxgen.runtime.decoder import Decoder, DecoderModel
from onnxgen.runtime.kept import KeptSteps
from onnxgen.runtime.selection import Selector
from onnxgen.tasks.selecting import Plan, plan, why_not


class Selection:
    """How one request's tokens are chosen. As a text it is for people, reasons included.

    ``others`` names what acts on scores beside ``config``; only the host can carry it out.
    """

    def __init__(
        self,
        model: DecoderModel,
        config: GenerationConfig,
        *,
        stop_ids: frozenset[int],
        beam_options: BeamOptions | None,
        others: Sequence[str] = (),
    ) -> None:
        self._selectors, self._width = model.selectors, model.vocab_size
        self._reason = why_not(config, others)
        self._stop_ids, self._config, self._beam_options = stop_ids, config, beam_options
        self._chooser: Chooser | None = None
        self.on_host = self._selectors is None or self._reason is not None

    def __str__(self) -> str:
        if self._selectors is None:
            return "numpy"
        if self._reason is not None:
            return f"numpy (because of {self._reason})"
        if isinstance(self._chooser, SelectedChooser) and (count := self._chooser.overflows):
            return f"onnx (numpy in {count} of the steps: too many tokens were left open)"
        return "onnx"

    def steps(self, decoder: Decoder) -> Steps:
        """``decoder``, which gives its logits as what chooses takes them."""
        return decoder if self.on_host else KeptSteps(decoder)

    def chooser(self, *parts: Any, **options: Any) -> Chooser:
        """What chooses for rows that are no beams; the arguments are those of :class:`Chooser`."""
        if self.on_host:
            self._chooser = Chooser(*parts, **options)
        else:
            self._chooser = SelectedChooser(*self._planned(), *parts, **options)
        return self._chooser

    def proposer(self, sampler: Sampler | None) -> Propose | None:
        """What proposes candidates of beams; None leaves that to the search."""
        return None if self.on_host else SelectedProposer(*self._planned(), sampler)

    def _planned(self) -> tuple[Plan, Selector]:
        assert self._selectors is not None
        made = plan(
            self._config,
            stop_ids=self._stop_ids,
            vocab_size=self._width,
            beam_options=self._beam_options,
        )
        return made, self._selectors.new(made.spec)


class SelectedChooser(Chooser):
    """A chooser that lets a selection graph do its work.

    ``overflows`` counts the steps that left a row more tokens to draw from than reach the host:
    these were chosen there as a whole.
    """

    def __init__(self, plan: Plan, selector: Selector, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        self._plan, self._selector, self.overflows = plan, selector, 0

    def __call__(self, logits: Any, rows: Sequence[Row]) -> Ints:
        """One token (B,) for each of ``rows`` from ``logits``, which are :class:`KeptLogits`."""
        live, spec, width = self._follow(rows), self._plan.spec, self._selector.vocab_size
        noise = None
        if self._sampler and spec.draws:
            noise = _noise(self._sampler, live, width)
        choice = self._selector.choose(logits, noise=noise, **self._plan.inputs(self._sequences))
        refuse(choice.best, live, [len(row.tokens) + 1 for row in rows])
        tokens, chosen = choice.tokens, choice.chosen
        if self._sampler and not spec.draws:
            if (choice.open > choice.ids.shape[1]).any():
                self.overflows += 1
                return super().__call__(logits.host(), rows)
            tokens = self._sampler.draw_among(choice.scores, choice.ids, live, width)
            chosen = choice.scores[choice.ids == tokens[:, None]]
        self._sequences.append(tokens)
        if self._logprobs:
            for i, row in enumerate(live):
                best = zip(choice.ids[i, : self._top], choice.scores[i], strict=False)
                self.told[row].note(chosen[i], float(choice.norms[i]), best)
        return tokens


class SelectedProposer:
    """Candidates of beams by a selection graph, see :class:`Propose`."""

    def __init__(self, plan: Plan, selector: Selector, sampler: Sampler | None) -> None:
        self._plan, self._selector, self._sampler = plan, selector, sampler

    def __call__(
        self,
        logits: Any,
        sequences: Sequences,
        prompts: Sequence[int],
        running: Floats,
        step: int,
    ) -> list[Candidates]:
        """See :class:`Propose`; ``logits`` are :class:`KeptLogits`."""
        vocab, noise = self._selector.vocab_size, None
        if self._sampler:
            noise = _noise(self._sampler, prompts, running.shape[1] * vocab)
        found = self._selector.candidates(
            logits, running, noise=noise, **self._plan.inputs(sequences)
        )
        refuse(found.best, prompts, [step] * len(prompts))
        norms = [None] * len(prompts) if found.norms is None else found.norms
        each = zip(found.places, found.sums, found.scores, norms, strict=True)
        return [Candidates.at(*own, vocab) for own in each]


def _noise(sampler: Sampler, rows: Sequence[int], width: int) -> Floats:
    """The noise (B,W) of a step for all scores of ``rows``."""
    every = np.arange(width)
    return np.stack(sampler.noise(rows, [every] * len(rows), width)).astype(np.float32)
