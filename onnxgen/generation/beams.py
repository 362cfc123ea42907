"""Beam search and beam sampling, as transformers' loop does them, on the step protocol.

Each prompt has N beams and stops by itself, as if it were alone: then its rows leave the batch, so
what it returns depends on no neighbour. Scores are float32, as the rules need: a score of -1e9
swallows what is added to it.

Letters: I prompts still running, N beams, R = I × N rows, K candidates of a prompt, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from onnxgen.errors import OptionError
from onnxgen.generation.candidates import Candidates, Propose, Proposer
from onnxgen.generation.checks import number, whole
from onnxgen.generation.hypotheses import BARRED, End, Hypothesis, Link, Pool
from onnxgen.generation.loop import Clock
from onnxgen.generation.protocol import Floats, Steps
from onnxgen.generation.sampling import Sampler
from onnxgen.generation.sequences import Processor, Sequences
from onnxgen.generation.stopping import Criterion


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamOptions:
    """The options of a beam search, under transformers' names; OptionError for a wrong value."""

    num_beams: int
    num_return_sequences: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    stop_ids: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        whole("num_beams", self.num_beams, 1)
        whole("num_return_sequences", self.num_return_sequences, 1)
        if self.num_return_sequences > self.num_beams:
            raise OptionError(
                f"{self.num_return_sequences} sequences are asked for from {self.num_beams} beams",
                wanted="num_return_sequences of at most num_beams",
                do="raise num_beams",
            )
        number("length_penalty", self.length_penalty, -100, 100)
        early: Any = self.early_stopping
        if not isinstance(early, bool) and early != "never":
            raise OptionError(f"early_stopping is {early!r}", wanted="True, False or 'never'")

    @property
    def candidates(self) -> int:
        """K: of so many N go on even if N others end, one for each stop id."""
        return max(2, 1 + len(self.stop_ids)) * self.num_beams

    def check(self, sequences: Sequences, vocab_size: int) -> None:
        """OptionError for prompts, or a vocabulary, that these options do not fit."""
        room = sequences.max_lengths - sequences.lengths
        if room.min() < 1:
            raise OptionError(
                f"the prompt has {sequences.lengths[room.argmin()]} tokens, and max_length is "
                f"{sequences.max_lengths[room.argmin()]}",
                wanted="a max_length beyond the prompt",
            )
        # Beyond this, sums of log-probabilities or the bar of -1e9 leave float32.
        if abs(self.length_penalty) * np.log10(float(room.max())) > 25:
            raise OptionError(
                f"length_penalty is {self.length_penalty!r} with {room.max()} new tokens",
                wanted="a power of the number of tokens between 1e-25 and 1e25",
                do="move it towards 0",
            )
        if self.num_beams > vocab_size or self.candidates > self.num_beams * vocab_size:
            raise OptionError(
                f"{self.num_beams} beams and {len(self.stop_ids)} stop ids with a vocabulary of "
                f"{vocab_size}",
                wanted="fewer beams than tokens",
                do="lower num_beams",
            )


@dataclass(frozen=True, slots=True)
class Beams:
    """What a beam search found for one prompt.

    ``scores``, if kept, hold for each step the processed log-probabilities (N,V) of the beams that
    ran, without what they had summed up.
    """

    hypotheses: list[Hypothesis]
    scores: list[Floats]


def beam_search(
    decoder: Steps,
    sequences: Sequences,
    options: BeamOptions,
    processors: Sequence[Processor] = (),
    *,
    sampler: Sampler | None = None,
    criterion: Criterion | None = None,
    expired: Callable[[], bool] = lambda: False,
    normalize: bool = True,
    keep_scores: bool = False,
    logprobs: bool = False,
    clock: Clock | None = None,
    propose: Propose | None = None,
) -> list[Beams]:
    """The best ``num_return_sequences`` hypotheses of each prompt, best first.

    Args:
        decoder: Steps the rows; the caller closes it. Each prompt is fed once, not N times.
        sequences: The prompts, a row each; used up.
        options: Checked against prompts and vocabulary before the first step.
        processors: Change the log-probabilities (R,V), all N rows of each prompt, in each step.
        sampler: Draws the candidates (beam sampling) instead of taking the best; its rows are the
            prompts.
        criterion: Ends candidates, beside stop ids and maximum length.
        expired: Asked once in each step whether everything must end with it.
        normalize: False if what ``decoder`` gives are scores to add up as they are, such as
            guided log-probabilities.
        keep_scores: Whether to return the scores of all steps.
        logprobs: Whether hypotheses get ``token_logprobs``.
        clock: Ticks with each step.
        propose: Finds candidates in another way, which has to see to all that processors, sampler,
            ``normalize``, ``keep_scores`` and ``logprobs`` would do.

    Raises:
        OptionError: options that do not fit the prompts.
        LogitsError: NaN, or nothing left to choose for a prompt.
    """
    options.check(sequences, decoder.vocab_size)
    logits = decoder.step(np.ascontiguousarray(sequences.ids), sequences.lengths)  # (I,V)
    rooms = sequences.max_lengths - sequences.lengths
    items = live = [_Item(i, int(room), options) for i, room in enumerate(rooms)]
    beams = options.num_beams
    rows = np.repeat(np.arange(len(items)), beams)  # (R,), what the decoder calls them
    sequences.select(rows)
    if propose is None:
        few = options.candidates
        propose = Proposer(few, processors, sampler, normalize, keep_scores, logprobs)
    logits = logits[rows]
    for step in count(1):
        running = np.stack([item.running for item in live])  # (I,N)
        proposed = propose(logits, sequences, [item.index for item in live], running, step)
        if clock is not None:
            clock.tick()
        over = expired()
        for i, (item, found) in enumerate(zip(live, proposed, strict=True)):
            if found.every is not None:
                item.scores.append(found.every)
            last = over or step == item.room
            reasons = _reasons(found, sequences, i * beams, options.stop_ids, criterion, last)
            item.advance(found, step, reasons)
        going = [i for i, item in enumerate(live) if not item.done]
        if not going:
            break
        parents = np.concatenate([i * beams + live[i].parents for i in going])  # (R,)
        live = [live[i] for i in going]
        tokens = np.concatenate([item.tokens for item in live])  # (R,)
        decoder.reorder(rows[parents])
        sequences.select(parents)
        sequences.append(tokens)
        logits = decoder.step(tokens[:, None], np.ones(len(tokens), np.int64))
        rows = np.arange(len(tokens))
    best = options.num_return_sequences
    return [Beams(item.pool.hypotheses(best), item.scores) for item in items]


def _reasons(
    found: Candidates,
    sequences: Sequences,
    first: int,
    stop_ids: frozenset[int],
    criterion: Criterion | None,
    last: bool,
) -> list[str | None]:
    """Why each of the K candidates ends, None if it does not.

    Their beams are the rows from ``first`` on; ``last`` ends those that nothing stops.
    """
    reasons = ["stop" if token in stop_ids else None for token in found.tokens.tolist()]
    if criterion is not None:
        for k, reason in enumerate(reasons):
            row = sequences.row(first + int(found.beams[k]))
            if reason is None and criterion(np.append(row, found.tokens[k])):
                reasons[k] = "stop"
    return [reason or "length" for reason in reasons] if last else reasons


class _Item:
    """The beams of one prompt: N running ones, and the pool of those that have ended."""

    def __init__(self, index: int, room: int, options: BeamOptions) -> None:
        self.index, self.room, self.done = index, room, False
        self._options = options
        self.running: Floats = np.full(options.num_beams, BARRED, np.float32)  # (N,)
        self.running[0] = 0  # at first all beams are equal, so one may go on
        self._links: list[Link | None] = [None] * options.num_beams
        self.parents = self.tokens = np.zeros(options.num_beams, np.int64)  # (N,)
        self.pool = Pool(options.num_beams)
        self.scores: list[Floats] = []

    def advance(self, found: Candidates, step: int, reasons: Sequence[str | None]) -> None:
        """Takes a step's candidates: those with a reason end, the best others go on."""
        penalty, beams = self._options.length_penalty, self._options.num_beams
        # Only what ends among the first N counts; the others are there so that N can go on.
        ended = [k for k, reason in enumerate(reasons[:beams]) if reason]
        ends = [End(found.link(k, self._links), reasons[k] or "") for k in ended]
        self.pool.offer(found.sums[ended] / float(step) ** penalty, ends)
        hits = np.array([reason is not None for reason in reasons])  # (K,)
        sums = found.sums.copy()
        sums[hits] += BARRED
        order = np.argsort(-sums, kind="stable")[:beams]
        self.running, self._links = sums[order], [found.link(k, self._links) for k in order]
        self.parents, self.tokens = found.beams[order], found.tokens[order]
        self.done = bool(hits.all()) or self._settled(step)

    def _settled(self, step: int) -> bool:
        """Whether the pool is what it will stay: it may not be bettered any more."""
        options = self._options
        if options.early_stopping is True and self.pool.full:
            return True
        if self.running[0] < BARRED / 2 and not self.pool.empty:
            return True  # only barred beams are left: transformers would fill up with those
        far = options.early_stopping == "never" and options.length_penalty > 0
        length = float(self.room if far else step)
        return not self.pool.beaten_by(self.running[:1] / length**options.length_penalty)
