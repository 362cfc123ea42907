"""What may follow the beams of a prompt: the best continuations of a step, or drawn ones.

Letters: I prompts still running, N beams, R = I × N rows, K candidates of a prompt, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from onnxgen.generation.hypotheses import Link
from onnxgen.generation.protocol import Floats, Ints
from onnxgen.generation.sampling import Sampler, check_best, largest
from onnxgen.generation.sequences import Processor, Sequences


@dataclass(frozen=True, slots=True)
class Candidates:
    """Continuations (K,) of the beams of one prompt, in falling order of ``sums``.

    ``scores`` are the sums without what the beams had before, ``every`` (N,V), if kept, those of
    all continuations.
    """

    beams: Ints
    tokens: Ints
    sums: Floats
    scores: Floats
    logprobs: Floats | None
    every: Floats | None = None

    @classmethod
    def at(
        cls, places: Ints, sums: Floats, scores: Floats, norms: Floats | None, vocab_size: int
    ) -> "Candidates":
        """Those at ``places`` (K,), which are beam × V + token; ``norms`` (N,) are of the beams."""
        order = np.lexsort((places, -sums))
        beams, tokens = np.divmod(places[order], vocab_size)
        scores = scores[order]
        logprobs = None if norms is None else scores - norms[beams]
        return cls(beams, tokens, sums[order], scores, logprobs)

    def link(self, k: int, before: Sequence[Link | None]) -> Link:
        """Candidate k as a token behind its beam, one of ``before`` (N)."""
        beam = int(self.beams[k])
        logprob = None if self.logprobs is None else float(self.logprobs[k])
        return Link(int(self.tokens[k]), beam, float(self.scores[k]), logprob, before[beam])


class Propose(Protocol):
    """Finds the candidates of a step."""

    def __call__(
        self,
        logits: Floats,
        sequences: Sequences,
        prompts: Sequence[int],
        running: Floats,
        step: int,
    ) -> list[Candidates]:
        """Those of ``prompts`` (I,) behind ``running`` (I,N), from the decoder's ``logits`` (R,V).

        LogitsError where these are broken, or leave a prompt nothing.
        """


class Proposer:
    """Candidates by processors, in memory that all steps share: fresh pages cost half a step."""

    def __init__(
        self,
        count: int,
        processors: Sequence[Processor],
        sampler: Sampler | None,
        normalize: bool,
        keep_scores: bool,
        logprobs: bool,
    ) -> None:
        self._count, self._processors, self._sampler = count, processors, sampler
        self._normalize, self._keep_scores, self._logprobs = normalize, keep_scores, logprobs
        self._memory: Floats | None = None

    def __call__(
        self,
        logits: Floats,
        sequences: Sequences,
        prompts: Sequence[int],
        running: Floats,
        step: int,
    ) -> list[Candidates]:
        """See :class:`Propose`."""
        if self._memory is None:  # no later step has more rows
            self._memory = np.empty((2, *logits.shape), np.float32)
        scores, sums = self._memory[:, : len(logits)]
        if self._normalize:
            _log_softmax(logits, scores, sums)
        else:
            scores[:] = logits
        for process in self._processors:
            process(sequences, scores)
        norms = _norms(scores, sums).reshape(running.shape) if self._logprobs else None
        scores, sums = (part.reshape(*running.shape, -1) for part in (scores, sums))  # (I,N,V)
        np.add(scores, running[:, :, None], out=sums)
        flat = sums.reshape(len(prompts), -1)
        found = []
        for i, places in enumerate(self._choose(flat, prompts, step)):
            own = None if norms is None else norms[i]
            at = flat[i, places], scores[i].reshape(-1)[places]
            each = Candidates.at(places, *at, own, logits.shape[1])
            found.append(replace(each, every=scores[i].copy()) if self._keep_scores else each)
        return found

    def _choose(self, sums: Floats, prompts: Sequence[int], step: int) -> Ints:
        """Where in each of ``sums`` (I,N×V) its K candidates are, (I,K)."""
        if self._sampler is not None:
            return self._sampler.draw_several(sums, prompts, self._count)
        check_best(sums, prompts, [step] * len(prompts))
        return np.stack([largest(row, self._count) for row in sums])


def _norms(scores: Floats, scratch: Floats) -> Floats:
    """What normalises each row of the processed ``scores`` (R,V), (R,)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        best = scores.max(axis=1)
        np.subtract(scores, best[:, None], out=scratch)
        norms: Floats = best + np.log(np.exp(scratch, out=scratch).sum(axis=1))
    return norms


def _log_softmax(logits: Floats, out: Floats, scratch: Floats) -> None:
    """Log-probabilities of ``logits`` (R,V) into ``out``, row by row as caches like it."""
    # A NaN or an infinity makes its row NaN, which a processor may mend.
    with np.errstate(invalid="ignore"):
        for row, result, powers in zip(logits, out, scratch, strict=True):
            np.subtract(row, row.max(), out=result)
            result -= np.log(np.exp(result, out=powers).sum())
