"""How good an answer of Whisper is, and what follows: keep it, try again, or skip the window.

An answer that repeats itself compresses well; one that the model made up is unlikely. Both are
tried again at a higher temperature. One that is unlikely where the model hears no speech is
dropped. The rules are those of ``WhisperGenerationMixin._need_fallback`` in transformers 4.57.6.

Letters: N new tokens, V vocabulary.
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from onnxgen.errors import OptionError

Floats = NDArray[np.float32]


class Verdict(Enum):
    """What becomes of an answer."""

    KEEP = "keep"
    RETRY = "retry"  # at the next temperature; at the last one, keep
    SKIP = "skip"  # there is no speech in the window


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When an answer is not good enough; None never is reached.

    OptionError where ``no_speech`` is given without ``logprob``, which it needs.
    """

    compression_ratio: float | None = None
    logprob: float | None = None
    no_speech: float | None = None

    def __post_init__(self) -> None:
        if self.no_speech is not None and self.logprob is None:
            raise OptionError(
                "no_speech_threshold is given without logprob_threshold",
                wanted="both: silence is skipped only where the answer is unlikely too",
            )

    def judge(
        self,
        compression_ratio: float | None = None,
        avg_logprob: float | None = None,
        no_speech_prob: float | None = None,
    ) -> Verdict:
        """The verdict on an answer; a value that has a threshold has to be given."""
        repeats = _beyond(compression_ratio, self.compression_ratio)
        unlikely = _beyond(self.logprob, avg_logprob)
        if unlikely and _beyond(no_speech_prob, self.no_speech):
            return Verdict.SKIP
        return Verdict.RETRY if repeats or unlikely else Verdict.KEEP


def _beyond(high: float | None, low: float | None) -> bool:
    return high is not None and low is not None and high > low


def compression_ratio(tokens: Sequence[int], vocab_size: int) -> float:
    """Bytes of ``tokens`` (N,), by their bytes after zlib.

    The tokens are all that the model gave, timestamps and end included, as little-endian numbers
    of as many bytes as ``vocab_size`` has.
    """
    width = int(math.log2(vocab_size) / 8) + 1
    raw = b"".join(int(token).to_bytes(width, "little") for token in tokens)
    return len(raw) / len(zlib.compress(raw))


def token_logprobs(scores: Floats, tokens: Sequence[int], temperature: float) -> Floats:
    """Log-probabilities (N,) of ``tokens`` (N,) in ``scores`` (N,V).

    The scores are those that the tokens were chosen by: processed, divided by ``temperature``
    unless that is 0. The division is undone here, so that temperatures compare.
    """
    scores = scores * np.float32(temperature or 1)
    scores -= scores.max(axis=1, keepdims=True)
    chosen = scores[np.arange(len(scores)), np.asarray(tokens, np.int64)]
    logprobs: Floats = chosen - np.log(np.exp(scores).sum(axis=1))
    return logprobs


def average_logprob(logprobs: Sequence[float] | Floats) -> float:
    """The mean of an answer's ``logprobs`` (N,), that of its end included."""
    return float(np.mean(logprobs, dtype=np.float64))
