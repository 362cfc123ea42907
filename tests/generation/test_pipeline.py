"""Which processors a configuration builds, their order, and what it refuses."""

import numpy as np
import pytest

from onnxgen.errors import OptionError
from onnxgen.generation.config import GenerationConfig
from onnxgen.generation.pipeline import adapted, build
from tests.generation.rows import BAN, after, rows

VOCABULARY = 6


def run(seqs, scores, *, sampling=False, beams=1, eos=(), custom=(), task=(), **options):
    processors = build(
        GenerationConfig(**options),
        sampling=sampling,
        beams=beams,
        stop_ids=frozenset(eos),
        vocab_size=VOCABULARY,
        custom=custom,
        task=task,
    )

    def process(seqs, scores):
        for each in processors:
            each(seqs, scores)

    return after(process, seqs, scores)


def test_nothing_asked_builds_nothing():
    asked = GenerationConfig(
        temperature=1.0, top_k=0, top_p=1.0, typical_p=1.0, epsilon_cutoff=0.0, eta_cutoff=0.0,
        repetition_penalty=1.0, encoder_repetition_penalty=1.0, no_repeat_ngram_size=0,
        encoder_no_repeat_ngram_size=0, min_length=0, presence_penalty=0.0,
        frequency_penalty=0.0, renormalize_logits=False, remove_invalid_values=False,
    )  # fmt: skip
    for config in (GenerationConfig(), asked):
        for beams in (1, 2):
            built = build(config, sampling=True, beams=beams, stop_ids=frozenset([1]), vocab_size=6)
            assert built == []


def test_warpers_are_for_sampling():
    options = {"temperature": 0.5, "top_k": 1}
    assert run(rows([0]), [1, 2], **options) == [1, 2]
    assert run(rows([0]), [1, 2], sampling=True, **options) == [BAN, 4]


@pytest.mark.parametrize(
    ("beams", "eos", "kept"), [(1, [0, 1], 1), (2, [0, 1], 3), (2, [0], 2), (2, [], 2)]
)
def test_beams_keep_one_token_more_than_can_end_them(beams, eos, kept):
    for option in (
        {"top_k": 1}, {"top_p": 0.0}, {"min_p": 1.0}, {"typical_p": 0.001},
        {"epsilon_cutoff": 0.999}, {"eta_cutoff": 0.999},
    ):  # fmt: skip
        scores = run(rows([0]), [9, 3, 2, 1, 4, 5], sampling=True, beams=beams, eos=eos, **option)
        # eta's cutoff is far below epsilon's; sharp scores leave it a single token.
        assert np.isfinite(scores).sum() == kept, option


def test_min_new_tokens_takes_the_place_of_min_length():
    with pytest.warns(UserWarning, match="min_length"):
        scores = run(rows([0] * 4, prompt=2), np.zeros(6), eos=[1], min_length=9, min_new_tokens=1)
    assert scores == [0] * 6


def test_forced_eos_beats_min_length_and_is_beaten_by_suppress():
    last = rows([0] * 4, limit=5)
    options = {"forced_eos_token_id": 2, "min_length": 9}
    forced = [BAN, BAN, 0, BAN, BAN, BAN]
    assert run(last, np.ones(6), eos=[2], **options) == forced
    assert run(last, np.ones(6), eos=[2], suppress_tokens=[2], **options) == [BAN] * 6


def test_invalid_values_go_after_bans_and_before_suppress():
    least = -float(np.finfo(np.float32).max)
    scores = run(
        rows([0]), [np.nan, 1, 1, 1, 1, 1],
        bad_words_ids=[[1]], suppress_tokens=[2], remove_invalid_values=True,
    )  # fmt: skip
    assert scores == [0, least, BAN, 1, 1, 1]


@pytest.mark.filterwarnings("error")
def test_invalid_values_pass_the_warpers_without_nan_and_warnings():
    for renormalize in (False, True):
        scores = run(
            rows([0]), [np.nan, 1, 2, 3, BAN, BAN], sampling=True, bad_words_ids=[[1]],
            remove_invalid_values=True, temperature=0.5, top_k=5, top_p=0.99, min_p=0.0001,
            typical_p=0.99, epsilon_cutoff=1e-4, eta_cutoff=1e-4, renormalize_logits=renormalize,
            custom=[lambda ids, scores: scores.astype(float) * 1e2],
        )  # fmt: skip
        assert not np.isnan(scores).any()
        assert np.isfinite(scores).any()


def test_penalties_come_before_the_caller_and_temperature_after():
    seen = []

    def function(ids, scores):
        seen.append((ids.tolist(), scores.tolist()))
        return scores + 1

    scores = run(
        rows([0, 1], [1]), [[4, 4], [4, 4]], sampling=True, custom=[function],
        repetition_penalty=2.0, temperature=0.5,
    )  # fmt: skip
    assert seen == [([0, 1], [2, 2]), ([1], [4, 2])]
    assert scores == [[6, 6], [10, 6]]


def test_options_of_openai_s_api():
    scores = run(
        rows([0, 1, 1], prompt=1), [0, 0, 0], logit_bias={2: 5},
        presence_penalty=0.5, frequency_penalty=0.25,
    )  # fmt: skip
    assert scores == [0, -1, 5]


def test_the_task_acts_before_the_caller():
    def task(seqs, scores):
        scores += 1

    assert run(rows([0]), [1, 2], task=[task], custom=[lambda ids, scores: scores * 10]) == [20, 30]


def test_watermark_follows_top_k_and_renormalizing_is_last():
    config = {"greenlist_ratio": 0.9, "bias": 3.0}
    scores = run(
        rows([0]), [0, 1, 2, 3, 4, 5], sampling=True,
        top_k=2, watermarking_config=config, renormalize_logits=True,
    )  # fmt: skip
    assert np.isfinite(scores).sum() == 2
    assert np.exp(scores).sum() == pytest.approx(1, abs=1e-6)
    assert run(rows([0]), np.zeros(6), watermarking_config=config) != [0] * 6


def test_an_encoder_without_ids_makes_its_penalties_void():
    config = GenerationConfig(encoder_repetition_penalty=2.0, encoder_no_repeat_ngram_size=1)
    with pytest.warns(UserWarning, match="encoder"):
        built = build(
            config, sampling=False, beams=1, stop_ids=frozenset(), vocab_size=6,
            encoder_has_ids=False,
        )  # fmt: skip
    assert built == []


class TestCustom:
    def test_a_pair_gets_prompt_and_new_ids_newest_first(self):
        seen = []

        def state(prompt, new, vocab_size):
            seen.append((prompt, new, vocab_size))
            return np.full(vocab_size, len(new))

        pair = (state, lambda scores, state: scores + state)
        seqs = rows([5, 6, 1, 2, 3], [5, 6], prompt=2)
        assert after(adapted(pair), seqs, [[1, 2], [1, 2]]) == [[4, 5], [1, 2]]
        assert seen == [([5, 6], [3, 2, 1], 2), ([5, 6], [], 2)]

    def test_what_it_is_given_is_its_own(self):
        seqs = rows([5, 6])

        def spoil(ids, scores):
            ids[:] = 0
            kept = scores.copy()
            scores[:] = 9
            return kept

        assert after(adapted(spoil), seqs, [1, 2]) == [1, 2]
        assert seqs.row(0).tolist() == [5, 6]

    @pytest.mark.parametrize("returned", [None, [1], [[1, 2]], 1.0, ["a", "b"], [True, False]])
    def test_what_returns_no_scores_is_refused(self, returned):
        for custom in (lambda ids, s: returned, (lambda p, n, v: 0, lambda s, state: returned)):
            with pytest.raises(OptionError, match="logits processor returned"):
                after(adapted(custom), rows([0]), [1, 2])

    @pytest.mark.parametrize("custom", [None, 3, (), (len,), (len, 3), (len, len, len)])
    def test_what_is_no_function_is_refused(self, custom):
        with pytest.raises(OptionError, match="logits processor"):
            adapted(custom)

    def test_its_own_errors_pass(self):
        def fail(ids, scores):
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            after(adapted(fail), rows([0]), [1, 2])


NUMBERS = {
    "temperature": [0.0, -1.0, 1e39],
    "top_k": [-1, 1.5],
    "top_p": [-0.1, 1.1],
    "min_p": [-0.1, 1.1],
    "typical_p": [0, -0.1, 1.1],
    "epsilon_cutoff": [1, -0.1, 1.1],
    "eta_cutoff": [1, -0.1, 1.1],
    "repetition_penalty": [0.0, -1.0, 2, 1e39],
    "encoder_repetition_penalty": [0.0, -1.0, 2, 1e39],
    "presence_penalty": [-3, 3],
    "frequency_penalty": [-3, 3],
    "logit_bias": [{6: 1.0}, {1: np.nan}, [1]],
    "no_repeat_ngram_size": [-1, 1.5],
    "encoder_no_repeat_ngram_size": [-1, 1.5],
    "min_length": [-1, 1.5],
    "min_new_tokens": [-1, 1.5],
    "forced_bos_token_id": [-1, 6, 1.5],
    "forced_eos_token_id": [-1, 6, 1.5, []],
    "suppress_tokens": [[6], [-1], [1.5]],
    "begin_suppress_tokens": [[6], [-1], [1.5]],
    "bad_words_ids": [[], [[6]], [[]], [1]],
    "sequence_bias": [{}, {(6,): 1.0}, {(1,): np.nan}],
    "exponential_decay_length_penalty": [(1,), (1, 0.0)],
    "watermarking_config": [{"bias": np.nan}],
    "renormalize_logits": [1, 0],
    "remove_invalid_values": [1, 0],
}


@pytest.mark.parametrize("name", NUMBERS)
def test_wrong_values_are_refused_before_the_first_step(name):
    booleans = [] if name in ("renormalize_logits", "remove_invalid_values") else [True, False]
    for value in [*NUMBERS[name], *booleans, np.nan, np.inf, -np.inf, "1", b"1"]:
        with pytest.raises(OptionError):
            build(
                GenerationConfig(**{name: value}),
                sampling=True, beams=1, stop_ids=frozenset([1]), vocab_size=VOCABULARY,
            )  # fmt: skip
