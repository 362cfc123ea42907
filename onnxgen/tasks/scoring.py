"""How likely a text is to the model: the log-probability of each of its tokens.

Letters: S tokens fed at once, V vocabulary.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from onnxgen.generation.softmax import normaliser
from onnxgen.runtime.decoder import DecoderModel
from onnxgen.runtime.group import fitting
from onnxgen.runtime.memory import enough


@dataclass(frozen=True, slots=True)
class Score:
    """Tokens and how likely each was behind all before it, as natural logarithms."""

    tokens: tuple[int, ...]
    token_logprobs: tuple[float, ...]

    @property
    def logprob(self) -> float:
        """The log-probability of all tokens together."""
        return sum(self.token_logprobs)

    @property
    def perplexity(self) -> float:
        """The exponential of the mean negative log-probability of a token."""
        return float(np.exp(-self.logprob / len(self.token_logprobs)))


def score(model: DecoderModel, context: Sequence[int], continuation: Sequence[int]) -> Score:
    """The log-probabilities of ``continuation`` behind ``context``, one token at least.

    Graphs that give all logits read both at once, in pieces that bound memory; others go token by
    token. CapacityError where both together are too long.
    """
    whole = [*context, *continuation]
    fed, first = whole[:-1], len(context)  # the last token is scored, not fed
    size = fitting(1, model.vocab_size)
    logprobs: list[float] = []
    with enough("score the text"), closing(model.start(len(fed))) as decoder:
        # Of the logits before the context's last token none is needed.
        if first > 1:
            decoder.step(np.array([fed[: first - 1]], np.int64), np.array([first - 1]))
        for start in range(first - 1, len(fed), size):
            tokens = np.array([fed[start : start + size]], np.int64)  # (1,S)
            logits = decoder.step_all(tokens, np.array([tokens.shape[1]]))[0]  # (S,V)
            for row, token in zip(logits, whole[start + 1 :], strict=False):
                logprobs.append(float(row[token] - normaliser(row)))
    return Score(tuple(continuation), tuple(logprobs))
