"""What a generation gives back."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Timings:
    """Wall times of one request in milliseconds.

    ``prefill_ms`` ends with the first new token; ``per_token_ms`` holds one entry for each token
    after it, in order; ``total_ms`` is the whole request.
    """

    prefill_ms: float
    per_token_ms: tuple[float, ...]
    total_ms: float

    @property
    def tokens_per_second(self) -> float:
        """Speed of decoding after the first token, by the median step; 0 if there was no step."""
        return 1000 / median(self.per_token_ms) if self.per_token_ms else 0.0


@dataclass(slots=True)
class Statistics:
    """Of speculative decoding: ``steps``, runs of the model, the prompt's too; guesses that were
    tried, and that came true."""

    steps: int = 0
    proposed: int = 0
    accepted: int = 0

    @property
    def acceptance(self) -> float:
        """Of the proposed tokens the share that was accepted; 0 if there were none."""
        return self.accepted / self.proposed if self.proposed else 0.0


@dataclass(frozen=True, slots=True)
class Generation:
    """The answer to one prompt.

    ``tokens`` are the new ones, with the stop token if one was hit; ``text`` leaves special tokens
    out. ``finish_reason`` is ``stop`` (a stop token, stop string or criterion ended it) or
    ``length`` (no more tokens, or no more time, was allowed).

    Only when asked for: ``token_logprobs`` and ``top_logprobs`` (id and log-probability), of the
    processed and normalised scores, an entry a token; ``scores``, the processed scores themselves,
    (tokens, V), with beams (steps, beams, V); ``transition_scores``, what these gave to the tokens,
    not normalised again. Beams always have the latter, which add up to their ``sequence_score``
    before the length penalty, and ``beam_indices``. ``speculation`` is there if tokens were
    guessed.
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: str
    prompt_tokens: int
    timings: Timings
    token_logprobs: tuple[float, ...] | None = None
    top_logprobs: tuple[tuple[tuple[int, float], ...], ...] | None = None
    scores: NDArray[np.float32] | None = None
    sequence_score: float | None = None
    beam_indices: tuple[int, ...] | None = None
    transition_scores: tuple[float, ...] | None = None
    speculation: Statistics | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """One step of a stream: a new token of ``row``, and the text that it completed.

    ``text`` is empty while a character is incomplete. ``finish_reason`` is set with the row's
    last piece.
    """

    text: str
    token: int
    row: int = 0
    finish_reason: str | None = None
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """The new tokens of one step: of which rows, and why those end that end with it."""

    rows: Sequence[int]
    tokens: Sequence[int]
    finish_reasons: Sequence[str | None]
