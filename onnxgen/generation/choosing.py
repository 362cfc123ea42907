"""From logits to tokens: processors, then the best or a draw, and what is told of the scores.

Letters: B rows still running, V vocabulary, n best log-probabilities.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnxgen.generation.loop import Row, greedy
from onnxgen.generation.protocol import Floats, Ints
from onnxgen.generation.sampling import Sampler, largest
from onnxgen.generation.sequences import Processor, Sequences
from onnxgen.generation.softmax import normaliser


@dataclass(slots=True)
class Told:
    """What one row keeps of its steps, an entry for each new token."""

    logprobs: list[float] = field(default_factory=list)
    transitions: list[float] = field(default_factory=list)  # processed, not normalised
    top_logprobs: list[list[tuple[int, float]]] = field(default_factory=list)
    scores: list[Floats] = field(default_factory=list)  # processed, (V,) each

    def note(self, score: float, norm: float, best: Iterable[tuple[int, float]]) -> None:
        """Keeps a token's ``score`` and the ``best`` ids with theirs, normalised by ``norm``."""
        self.transitions.append(float(score))
        self.logprobs.append(float(score - norm))
        self.top_logprobs.append([(int(i), float(value - norm)) for i, value in best])


class Chooser:
    """Chooses the tokens of a request's rows, step by step.

    Log-probabilities are those of the processed scores, normalised. ``told[i]`` belongs to the
    request's row i. ``heat`` takes back a temperature: scores are multiplied by it before their
    log-probabilities are told. ``follow`` is told which rows, by their places before, go on; for
    processors that keep something by row.
    """

    def __init__(
        self,
        sequences: Sequences,
        processors: Sequence[Processor] = (),
        sampler: Sampler | None = None,
        *,
        logprobs: bool = False,
        top_logprobs: int = 0,
        scores: bool = False,
        heat: float = 1.0,
        follow: Callable[[Ints], None] = lambda rows: None,
    ) -> None:
        self.told = [Told() for _ in range(len(sequences))]
        self._sequences, self._processors, self._sampler = sequences, processors, sampler
        self._logprobs, self._top, self._scores = logprobs or top_logprobs > 0, top_logprobs, scores
        self._on_follow, self._heat = follow, np.float32(heat)
        self._live = list(range(len(sequences)))

    def __call__(self, logits: Floats, rows: Sequence[Row]) -> Ints:
        """One token (B,) for each of ``rows`` from ``logits`` (B,V), which stay as they are."""
        live = self._follow(rows)
        changed = self._processors or self._scores
        scores = np.array(logits, np.float32) if changed else logits
        for process in self._processors:
            process(self._sequences, scores)
        tokens = self._sampler.draw(scores, live) if self._sampler else greedy(scores, rows)
        if self._processors:  # they alone read them
            self._sequences.append(tokens)
        if self._logprobs or self._scores:
            for row, token, own in zip(live, tokens.tolist(), scores, strict=True):
                self._tell(self.told[row], token, own)
        return tokens

    def _follow(self, rows: Sequence[Row]) -> list[int]:
        """The numbers of ``rows`` in the request; what is kept by row goes on with these alone."""
        live = [row.index for row in rows]
        if live != self._live:
            places = np.searchsorted(self._live, live)
            self._sequences.select(places)
            self._on_follow(places)
            self._live = live
        return live

    def _tell(self, told: Told, token: int, scores: Floats) -> None:
        if self._scores:
            told.scores.append(scores)
        if self._logprobs:
            if self._heat != 1:
                scores = scores * self._heat
            best = largest(scores, self._top) if self._top else ()
            told.note(scores[token], normaliser(scores), ((i, scores[i]) for i in best))
        else:
            told.transitions.append(float(scores[token]))
