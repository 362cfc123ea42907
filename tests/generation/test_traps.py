"""Traps of transformers' processors: inputs that are easily taken wrongly, and what comes out.

Where its versions differ, the later one's repair is what onnxgen does, unless noted.
"""

import numpy as np
import pytest

from onnxgen.generation import processors as p
from onnxgen.generation import warpers as w
from onnxgen.generation.config import GenerationConfig
from onnxgen.generation.pipeline import build
from tests.generation.rows import BAN, after, banned, kept, rows


def logs(*shares):
    return np.log(np.array(shares, np.float32))


def built(stop_ids=(), vocab_size=14, **options):
    """The effect of a whole configuration, as one processor."""
    processors = build(
        GenerationConfig(**options),
        sampling=False, beams=1, stop_ids=frozenset(stop_ids), vocab_size=vocab_size,
    )  # fmt: skip

    def process(seqs, scores):
        for each in processors:
            each(seqs, scores)

    return process


def test_a_word_is_seen_even_if_its_beginning_is_the_whole_row():  # known problem S4
    process = p.bad_words([[0, 2]], [], 4)
    assert banned(process, rows([0], [3, 0], [0, 3]), 4) == [[2], [2], []]
    assert after(p.sequence_bias({(0, 2): 1.0}, 4), rows([0]), [0] * 4) == [0, 0, 1, 0]


def test_repetition_penalty_acts_once_and_multiplies_negative_scores():  # known problem S3
    assert after(p.repetition_penalty(2.0), rows([0, 0, 1, 2]), [2, -1, 0, 4]) == [1, -2, 0, 4]


def test_repetition_penalty_of_log_probabilities_always_multiplies():  # known problem S29
    # As beams hand them over: what greedy divides at positive logits is multiplied here.
    scores = after(p.repetition_penalty(2.0), rows([0]), logs(0.5, 0.5))
    assert scores == pytest.approx([2 * np.log(0.5), np.log(0.5)])


def test_repetition_penalty_knows_no_padding():  # known problem C25
    # Rows have none here; a pad id, 0, is penalised only where a row truly holds it.
    scores = after(p.repetition_penalty(1.5), rows([3, 4], [0, 4]), np.full((2, 5), -0.6218))
    assert scores[0][0] == pytest.approx(-0.6218)
    assert scores[1][0] == pytest.approx(-0.9327)


def test_top_k_keeps_ties():  # known problem S18
    assert after(w.top_k(2), rows([0]), [1, 2, 2, 2, 0]) == [BAN, 2, 2, 2, BAN]


def test_top_p_goes_upwards():  # known problem S19
    assert kept(w.top_p(0.5), rows([0]), np.zeros(4)) == [2, 3]
    assert kept(w.top_p(0.5), rows([0]), logs(0.5, 0.3, 0.2)) == [0]


def test_exponential_decay_leaves_a_banned_eos():
    process = built([2], exponential_decay_length_penalty=(0, 1.5), min_new_tokens=4)
    seqs = rows(*[[0] * length for length in range(3, 8)], prompt=3)
    scores = after(process, seqs, np.full((5, 14), -2.0))
    assert [row[2] for row in scores] == [BAN] * 4 + [-2 + 2 * (1.5**4 - 1)]
    assert not np.isnan(scores).any()


def test_a_forced_id_that_is_suppressed_leaves_nothing():  # known problem S21
    # Both versions take token 0 here, by accident; whoever chooses reports the row instead.
    process = built(forced_bos_token_id=0, suppress_tokens=[0])
    assert after(process, rows([1]), np.ones(14)) == [BAN] * 14


def test_begin_suppress_waits_for_the_forced_bos():  # known problem S22
    process = p.suppress_at_begin([5, 6], 14, after_bos=True)
    assert banned(process, rows([1], [1, 0], [1, 0, 3], prompt=1), 14) == [[], [5, 6], []]
    whole = built(begin_suppress_tokens=[5, 6], forced_bos_token_id=0)
    assert banned(whole, rows([1], [1, 0], [1, 0, 3], prompt=1), 14) == [
        [i for i in range(14) if i != 0],
        [5, 6],
        [],
    ]


# known problem S22
def test_begin_suppress_does_not_wait_on_longer_prompts_or_without_forced_bos():
    late = p.suppress_at_begin([5], 14, after_bos=True)
    assert banned(late, rows([1, 1], [1, 1, 0], prompt=2), 14) == [[5], []]
    plain = p.suppress_at_begin([5], 14)
    assert banned(plain, rows([1], [1, 0], prompt=1), 14) == [[5], []]


def test_encoder_repetition_penalty_of_beams():
    seqs = rows([0], [0], [0], [0], samples=[0, 0, 1, 1], encoder=[[0, 1], [2]])
    assert after(p.encoder_repetition_penalty(2.0), seqs, [[2, -1, 3]] * 4) == [
        [4, -0.5, 3],
        [4, -0.5, 3],
        [2, -1, 6],
        [2, -1, 6],
    ]


def test_prefix_function_gets_the_number_of_the_prompt():
    asked = []

    def allowed(sample, ids):
        asked.append(sample)
        return [0]

    after(
        p.prefix_constrained(allowed),
        rows([0], [0], [1], [1], samples=[0, 0, 1, 1]),
        np.zeros((4, 2)),
    )
    assert asked == [0, 0, 1, 1]


def test_encoder_ngrams_of_beams():
    seqs = rows([1], [1], [1], [1], samples=[0, 0, 1, 1], encoder=[[1, 2], [1, 3]])
    assert banned(p.encoder_no_repeat_ngram(2), seqs, 4) == [[2], [2], [3], [3]]


def test_typical_may_drop_the_best():
    assert kept(w.typical(0.5), rows([0]), logs(0.4, 0.2, 0.2, 0.2)) == [1, 2, 3]


def test_min_new_tokens_is_min_length_beyond_the_prompt():  # known problem S17
    process = built([3], min_new_tokens=5)
    seqs = rows(*[[0] * length for length in range(2, 9)], prompt=2)
    assert banned(process, seqs, 14) == [[3]] * 5 + [[], []]


def test_bans_are_infinite_not_least():
    for process in (p.suppress([1], 3), p.min_length(9, [1], 3), p.bad_words([[1]], [], 3)):
        assert after(process, rows([0]), [1, 1, 1]) == [1, BAN, 1]
