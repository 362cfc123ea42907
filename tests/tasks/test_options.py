"""What a caller may ask for, carried out by the task in every cache mode: each mode's fixture."""

import numpy as np
import pytest

import onnxgen
from onnxgen.errors import CancelledError, LogitsError, OptionError
from onnxgen.tasks.cache import Cache
from tests import fixture_models
from tests.fixture_models import FIXTURES, FixtureModel

MODES = {
    **fixture_models.MODES,
    "pair": "models/llama-pair",
    "length": "handmade/gqa_mask_length",
}
each_mode = pytest.mark.parametrize("mode", MODES)
FREE = {"eos_token_id": None, "max_new_tokens": 12}


def fixture_of(mode):
    return FixtureModel(FIXTURES / MODES[mode])


@pytest.fixture(scope="module")
def load():
    loaded = {}

    def of(mode):
        if mode not in loaded:
            loaded[mode] = onnxgen.load(fixture_of(mode).folder)
        return loaded[mode]

    return of


def tokens(results):
    return [list(result.tokens) for result in results]


def full_logits(model, ids):
    """Logits (S,V) after each token, in one pass of a fresh decoder."""
    decoder = model.model.start(len(ids))
    return decoder.step_all(np.array([ids]), np.array([len(ids)]))[0]


def log_softmax(logits):
    logits = logits.astype(np.float64)
    return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())


@each_mode
def test_rows_drawn_in_a_batch_equal_single_runs(mode, load):  # known problems C25, S33
    model, prompts = load(mode), fixture_of(mode).prompts
    drawing = {
        "do_sample": True,
        "top_k": 20,
        "temperature": 1.5,
        "repetition_penalty": 1.3,
        **FREE,
    }
    single = [
        list(model.generate(p, seed=seed, **drawing).tokens) for seed, p in enumerate(prompts)
    ]
    assert single != [list(model.generate(p, **FREE).tokens) for p in prompts]
    for order in [(0, 1, 2, 3), (3, 1), (2, 0, 3)]:
        batch = model.generate([prompts[i] for i in order], seeds=list(order), **drawing)
        assert tokens(batch) == [single[i] for i in order]


@each_mode
def test_beams_in_a_batch_equal_single_runs(mode, load):
    model, prompts = load(mode), fixture_of(mode).prompts
    options = {"num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.5, **FREE}
    single = [model.generate(p, **options) for p in prompts[:3]]
    batch = model.generate([prompts[i] for i in (2, 0, 1)], **options)
    assert [tokens(answers) for answers in batch] == [tokens(single[i]) for i in (2, 0, 1)]
    for answers in single:
        assert answers[0].sequence_score >= answers[1].sequence_score
        for answer in answers:
            assert sum(answer.transition_scores) / len(answer.tokens) ** 0.5 == pytest.approx(
                answer.sequence_score, rel=1e-5
            )


@each_mode
def test_beam_scores_are_those_of_the_model(mode, load):
    model, prompt = load(mode), fixture_of(mode).prompts[1]
    answer = model.generate(prompt, num_beams=4, length_penalty=0.0, **FREE)
    logits = full_logits(model, [*prompt, *answer.tokens[:-1]])[len(prompt) - 1 :]
    own = [log_softmax(row)[t] for row, t in zip(logits, answer.tokens, strict=True)]
    assert answer.sequence_score == pytest.approx(sum(own), rel=1e-4)


@each_mode
def test_log_probabilities_are_those_of_the_model(mode, load):
    model, prompt = load(mode), fixture_of(mode).prompts[1]
    answer = model.generate(prompt, logprobs=True, top_logprobs=3, output_scores=True, **FREE)
    logits = full_logits(model, [*prompt, *answer.tokens[:-1]])[len(prompt) - 1 :]
    for step, row in enumerate(logits):
        own = log_softmax(row)
        assert answer.token_logprobs[step] == pytest.approx(own[answer.tokens[step]], abs=1e-4)
        best = answer.top_logprobs[step]
        assert [i for i, _ in best] == np.argsort(-own, kind="stable")[:3].tolist()
        assert best[0] == (answer.tokens[step], answer.token_logprobs[step])
    np.testing.assert_allclose(answer.scores, logits, atol=1e-3)
    own = [row[token] for row, token in zip(logits, answer.tokens, strict=True)]
    assert answer.transition_scores == pytest.approx(own, abs=1e-3)
    pieces = list(model.stream(prompt, top_logprobs=1, **FREE))
    assert tuple(piece.logprob for piece in pieces) == answer.token_logprobs
    assert [piece.top_logprobs[0][0] for piece in pieces] == list(answer.tokens)


@each_mode
def test_score_of_a_continuation(mode, load):
    model, prompt = load(mode), fixture_of(mode).prompts[1]
    answer = model.generate(prompt, logprobs=True, **FREE)
    scored = model.score(prompt, list(answer.tokens))
    assert scored.tokens == answer.tokens
    assert scored.token_logprobs == pytest.approx(answer.token_logprobs, abs=1e-4)
    whole = model.score([*prompt, *answer.tokens])
    assert whole.token_logprobs[len(prompt) - 1 :] == pytest.approx(answer.token_logprobs, abs=1e-4)
    assert whole.perplexity == pytest.approx(np.exp(-np.mean(whole.token_logprobs)))


@each_mode
@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_prompts_in_chunks(mode, chunk, load):  # known problem S23
    model, fixture = load(mode), fixture_of(mode)
    options = {"prefill_chunk_size": chunk, "eos_token_id": None, "max_new_tokens": 32}
    assert tokens(model.generate(fixture.prompts, **options)) == fixture.greedy


@each_mode
def test_a_kept_cache_goes_on_as_if_all_were_new(mode, load):  # known problems C13, C17
    """A longer prompt, one that parts from what was kept, and one that has nothing in common."""
    model, fixture = load(mode), fixture_of(mode)
    cache, prompt = Cache(), fixture.prompts[1]
    first = model.generate(prompt, cache=cache, **FREE)
    assert cache.tokens == [*prompt, *first.tokens[:-1]]  # the last token was never fed
    longer = [*prompt, *first.tokens, 5, 9, 3]
    for each in [longer, [*prompt, *first.tokens[:4], 7, 7], fixture.prompts[2], prompt]:
        expected = model.generate(each, **FREE).tokens
        assert model.generate(each, cache=cache, **FREE).tokens == expected


def test_a_kept_cache_feeds_only_what_is_new(load, monkeypatch):  # known problem C15
    model = load("in_place")
    cache, prompt = Cache(), fixture_of("in_place").prompts[3]
    first = model.generate(prompt, cache=cache, **FREE)
    fed = []
    step = onnxgen.runtime.decoder.Decoder.step
    monkeypatch.setattr(
        onnxgen.runtime.decoder.Decoder,
        "step",
        lambda self, tokens, lengths: fed.append(int(lengths[0])) or step(self, tokens, lengths),
    )
    model.generate([*prompt, *first.tokens, 4, 5], cache=cache, **FREE)
    assert fed == [3] + [1] * 11


def test_returned_sequences_draw_apart_and_come_in_lists(load):
    model, prompts = load("append"), fixture_of("append").prompts
    drawing = {"do_sample": True, "temperature": 2.0, "num_return_sequences": 3, "seed": 1, **FREE}
    answers = model.generate(prompts[1], **drawing)
    assert len({answer.tokens for answer in answers}) == 3
    several = model.generate([prompts[1], prompts[2]], **drawing)
    assert tokens(several[0]) == tokens(answers)
    assert [len(each) for each in several] == [3, 3]


@each_mode
def test_stop_strings_end_a_row_with_their_token(mode, load):
    if mode == "length":
        return  # hand-written: no tokenizer
    model, prompts = load(mode), fixture_of(mode).prompts
    options = {**FREE, "max_new_tokens": 32}
    whole = model.generate(prompts, **options)
    stop = next(
        text
        for i in whole[1].tokens[3:]
        if len(text := model.tokenizer.decode([i])) > 1 and text.isascii()
    )
    for result in model.generate(prompts, stop_strings=[stop, "never there"], **options):
        full = next(r for r in whole if r.tokens[: len(result.tokens)] == result.tokens)
        text = model.tokenizer.decode(result.tokens)
        before = model.tokenizer.decode(result.tokens[:-1])
        assert (result.finish_reason == "stop") == (stop in text)
        assert stop not in before
        assert result.finish_reason == "stop" or result.tokens == full.tokens


def test_a_criterion_of_the_caller_ends_a_row(load):
    model = load("append")
    options = {"stopping_criteria": [lambda ids: len(ids) >= 9], **FREE}
    result = model.generate([5, 6, 7], **options)
    assert (len(result.tokens), result.finish_reason) == (6, "stop")
    assert len(model.generate([5, 6, 7], num_beams=2, **options).tokens) == 6


def test_processors_of_the_caller_act(load):
    model, prompt = load("append"), [5, 6, 7]
    plain = model.generate(prompt, **FREE).tokens

    def ban_first(ids, scores):
        scores[plain[0]] = -np.inf
        return scores

    assert plain[0] not in model.generate(prompt, logits_processor=[ban_first], **FREE).tokens

    def state(prompt, newest_first, vocab):
        return [vocab - 1 - len(newest_first)]

    def only(scores, allowed):
        scores[[i for i in range(len(scores)) if i not in allowed]] = -np.inf
        return scores

    V = model.model.vocab_size  # noqa: N806 - the letter of this package
    result = model.generate(prompt, logits_processor=[(state, only)], **FREE)
    assert list(result.tokens) == [V - 1 - i for i in range(12)]
    allowed = model.generate(prompt, prefix_allowed_tokens_fn=lambda i, ids: [3, 4], **FREE)
    assert set(allowed.tokens) <= {3, 4}


@each_mode
def test_guidance_is_that_of_two_runs(mode, load):
    model, prompt, scale = load(mode), fixture_of(mode).prompts[1], 1.7
    negative = [9, 8, 7]
    result = model.generate(prompt, guidance_scale=scale, negative_prompt_ids=[negative], **FREE)
    for step, token in enumerate(result.tokens):
        said = list(result.tokens[:step])
        with_ = log_softmax(full_logits(model, [*prompt, *said])[-1])
        without = log_softmax(full_logits(model, [*negative, *said])[-1])
        assert token == (scale * (with_ - without) + without).argmax()


def test_no_time_gives_one_token(load):
    result = load("append").generate([5, 6], max_time=0.0, eos_token_id=None)
    assert (len(result.tokens), result.finish_reason) == (1, "length")


def test_cancelled_streams_end_and_the_model_goes_on(load):
    model = load("append")
    request = model.request([[5, 6, 7]], None, FREE)
    pieces = request.pieces()
    next(pieces)
    request.cancel()
    with pytest.raises(CancelledError):
        list(pieces)
    assert len(model.generate([5, 6, 7], **FREE).tokens) == 12


def test_all_tokens_banned_names_row_and_step(load):  # known problem S21
    def ban(ids, scores):
        return np.full_like(scores, -np.inf) if len(ids) == 5 else scores

    for more in ({}, {"do_sample": True}, {"num_beams": 2}):
        with pytest.raises(LogitsError, match=r"(row|prompt) 0.* step 3"):
            load("append").generate([5, 6, 7], logits_processor=[ban], **FREE, **more)


@pytest.mark.parametrize(
    "options",
    [
        {"num_return_sequences": 3},
        {"num_beams": 2, "num_return_sequences": 3},
        {"num_beams": 0},
        {"num_beams": 2.0},
        {"temperature": 0.0, "do_sample": True},
        {"temperature": float("nan"), "do_sample": True},
        {"top_p": -0.1, "do_sample": True},
        {"top_p": float("nan"), "do_sample": True},
        {"top_k": -1, "do_sample": True},
        {"top_k": "5", "do_sample": True},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": float("inf")},
        {"no_repeat_ngram_size": -1},
        {"suppress_tokens": [10**9]},
        {"suppress_tokens": [-1]},
        {"bad_words_ids": [[]]},
        {"logit_bias": {-1: 3.0}},
        {"stop_strings": ""},
        {"stop_strings": []},
        {"seeds": [1, 2], "do_sample": True},
        {"seed": "x", "do_sample": True},
        {"rng": "mersenne", "do_sample": True},
        {"max_time": -1},
        {"early_stopping": "maybe", "num_beams": 2},
        {"guidance_scale": float("nan")},
        {"prefill_chunk_size": 0},
        {"do_sample": "yes"},
        {"negative_prompt_ids": [[1]]},
    ],
    ids=str,
)
def test_wrong_values_are_refused_before_the_first_step(options, load):  # known problem S2
    with pytest.raises(OptionError):
        load("append").request([[5, 6, 7]], None, {**FREE, **options})


def test_beams_do_not_stream(load):
    with pytest.raises(ValueError, match="beams"):
        load("append").stream([5, 6], num_beams=2)


def test_a_cache_for_several_rows_is_refused_before_the_stream_starts(load):
    with pytest.raises(OptionError, match="several rows"):
        load("append").stream([[5, 6], [7]], cache=Cache())
