"""When an answer is tried again or dropped; expectations are the oracle's notes, or on paper."""

import math

import numpy as np
import pytest

from onnxgen.audio.quality import (
    Thresholds,
    Verdict,
    average_logprob,
    compression_ratio,
    token_logprobs,
)
from onnxgen.errors import OptionError


@pytest.mark.parametrize(
    ("tokens", "vocab_size", "ratio"),
    [
        ([5] * 20, 51865, 3.0769),
        ([5] * 20, 70000, 4.2857),
        ([5] * 20, 200, 1.8182),
        (range(1, 9), 51865, 0.6667),
        ([], 51865, 0.0),
    ],
)
def test_compression_ratios(tokens, vocab_size, ratio):
    assert compression_ratio(tokens, vocab_size) == pytest.approx(ratio, abs=1e-4)


def test_average_of_log_probabilities_with_the_temperature_taken_back():
    scores = np.array([[1, 2, -np.inf], [0, 3, 1], [0, 0, 5]], np.float32)
    kept = scores.copy()
    for temperature, average in [(0.0, -0.1655), (0.5, -0.3635)]:
        found = token_logprobs(scores, [1, 1, 2], temperature)
        assert average_logprob(found) == pytest.approx(average, abs=1e-4)
    assert np.array_equal(scores, kept)
    np.testing.assert_allclose(
        token_logprobs(scores, [1, 1, 2], 1.0),
        [-math.log(1 + math.exp(-1)), -math.log1p(math.exp(-3) + math.exp(-2)), -0.013386],
        atol=1e-6,
    )


def test_large_scores_do_not_overflow():
    scores = np.array([[1e4, 0.0], [-1e4, -1e4]], np.float32)
    np.testing.assert_allclose(token_logprobs(scores, [1, 0], 0.0), [-1e4, -math.log(2)], rtol=1e-6)


@pytest.mark.parametrize(
    ("limits", "answer", "verdict"),
    [
        ((None, None, None), (9.0, -9.0, 1.0), Verdict.KEEP),
        ((2.4, None, None), (2.4, -9.0, 1.0), Verdict.KEEP),
        ((2.4, None, None), (2.5, 0.0, 0.0), Verdict.RETRY),
        ((2.4, -1.0, None), (1.0, -1.0, 1.0), Verdict.KEEP),
        ((2.4, -1.0, None), (1.0, -1.1, 1.0), Verdict.RETRY),
        ((2.4, -1.0, 0.6), (1.0, -1.1, 0.6), Verdict.RETRY),
        ((2.4, -1.0, 0.6), (1.0, -1.1, 0.7), Verdict.SKIP),
        ((2.4, -1.0, 0.6), (9.0, -1.1, 0.7), Verdict.SKIP),
        ((2.4, -1.0, 0.6), (9.0, -0.9, 0.7), Verdict.RETRY),
        ((2.4, -1.0, 0.6), (1.0, -0.9, 0.7), Verdict.KEEP),
        ((None, -1.0, None), (None, -1.1, None), Verdict.RETRY),
    ],
)
def test_verdicts(limits, answer, verdict):
    assert Thresholds(*limits).judge(*answer) is verdict


def test_silence_needs_both_thresholds():
    with pytest.raises(OptionError, match="without logprob_threshold"):
        Thresholds(no_speech=0.6)
