"""Who guesses what comes next: the row itself, a smaller model, or a function of the caller.

A guess is never believed, only tried: see :mod:`onnxgen.generation.speculative`. So a wrong one
costs time and nothing else.

Letters: L ids of the row so far, V vocabulary.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Protocol

import numpy as np

from onnxgen.errors import LogitsError
from onnxgen.generation.checks import number, whole
from onnxgen.generation.protocol import Floats, Ints, Steps
from onnxgen.generation.sampling import Sampler
from onnxgen.generation.sequences import Processor, Sequences


class Proposer(Protocol):
    """Guesses the next tokens of a row.

    ``most`` is how many at a time at most. ``cost`` is what it costs to guess one, in steps of the
    model that is guessed for; 0 is so little that it may be done in every step, just to see whether
    guesses come true.
    """

    most: int
    cost: float

    def propose(self, ids: Ints, count: int) -> Any:
        """Up to ``count`` ids that may follow ``ids`` (L,); none is an answer too."""


class PromptLookup:
    """Guesses that the row goes on as it did where its last ids occurred before.

    Looked for are the last ``ngram`` ids, then fewer; of several places the first counts. That is
    transformers' rule, but for ids that processors ban: these are proposed, and fail.
    """

    cost = 0.0

    def __init__(self, ngram: int = 2, most: int = 10) -> None:
        self._ngram = whole("the size of n-grams", ngram, least=1)
        self.most = whole("the number of proposed tokens", most, least=1)

    def propose(self, ids: Ints, count: int) -> Ints:
        """See :class:`Proposer`."""
        ends = np.flatnonzero(ids[:-1] == ids[-1])  # where an n-gram like the last one ends
        for back in range(1, min(self._ngram, len(ids) - 1)):
            longer = ends[ends >= back]
            longer = longer[ids[longer - back] == ids[-1 - back]]
            if not len(longer):
                break
            ends = longer
        if not len(ends):
            return ids[:0]
        start = int(ends[0]) + 1
        return ids[start : start + count]


class Called:
    """Guesses of a caller's function, ``f(ids (L,)) -> ids``; it is asked in every step."""

    cost = 0.0

    def __init__(self, function: Callable[[Ints], Any], most: int = 10) -> None:
        self._function = function
        self.most = whole("the number of proposed tokens", most, least=1)

    def propose(self, ids: Ints, count: int) -> Any:
        """See :class:`Proposer`; the function gets a copy, and may return more."""
        return self._function(ids.copy())


# Of logits (V,) that follow ids (L,): the draft's next id, or None where all are banned.
Pick = Callable[[Floats, Ints], int | None]


def likeliest(logits: Floats, ids: Ints) -> int | None:
    """The best of ``logits`` (V,), of equals the lowest; LogitsError where they are broken."""
    token = int(logits.argmax())  # NaN if there is one
    if np.isnan(logits[token]) or logits[token] == np.inf:
        raise LogitsError(
            f"the draft model's best logit is {logits[token]} behind {len(ids)} tokens",
            wanted="finite scores",
            do="try another dtype of the draft model, or do without it",
        )
    return token if np.isfinite(logits[token]) else None


class DraftModel:
    """Guesses of a smaller model with the same tokens, stepped as ``steps``.

    ``begin`` gives what picks the tokens of one guess, see :class:`SameChance`.
    ``vocab_size`` is that of the model it drafts for, whose vocabulary may be padded otherwise.
    The decoder must be able to rewind, is stepped for this row only, and is closed by the caller.
    Where its capacity ends so do the guesses.
    """

    def __init__(
        self,
        steps: Steps,
        begin: Callable[[], Pick] = lambda: likeliest,
        *,
        vocab_size: int,
        most: int = 20,
        cost: float = 0.2,
    ) -> None:
        self._steps, self._begin, self._vocab_size = steps, begin, vocab_size
        self.most = whole("the number of drafted tokens", most, least=1)
        self.cost = number("the cost of a draft's step", cost, 0, 100)
        self._held: Ints = np.zeros(0, np.int64)  # what the decoder was fed

    def propose(self, ids: Ints, count: int) -> list[int]:
        """See :class:`Proposer`."""
        count = min(count, self._steps.capacity - len(ids) + 1)  # the last one is not fed
        drafted: list[int] = []
        if count < 1:
            return drafted
        pick, logits = self._begin(), self._catch_up(ids)
        whole_row = np.concatenate([ids, np.zeros(count, np.int64)])
        while True:
            here = len(ids) + len(drafted)
            token = pick(logits[0, : self._vocab_size], whole_row[:here])
            if token is None:
                break
            whole_row[here] = token
            drafted.append(token)
            if len(drafted) == count:
                break
            logits = self._steps.step(np.array([[token]]), np.ones(1, np.int64))
        self._held = whole_row[:here]
        return drafted

    def _catch_up(self, ids: Ints) -> Floats:
        """Logits (1,V) after ``ids``: forgets what turned out otherwise, and reads what is new."""
        shorter = min(len(self._held), len(ids) - 1)  # the last one is fed, for its logits
        unlike = np.flatnonzero(self._held[:shorter] != ids[:shorter])
        keep = int(unlike[0]) if len(unlike) else shorter
        if keep < len(self._held):
            self._steps.rewind(np.array([keep]))
        return self._steps.step(ids[None, keep:], np.array([len(ids) - keep]))


class SameChance:
    """Picks a draft's tokens as the row will pick its own: same processors, same noise.

    A draft that draws by itself meets the row's choice seldom; one that runs the same race with
    nearly the same odds has nearly always the same winner. ``sampler`` is the row's own, of which
    each draft uses up a copy; None takes the best. ``processors`` must hang on ids and scores
    alone, since they see ids that never come to be: functions of a caller do not belong here.
    """

    def __init__(
        self,
        processors: Sequence[Processor],
        sampler: Sampler | None,
        *,
        prompt: Sequence[int],
        max_length: int,
        vocab_size: int,
    ) -> None:
        self._processors, self._sampler, self._vocab_size = processors, sampler, vocab_size
        self._prompt, self._max_length = list(prompt), max_length

    def __call__(self) -> Pick:
        """What picks the tokens of one draft, one after the other."""
        return partial(self._pick, deepcopy(self._sampler))

    def _pick(self, sampler: Sampler | None, logits: Floats, ids: Ints) -> int | None:
        scores = np.full((1, self._vocab_size), -np.inf, np.float32)
        scores[0, : len(logits)] = logits
        seqs = Sequences([ids.tolist()], [self._max_length], encoder_ids=[self._prompt])
        seqs.prompt_lengths[:] = len(self._prompt)
        for process in self._processors:
            process(seqs, scores)
        best = likeliest(scores[0], ids)
        if best is None or sampler is None:
            return best
        return int(sampler.draw(scores, [0])[0])
