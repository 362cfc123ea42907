"""Processors by hand: small rows whose results arithmetic or the oracle's notes give."""

import numpy as np
import pytest

from onnxgen.errors import OptionError
from onnxgen.generation import processors as p
from tests.generation.rows import BAN, after, banned, kept, rows


def test_repetition_penalty_counts_each_id_once():  # known problem S3
    assert after(p.repetition_penalty(2.0), rows([1, 1, 1, 2, 3]), [1, 2, -2, 0]) == [1, 1, -4, 0]


def test_repetition_penalty_leaves_ids_without_a_score():
    assert after(p.repetition_penalty(2.0), rows([9, 1]), [4, 4]) == [4, 2]


def test_rows_see_their_own_ids_only():
    seqs = rows([0], [1, 2], [2])
    scores = after(p.repetition_penalty(2.0), seqs, np.ones((3, 3)))
    assert scores == [[0.5, 1, 1], [1, 0.5, 0.5], [1, 1, 0.5]]


def test_encoder_repetition_penalty_rewards_what_the_encoder_saw():
    assert after(p.encoder_repetition_penalty(2.0), rows([0, 1]), [2, -1, 3]) == [4, -0.5, 3]


def test_presence_and_frequency_count_new_tokens_only():
    seqs = rows([0, 1, 1, 2], prompt=1)
    assert after(p.presence_penalty(0.5), seqs, [1, 1, 1, 1]) == [1, 0.5, 0.5, 1]
    assert after(p.frequency_penalty(0.5), seqs, [1, 1, 1, 1]) == [1, 0, 0.5, 1]
    assert after(p.frequency_penalty(-0.5), seqs, [1, 1, 1, 1]) == [1, 2, 1.5, 1]


def test_penalties_of_a_row_without_new_tokens():
    assert after(p.frequency_penalty(1), rows([0]), [1, 1]) == [1, 1]


def test_logit_bias():
    assert after(p.logit_bias({1: 2, 0: -1.5}, 3), rows([0]), [1, 1, 1]) == [-0.5, 3, 1]
    assert after(p.logit_bias({}, 3), rows([0]), [1, 1, 1]) == [1, 1, 1]


class TestSequenceBias:
    def test_biases_of_one_last_id_add_up(self):
        biases = {(1,): 1.0, (0, 1): 2.0, (5, 1): 4.0, (3, 0, 1): 8.0}
        seqs = rows([3, 0], [0], [5])
        assert [row[1] for row in after(p.sequence_bias(biases, 6), seqs, np.zeros((3, 6)))] == [
            11,
            3,
            5,
        ]

    def test_list_form_takes_id_zero(self):
        assert after(p.sequence_bias([[[0], 1.0], [[1, 0], 2.0]], 2), rows([1]), [0, 0]) == [3, 0]

    @pytest.mark.parametrize(
        "biases",
        [
            {},
            [],
            {1: 1.0},
            {(): 1.0},
            {(1,): 1},
            {(1,): np.nan},
            {(1,): np.inf},
            {(1,): "1"},
            {(9,): 1.0},
            {(-1,): 1.0},
            {(1.0,): 1.0},
            [1, 1.0],
            [[[1]]],
            [[[], 1.0]],
            "1",
            3,
        ],
    )
    def test_wrong(self, biases):
        with pytest.raises(OptionError, match="sequence_bias"):
            p.sequence_bias(biases, 9)


class TestBadWords:
    def test_only_the_last_id_is_banned_and_eos_alone_is_dropped(self):  # known problem S4
        process = p.bad_words([[1], [2, 3]], [1], 5)
        assert banned(process, rows([0, 2], [2, 0]), 5) == [[3], []]

    def test_several_words_of_several_ids(self):  # known problem S4
        process = p.bad_words([[4], [0, 2], [1, 0, 3], [0, 1]], [], 5)
        assert banned(process, rows([0], [1, 0], [0, 1], [2]), 5) == [
            [1, 2, 4],
            [1, 2, 3, 4],
            [4],
            [4],
        ]

    def test_nothing_but_eos_does_nothing(self):
        assert banned(p.bad_words([[1], [2]], [1, 2], 5), rows([0]), 5) == [[]]

    @pytest.mark.parametrize("words", [[], None, "12", [1], [[]], [[9]], [[-1]], [["1"]], [[1.0]]])
    def test_wrong(self, words):
        with pytest.raises(OptionError, match="bad_words_ids"):
            p.bad_words(words, [], 9)


@pytest.mark.parametrize(
    ("size", "ids", "expected"),
    [
        (2, [1, 2, 1], [2]),
        (1, [1, 2, 1], [1, 2]),
        (3, [1, 2, 3, 1, 2], [3]),
        (3, [1], []),
        (2, [0, 1, 0], [1]),
        (2, [1, 1], [1]),
        (2, [0, 1, 0, 2, 0], [1, 2]),
        (2, [1, 9, 1], []),  # an id without a score
    ],
)
def test_no_repeat_ngram(size, ids, expected):  # known problem S15
    assert banned(p.no_repeat_ngram(size), rows(ids), 4) == [expected]


def test_encoder_no_repeat_ngram_takes_the_ids_of_the_row_s_sample():
    seqs = rows([1], [1], [1], [1], samples=[0, 0, 1, 1], encoder=[[1, 2], [1, 3]])
    assert banned(p.encoder_no_repeat_ngram(2), seqs, 4) == [[2], [2], [3], [3]]
    assert banned(p.encoder_no_repeat_ngram(1), seqs, 4) == [[1, 2], [1, 2], [1, 3], [1, 3]]
    assert banned(p.encoder_no_repeat_ngram(3), seqs, 4) == [[], [], [], []]


def test_encoder_ids_follow_the_rows_of_another_request():
    process = p.encoder_no_repeat_ngram(1)
    assert banned(process, rows([0], encoder=[[1]]), 4) == [[1]]
    assert banned(process, rows([0], encoder=[[2]]), 4) == [[2]]


def test_lengths_count_by_row():  # known problem S17
    assert banned(p.min_length(4, [2], 3), rows([0] * 3, [0] * 4), 3) == [[2], []]
    seqs = rows([0] * 4, [0] * 5, prompt=3)
    assert banned(p.min_new_tokens(2, [2, 0], 3), seqs, 3) == [[0, 2], []]


def test_a_stop_id_without_a_score_is_no_error():
    assert banned(p.min_length(4, [2, 7], 3), rows([0]), 3) == [[2]]


def test_prefix_constrained_asks_for_each_row():  # known problem S6
    def allowed(sample, ids):
        assert ids.base is None  # a copy: what it keeps stays as it is
        return [sample, int(ids[-1])]

    seqs = rows([3], [0, 2], samples=[1, 0])
    assert banned(p.prefix_constrained(allowed), seqs, 4) == [[0, 2], [1, 3]]


@pytest.mark.parametrize("returned", [[], None, [4], [-1], ["1"], [0.5], 1.5])
def test_prefix_constrained_refuses(returned):
    with pytest.raises(OptionError, match="prefix_allowed_tokens_fn"):
        after(p.prefix_constrained(lambda sample, ids: returned), rows([0]), [0] * 4)


def test_forced_bos_only_for_rows_of_one_id():  # known problem S16
    scores = after(p.forced_bos(2, 4), rows([0], [0, 1]), np.ones((2, 4)))
    assert scores == [[BAN, BAN, 0, BAN], [1, 1, 1, 1]]


def test_forced_eos_for_the_last_place():  # known problem S16
    scores = after(p.forced_eos([2, 3], 4), rows([0] * 4, [0] * 3, limit=5), np.ones((2, 4)))
    assert scores == [[BAN, BAN, 0, 0], [1, 1, 1, 1]]


def test_remove_invalid():
    most = float(np.finfo(np.float32).max)
    assert after(p.remove_invalid(), rows([0]), [np.nan, np.inf, BAN, 1]) == [0, most, -most, 1]


class TestExponentialDecay:
    def test_grows_beyond_its_start(self):
        process = p.exponential_decay((2, 1.5), [0], 2)
        seqs = rows([1] * 5, [1] * 6, [1] * 7, prompt=3)
        assert after(process, seqs, [[-2, 1]] * 3) == [[-2, 1], [-1, 1], [0.5, 1]]

    @pytest.mark.parametrize("score", [0, 1e-3, -5])
    def test_stays_finite_after_many_tokens(self, score):
        process = p.exponential_decay([0, 9.0], [0], 2)
        value = after(process, rows([1] * 3000, prompt=1), [score, 1])[0]
        assert np.isfinite(value)
        assert value >= score

    @pytest.mark.parametrize(
        "decay",
        [3, [1], (1, 2.0, 3), "ab", (-1, 1.5), (1.5, 1.5), (1, 0.0), (1, -1.0), (1, np.nan)],
    )
    def test_wrong(self, decay):
        with pytest.raises(OptionError, match="exponential_decay_length_penalty"):
            p.exponential_decay(decay, [0], 2)

    def test_needs_a_stop_id(self):
        with pytest.raises(OptionError, match="eos_token_id"):
            p.exponential_decay((1, 1.5), [], 2)


def test_suppress():
    assert banned(p.suppress([1, 3], 4), rows([0], [0, 0]), 4) == [[1, 3], [1, 3]]
    assert banned(p.suppress([], 4), rows([0]), 4) == [[]]


def test_suppress_at_begin():
    seqs = rows([0, 0], [0, 0, 0], prompt=2)
    assert banned(p.suppress_at_begin([1], 2), seqs, 2) == [[1], []]


class TestGuidance:
    def test_moves_away_from_the_unconditional(self):
        given, free = np.log([[0.5, 0.25, 0.25]]), np.log([[0.25, 0.25, 0.5]])
        guided = p.guidance(given.astype(np.float32), free.astype(np.float32), 2.0)
        assert np.exp(guided[0]) == pytest.approx([1, 0.25, 0.125], rel=1e-6)

    def test_a_ban_on_either_side_gives_no_nan(self):
        given, free = np.float32([[0, BAN, 0, BAN]]), np.float32([[BAN, 0, 0, BAN]])
        guided = p.guidance(given, free, 3.0)[0]
        assert np.isneginf(guided).tolist() == [False, True, False, True]
        assert np.isfinite(guided[[0, 2]]).all()

    @pytest.mark.parametrize("value", [0, -1, np.nan, np.inf, "2", True, 1e9])
    def test_wrong(self, value):
        with pytest.raises(OptionError, match="guidance_scale"):
            p.guidance_scale(value)


@pytest.mark.parametrize(
    "process",
    [
        p.repetition_penalty(2.0),
        p.encoder_repetition_penalty(2.0),
        p.sequence_bias({(0,): 1.0, (1, 0): 2.0}, 3),
        p.bad_words([[0], [1, 2]], [], 3),
        p.exponential_decay((0, 2.0), [0, 1], 3),
        p.frequency_penalty(1),
        p.logit_bias({0: 5}, 3),
    ],
)
def test_a_banned_token_stays_banned(process):
    assert after(process, rows([1, 0, 1], prompt=1), [BAN] * 3) == [BAN] * 3


NOT_IDS = [-1, 9, "1", 1.0, None, True, [9], [-1], [1.5], ["1"], [[1]], {1: 2}.items()]


@pytest.mark.parametrize("ids", NOT_IDS)
@pytest.mark.parametrize("make", [p.forced_bos, p.forced_eos, p.suppress, p.suppress_at_begin])
def test_what_is_no_id_is_refused(make, ids):
    with pytest.raises(OptionError):
        make(ids, 9)


@pytest.mark.parametrize("value", [-1, 1.5, "2", np.nan, np.inf, True, None])
def test_counts_are_whole_numbers(value):
    for make in (p.no_repeat_ngram, p.encoder_no_repeat_ngram):
        with pytest.raises(OptionError, match="ngram_size"):
            make(value)
    for make in (p.min_length, p.min_new_tokens):
        with pytest.raises(OptionError, match="min_"):
            make(value, [1], 9)


@pytest.mark.parametrize("value", [0.0, -1.0, 2, "1.2", np.nan, np.inf, 1e39, 1e-39, True, None])
def test_factors_are_floats_above_zero(value):
    for make in (p.repetition_penalty, p.encoder_repetition_penalty):
        with pytest.raises(OptionError, match="repetition_penalty"):
            make(value)


@pytest.mark.parametrize("value", [2.1, -3, np.nan, np.inf, "1", True, None])
def test_openai_s_penalties_are_bounded(value):
    for make in (p.presence_penalty, p.frequency_penalty):
        with pytest.raises(OptionError, match="from -2 to 2"):
            make(value)


@pytest.mark.parametrize("biases", [{9: 1}, {-1: 1}, {"1": 1}, {1: 101}, {1: np.nan}, {1: "1"}, []])
def test_logit_bias_refuses(biases):
    with pytest.raises(OptionError, match="logit_bias"):
        p.logit_bias(biases, 9)


def test_kept_and_banned_agree():  # of the helpers that all the above trusts
    process = p.suppress([1], 3)
    assert kept(process, rows([0]), [0, 0, 0]) == [0, 2]
