"""The loop: prompts in, steps of new tokens out.

Letters: B rows still running, S columns of new tokens, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from time import perf_counter

import numpy as np

from onnxgen.generation.protocol import Floats, Ints, Steps
from onnxgen.generation.results import Step, Timings
from onnxgen.generation.sampling import refuse
from onnxgen.generation.stopping import Criterion


@dataclass(slots=True)
class Row:
    """One sequence in progress."""

    index: int
    prompt: Sequence[int]
    budget: int  # new tokens that it may have
    stop_ids: frozenset[int]
    criterion: Criterion | None = None  # ends it beside stop tokens and budget
    fed: int = 0  # tokens of the prompt that the decoder holds already
    tokens: list[int] = field(default_factory=list)
    finish_reason: str | None = None

    def push(self, token: int) -> None:
        """Takes the next token, and notes whether the row ends with it."""
        self.tokens.append(token)
        if token in self.stop_ids or (self.criterion and self.criterion(self.ids())):
            self.finish_reason = "stop"
        elif len(self.tokens) == self.budget:
            self.finish_reason = "length"

    def ids(self) -> Ints:
        """Prompt and answer so far."""
        return np.array([*self.prompt, *self.tokens], np.int64)


Choose = Callable[[Floats, Sequence[Row]], Ints]


class Clock:
    """The times of a request's steps, and its time limit in seconds."""

    def __init__(self, limit: float | None = None) -> None:
        self._ticks, self._limit = [perf_counter()], limit

    def tick(self) -> None:
        """Notes the end of a step."""
        self._ticks.append(perf_counter())

    def spread(self, tokens: int) -> None:
        """Divides the time of the last ``tokens`` ticks, which one run gave, evenly among them.

        The first of a block has waited for all of them, the others for nothing.
        """
        start, stop = self._ticks[-tokens - 1], self._ticks[-1]
        lap = (stop - start) / tokens
        self._ticks[-tokens:-1] = [start + lap * i for i in range(1, tokens)]

    def expired(self) -> bool:
        """Whether the last step went beyond the time limit."""
        return self._limit is not None and self._ticks[-1] - self._ticks[0] > self._limit

    def timings(self, steps: int) -> Timings:
        """The times up to the end of step number ``steps``, counted from 1."""
        ticks = [t * 1000 for t in self._ticks[: steps + 1]]
        laps = [after - before for before, after in pairwise(ticks)]
        return Timings(laps[0] if laps else 0.0, tuple(laps[1:]), ticks[-1] - ticks[0])


def run(
    decoder: Steps, rows: Sequence[Row], choose: Choose, clock: Clock, copies: int = 1
) -> Iterator[Step]:
    """Steps ``decoder`` until every row has ended; rows that end leave the batch.

    Of ``rows`` each ``copies`` that follow one another have one prompt, which is fed once.
    LogitsError where a model gives NaN or leaves no token to choose. The caller closes the
    decoder.
    """
    live = list(rows)
    logits = decoder.step(*padded([row.prompt[row.fed :] for row in live[::copies]]))
    if copies > 1:
        order = np.arange(len(live)) // copies
        decoder.reorder(order)
        logits = logits[order]
    ones = np.ones(len(live), np.int64)
    while True:
        chosen = choose(logits, live)  # (B,)
        clock.tick()
        tokens, late = chosen.tolist(), clock.expired()
        for row, token in zip(live, tokens, strict=True):
            row.push(token)
            if late:
                row.finish_reason = row.finish_reason or "length"
        reasons = [row.finish_reason for row in live]
        yield Step([row.index for row in live], tokens, reasons)
        if any(reasons):
            kept = [i for i, reason in enumerate(reasons) if reason is None]
            if not kept:
                return
            decoder.reorder(kept)
            live, chosen, ones = [live[i] for i in kept], chosen[kept], ones[kept]
        logits = decoder.step(chosen[:, None], ones)


def padded(prompts: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Prompts as one array (B,S), filled with zeros on the right, and their lengths (B,)."""
    lengths = np.array([len(prompt) for prompt in prompts], np.int64)
    tokens = np.zeros((len(prompts), int(lengths.max())), np.int64)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = prompt
    return tokens, lengths


def greedy(logits: Floats, rows: Sequence[Row]) -> Ints:
    """The most likely token of each row of ``logits`` (B,V); of equals the lowest id."""
    if len(logits) == 1:  # the step that is run most
        token = logits[0].argmax()
        if isfinite(logits[0, token]):
            return np.array([token])
    chosen: Ints = logits.argmax(axis=-1)
    # argmax stops at the first NaN, so looking at what it chose finds any.
    best = logits[np.arange(len(chosen)), chosen]
    if not np.isfinite(best).all():
        refuse(best, [row.index for row in rows], [len(row.tokens) + 1 for row in rows])
    return chosen
