"""Whisper's timestamp rules; expectations are the oracle's notes."""

import numpy as np
import pytest

from onnxgen.errors import OptionError
from onnxgen.generation.whisper_rules import no_speech_probability, timestamps
from tests.generation.rows import BAN, kept, rows

# 12 ids: text 0 to 3, eos 4, special 5 and 6, no-timestamps 7, timestamps 8 to 11.
TEXT = [5.0] * 8 + [0.0] * 4
PROCESS = timestamps(7, 4, 12, max_initial=1)


@pytest.mark.parametrize(
    ("new", "scores", "expected"),
    [
        ([], TEXT, [8, 9]),
        ([8], TEXT, [0, 1, 2, 3, 4, 5, 6]),
        ([8, 0], TEXT, [0, 1, 2, 3, 4, 5, 6, 9, 10, 11]),
        ([8, 0, 9], TEXT, [4, 5, 6, 9, 10, 11]),
        ([8, 0, 9, 9], TEXT, [0, 1, 2, 3, 4, 5, 6]),
        ([8, 0, 9, 9, 1], TEXT, [0, 1, 2, 3, 4, 5, 6, 10, 11]),
        ([8, 0], [1.0] + [0.0] * 7 + [0.5] * 4, [9, 10, 11]),  # three make 1.5986
        ([8, 0], [3.0] + [0.0] * 7 + [0.5] * 4, [0, 1, 2, 3, 4, 5, 6, 9, 10, 11]),
    ],
)
def test_what_may_come(new, scores, expected):  # known problem A5
    assert kept(PROCESS, rows([7, *new], prompt=1), scores) == expected


def test_the_sum_rule_can_be_off():
    process = timestamps(7, 4, 12, by_mass=False)
    scores = [1.0] + [0.0] * 7 + [0.5] * 4
    found = kept(process, rows([7, 8, 0], prompt=1), scores)
    assert found == [0, 1, 2, 3, 4, 5, 6, 9, 10, 11]


def test_pairs_order_and_sum_together():  # known problem A16
    process = timestamps(5, 3, 10, max_initial=1)
    text = [9.0] + [0.0] * 9
    begin = [0, 1]
    assert kept(process, rows(begin, prompt=2), [0.0] * 10) == [6, 7]
    after_text = kept(process, rows([*begin, 6, 2], prompt=2), text)
    assert after_text == [0, 1, 2, 3, 4, 7, 8, 9]
    assert kept(process, rows([*begin, 6, 2, 8], prompt=2), [0.0] * 10) == [8, 9]
    assert kept(process, rows([*begin, 6, 2, 8, 8], prompt=2), text) == [0, 1, 2, 3, 4]


def test_nothing_left_is_no_nan():
    assert kept(PROCESS, rows([7], prompt=1), [BAN] * 12) == []


def test_no_speech_probability():
    scores = np.log(np.float32([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]]))
    assert no_speech_probability(scores, 2) == pytest.approx([0.2, 0.25], abs=1e-6)


@pytest.mark.parametrize(
    ("no_timestamps", "eos", "highest"),
    [(12, 4, 1), (-1, 4, 1), (7, 12, 1), (None, 4, 1), (7, 4, -1), (7, 4, 1.5), (7, 4, "1")],
)
def test_wrong(no_timestamps, eos, highest):
    with pytest.raises(OptionError):
        timestamps(no_timestamps, eos, 12, max_initial=highest)
