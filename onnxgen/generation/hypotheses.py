"""What beams end as: hypotheses, and the best of one prompt so far.

Letters: N beams of a prompt, n hypotheses offered at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from onnxgen.generation.protocol import Floats

# What bars a beam or a slot. A log-probability added to it vanishes in float32, and it must.
BARRED = np.float32(-1e9)


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One answer of a beam search.

    ``tokens`` are the new ones, with the stop token if one was hit. ``score`` is the sum of
    ``transition_scores``, the log-probabilities that the search added up (processed, not
    normalised again), divided by the number of tokens to the power of ``length_penalty``.
    ``token_logprobs``, if asked for, are those of the processed and normalised distributions.
    ``beam_indices`` tell for each token from which of the prompt's beams, 0 to N-1, it came.
    ``finish_reason`` is ``stop`` or ``length``.
    """

    tokens: tuple[int, ...]
    score: float
    finish_reason: str
    beam_indices: tuple[int, ...]
    transition_scores: tuple[float, ...]
    token_logprobs: tuple[float, ...] | None = None

    def flat_indices(self, prompt: int, beams: int) -> tuple[int, ...]:
        """The beam indices as transformers counts them, through all prompts of the request."""
        return tuple(prompt * beams + beam for beam in self.beam_indices)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Link:
    """A token of a beam, and the way back to the prompt."""

    token: int
    beam: int
    score: float
    logprob: float | None
    before: "Link | None"

    def path(self) -> list["Link"]:
        """From the first token to this one."""
        return list(self._back())[::-1]

    def _back(self) -> Iterator["Link"]:
        link: Link | None = self
        while link is not None:
            yield link
            link = link.before


@dataclass(frozen=True, slots=True)
class End:
    """A beam that has ended."""

    last: Link
    reason: str

    def hypothesis(self, score: float) -> Hypothesis:
        """With the score that its pool gave it."""
        path = self.last.path()
        logprobs = [link.logprob for link in path if link.logprob is not None]
        return Hypothesis(
            tokens=tuple(link.token for link in path),
            score=score,
            finish_reason=self.reason,
            beam_indices=tuple(link.beam for link in path),
            transition_scores=tuple(link.score for link in path),
            token_logprobs=tuple(logprobs) if logprobs else None,
        )


class Pool:
    """The best ends of one prompt, in falling order of ``scores`` (N,)."""

    def __init__(self, size: int) -> None:
        self.scores: Floats = np.full(size, BARRED, np.float32)
        self._ends: list[End | None] = [None] * size

    @property
    def full(self) -> bool:
        """Whether every slot holds an end."""
        return None not in self._ends

    @property
    def empty(self) -> bool:
        """Whether nothing has ended yet."""
        return self._ends[0] is None

    def offer(self, scores: Floats, ends: Sequence[End]) -> None:
        """Takes in those of ``ends``, with ``scores`` (n,), that are better than what it holds."""
        merged = np.concatenate([self.scores, scores])
        order = np.argsort(-merged, kind="stable")[: len(self.scores)]
        self.scores, every = merged[order], [*self._ends, *ends]
        self._ends = [every[i] for i in order]

    def beaten_by(self, score: Floats) -> bool:
        """Whether ``score`` (1,) is better than the worst slot; not if it equals it."""
        return bool((score > self.scores.min()).any())

    def hypotheses(self, count: int) -> list[Hypothesis]:
        """The best ``count``; an empty one for a slot that nothing filled."""
        best = zip(self.scores[:count].tolist(), self._ends, strict=False)
        return [end.hypothesis(score) if end else _NOTHING for score, end in best]


_NOTHING = Hypothesis((), float(BARRED), "length", (), ())
