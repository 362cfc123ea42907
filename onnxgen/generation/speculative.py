"""Speculative decoding: tokens that a proposer guesses are run together, and chosen one by one.

Exact by construction: each token is chosen from the logits behind the real tokens before it, by the
same chooser in the same order as without guesses, so processors, chance and stops see no
difference. A guess that equals the chosen token has saved a run of the model; the first that does
not ends the block, and the decoder forgets what it was fed in vain.

Letters: L ids of the row so far, S tokens of a block, K guessed ones, V vocabulary.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from onnxgen.errors import OptionError
from onnxgen.generation.checks import number
from onnxgen.generation.loop import Choose, Clock, Row, padded
from onnxgen.generation.proposers import Proposer
from onnxgen.generation.protocol import Floats, Ints, Steps
from onnxgen.generation.results import Statistics, Step
from onnxgen.generation.sequences import Sequences

# What each further token adds to a run of the model, in runs of one token. On two cores a small
# model takes 0.08 in float32 and 0.36 in 4 bits, whose products are more work than reading.
PRICE = 0.2

_NONE: Ints = np.zeros(0, np.int64)


class Pace:
    """How many tokens to guess, from how often guesses came true: ``rate``, a moving average.

    Each next guess counts only if those before it hold, so K of them give rate + ... + rate^K
    tokens more, for K times the price of a token and the proposer's cost. The best K grows with
    hits and falls with misses, down to none: then guesses that cost nothing are still looked at,
    and others are tried again after a pause that doubles while they fail.
    """

    WEIGHT, START, LONGEST_PAUSE = 0.15, 0.6, 32

    def __init__(self, proposer: Proposer, price: float) -> None:
        self._price, self._most = price + proposer.cost, proposer.most
        self._free = not proposer.cost
        self.rate, self._pause, self._rest = self.START, 0, 0

    def width(self) -> int:
        """K of the next block."""
        best = self._best()
        if best or self._free:
            return best
        if self._rest:
            self._rest -= 1
            return 0
        return 1

    def note(self, hits: int, missed: bool) -> None:
        """Takes note of ``hits`` guesses that came true, and whether one behind them did not."""
        for hit in [1.0] * hits + [0.0] * missed:
            self.rate += self.WEIGHT * (hit - self.rate)
        if hits:
            self._pause = 0
        elif missed and not self._best():
            self._pause = self._rest = min(2 * self._pause or 1, self.LONGEST_PAUSE)

    def _best(self) -> int:
        """The K that gives most tokens for its cost."""
        best, most, tokens, chance = 0, 1.0, 1.0, 1.0
        for width in range(1, self._most + 1):
            chance *= self.rate
            tokens += chance
            speed = tokens / (1 + self._price * width)
            if speed <= most:
                break
            best, most = width, speed
        return best


class Speculation:
    """One request's speculation; :meth:`run` does the work of :func:`onnxgen.generation.loop.run`.

    Its ``statistics`` grow with it. ``price``, see :data:`PRICE`, decides how much is tried, not
    what comes out. Never fed ahead are stop ids, behind which nothing comes, and the ids ``never``,
    such as those that stand for a prompt's images.
    """

    def __init__(
        self, proposer: Proposer, *, price: float = PRICE, never: Collection[int] = ()
    ) -> None:
        self._proposer, self._never = proposer, frozenset(never)
        self._price = number("the price of a token", price, 0, 100)
        self.statistics = Statistics()

    def run(
        self,
        decoder: Steps,
        rows: Sequence[Row],
        choose: Choose,
        clock: Clock,
        copies: int = 1,
    ) -> Iterator[Step]:
        """Steps ``decoder`` until the row has ended, a :class:`Step` for each token.

        OptionError for several rows, and for proposals that are no ids; LogitsError where a model
        gives NaN or leaves no token to choose. The caller closes the decoder, which must be able to
        rewind.
        """
        if len(rows) != 1 or copies != 1:
            raise OptionError(
                f"speculative decoding of {len(rows)} rows",
                wanted="one prompt, one answer",
                do="give the prompts one by one, or leave speculation out",
            )
        return self._blocks(decoder, rows[0], choose, clock)

    def _blocks(self, decoder: Steps, row: Row, choose: Choose, clock: Clock) -> Iterator[Step]:
        pace = Pace(self._proposer, self._price)
        ids = Sequences([row.prompt], [len(row.prompt) + row.budget])
        guess = fed = _NONE
        logits = decoder.step(*padded([row.prompt[row.fed :]]))[:, None]  # (1,1,V)
        while True:
            start = len(row.tokens)
            yield from _chosen(logits, fed, row, choose, clock)
            new = row.tokens[start:]
            clock.spread(len(new))
            for token in new:
                ids.append(np.array([token]))
            self._note(new, guess, fed, pace)
            if len(new) <= len(fed):  # all but the row's last token are held; it is fed next
                decoder.rewind(ids.lengths - 1)
            if row.finish_reason is not None:
                return
            width, length = pace.width(), int(ids.lengths[0])
            room = min(int(ids.max_lengths[0]) - 1, decoder.capacity) - length
            guess = self._guess(ids.row(0), width, room, row.stop_ids, logits.shape[-1])
            fed = guess[:width]
            logits = _fed(decoder, row.tokens[-1], fed)

    def _note(self, new: Sequence[int], guess: Ints, fed: Ints, pace: Pace) -> None:
        """Counts which of ``guess`` (K,), of which ``fed`` was tried, are among the ``new``."""
        pairs = list(zip(new, guess.tolist(), strict=False))
        hits = next((i for i, (token, guessed) in enumerate(pairs) if token != guessed), len(pairs))
        pace.note(hits, hits < len(pairs))
        self.statistics.steps += 1
        self.statistics.proposed += len(fed)
        self.statistics.accepted += min(hits, len(fed))

    def _guess(
        self, ids: Ints, width: int, room: int, stop_ids: frozenset[int], vocab_size: int
    ) -> Ints:
        """What may follow ``ids`` (L,): ``width`` tokens to be tried, or one to be looked at."""
        count = min(width or int(not self._proposer.cost), room)
        if count < 1:
            return _NONE
        guess = _checked(self._proposer.propose(ids, count), vocab_size)[:count]
        useless = stop_ids | self._never
        end = next((i for i, token in enumerate(guess.tolist()) if token in useless), count)
        return guess[:end]


def _chosen(logits: Floats, fed: Ints, row: Row, choose: Choose, clock: Clock) -> Iterator[Step]:
    """The tokens that follow from ``logits`` (1,S,V), as long as ``fed`` (S-1,) foretold them."""
    for place, guessed in enumerate([*fed.tolist(), None]):
        token = int(choose(logits[:, place], [row])[0])
        clock.tick()
        row.push(token)
        if clock.expired():
            row.finish_reason = row.finish_reason or "length"
        yield Step([row.index], [token], [row.finish_reason])
        if row.finish_reason is not None or token != guessed:
            return


def _fed(decoder: Steps, token: int, guess: Ints) -> Floats:
    """The logits (1,S,V) after ``token`` and after each of ``guess`` (S-1,)."""
    if not len(guess):
        return decoder.step(np.array([[token]]), np.ones(1, np.int64))[:, None]
    block = np.concatenate([[token], guess])
    return decoder.step_all(block[None], np.array([len(block)]))


def _checked(proposal: Any, vocab_size: int) -> Ints:
    """A proposal as ids (K,); OptionError for what is none."""
    try:
        guess = np.asarray(proposal)
    except ValueError:  # lists of unequal length
        guess = np.array("ragged")
    if guess.size == 0:
        return _NONE
    if guess.ndim != 1 or guess.dtype.kind not in "iu":
        raise OptionError(
            f"a proposer gave {guess.dtype} of shape {guess.shape}", wanted="a list of token ids"
        )
    if guess.min() < 0 or guess.max() >= vocab_size:
        outside = guess[(guess < 0) | (guess >= vocab_size)][0]
        raise OptionError(
            f"a proposer gave the token id {outside}", wanted=f"ids from 0 to {vocab_size - 1}"
        )
    return guess.astype(np.int64)
