"""Beam search on fakes: sums worked out by hand, a slow reference, every kind of cache."""

from itertools import product

import numpy as np
import pytest

from onnxgen.errors import LogitsError, OptionError
from onnxgen.generation.beams import BeamOptions, beam_search
from onnxgen.generation.hypotheses import Link, Pool
from onnxgen.generation.loop import Clock
from onnxgen.generation.sampling import RowSampler, TorchSampler
from onnxgen.generation.sequences import Sequences
from tests.fixture_models import FIXTURES, FixtureModel
from tests.generation.beam_reference import reference
from tests.generation.fakes import FakeDecoder

EOS = 0
A, B, C, D, E = range(1, 6)
PROMPT = [9, 9, 9]


def scripted(table, prompt=PROMPT, vocab=12):
    """Replaces log-probabilities: of new tokens (a, b) ``table[a, b]`` maps the next to its own.

    What it does not name is far below and without ties, EOS the lowest.
    """

    def process(sequences, scores):
        for i, row in enumerate(scores):
            news = tuple(sequences.row(i)[len(prompt) :].tolist())
            row[:] = -40 - (np.arange(vocab) - 1) % vocab / 4
            for token, score in table.get(news, {}).items():
                row[token] = score

    return process


def search(table, *, room=10, beams=2, stops=(EOS,), **keywords):
    """The hypotheses of a scripted search, and how many steps it took."""
    decoder = FakeDecoder(lambda row: 0, 12)
    names = ("num_return_sequences", "length_penalty", "early_stopping")
    options = {name: keywords.pop(name) for name in names if name in keywords}
    options.setdefault("num_return_sequences", beams)
    made = BeamOptions(num_beams=beams, stop_ids=frozenset(stops), **options)
    sequences = Sequences([PROMPT], [len(PROMPT) + room])
    (found,) = beam_search(decoder, sequences, made, [scripted(table)], **keywords)
    return found.hypotheses, len(decoder.batches)


# P(A) 1/2, P(B) 3/8, P(EOS) 1/8; then A: A 3/8, B 1/4, EOS 1/4; B: EOS 7/8.
LOGS = {
    (): {A: np.log(4 / 8), B: np.log(3 / 8), EOS: np.log(1 / 8)},
    (A,): {A: np.log(3 / 8), B: np.log(2 / 8), EOS: np.log(2 / 8)},
    (B,): {EOS: np.log(7 / 8), A: np.log(1 / 8)},
}


def test_finds_what_greedy_misses():  # known problems S1, S7
    (best, second), steps = search(LOGS, room=2)
    assert (best.tokens, best.finish_reason) == ((B, EOS), "stop")
    assert best.score == pytest.approx(np.log(21 / 64) / 2)
    assert (second.tokens, second.finish_reason) == ((A, A), "length")
    assert second.score == pytest.approx(np.log(12 / 64) / 2)
    assert (best.beam_indices, second.beam_indices) == ((0, 1), (0, 0))
    assert steps == 2


def test_a_stop_ranked_behind_the_beams_is_no_hypothesis():  # known problem S28
    # EOS comes third in the first step: with a penalty that favours it, it would be the best.
    hypotheses, _ = search(LOGS, room=2, length_penalty=-9.0)
    assert [h.tokens for h in hypotheses] == [(B, EOS), (A, A)]
    hypotheses, _ = search(LOGS, room=2, beams=3, length_penalty=-9.0)
    assert hypotheses[0].tokens == (EOS,)


@pytest.mark.parametrize(("stops", "factor"), [(0, 2), (1, 2), (2, 3), (3, 4)])
def test_candidates_of_a_step(stops, factor):  # known problem S24
    options = BeamOptions(num_beams=5, stop_ids=frozenset(range(stops)))
    assert options.candidates == 5 * factor


def test_all_beams_go_on_though_every_one_may_stop():  # known problem S24
    # Both beams like three stops best; with fewer candidates nothing would be left to go on.
    stops = {EOS: -1.0, 10: -1.25, 11: -1.5, A: -2.0, B: -2.5}
    hypotheses, _ = search(
        {(): stops, (A,): {C: -0.5}, (B,): {D: -0.5}},
        room=2,
        stops=(EOS, 10, 11),
        early_stopping="never",
        length_penalty=0.0,
    )
    assert [h.tokens for h in hypotheses] == [(EOS,), (10,)]
    hypotheses, _ = search(
        {(): stops, (A,): {C: -0.5}, (B,): {D: -0.5}},
        room=2,
        beams=4,
        stops=(EOS, 10, 11),
        early_stopping="never",
        length_penalty=4.0,
    )
    # -2.5 / 2**4 and -3 / 2**4 beat the stops of the first step, of which the third is -1.5.
    assert [h.tokens for h in hypotheses] == [(A, C), (B, D), (EOS,), (10,)]
    assert [h.score for h in hypotheses] == [-2.5 / 16, -3 / 16, -1.0, -1.25]


def slope(fourth):
    """One stop at -1 in each of the first two steps, and a beam whose 4 tokens sum to ``fourth``.

    The pool is full from step 2 on, its worst score -1; the beam sums to -0.5, -1.25, -2.5.
    """
    return {
        (): {A: -0.5, EOS: -1.0},
        (A,): {B: -0.75, EOS: -1.0},  # -1.5 / 2 = -0.75
        (A, B): {C: -1.25},
        (A, B, C): {D: fourth + 2.5},
        (A, B, C, D): {E: -0.25},
    }


def test_stops_when_the_best_beam_equals_the_worst_hypothesis():  # known problem S25
    _, steps = search(slope(-4.0))
    assert steps == 4  # -4.0 / 4 is not better than -1


def test_goes_on_when_the_best_beam_is_better():  # known problem S25
    _, steps = search(slope(-3.875))
    assert steps > 4


def test_never_reckons_with_the_whole_length():  # known problem S25
    _, steps = search(slope(-4.0), early_stopping="never")
    assert steps > 4  # -4.0 / 10 is


def test_never_without_a_reward_for_length_reckons_with_the_present_one():
    # Worst of the pool is -1.5 * 2 from step 2 on; the beam is -1.25 * 2, then -2.5 * 3.
    assert search(slope(-4.0), early_stopping="never", length_penalty=-1.0)[1] == 3
    assert search(slope(-4.0), early_stopping="never", length_penalty=0.0)[1] == 3


def test_early_stopping_ends_with_the_first_full_pool():
    hypotheses, steps = search(slope(-3.0), early_stopping=True)
    assert steps == 2
    assert [h.score for h in hypotheses] == [-0.75, -1.0]


def test_a_slot_that_is_empty_keeps_the_search_open():  # known problem S26
    # Step 1 fills one slot. However bad the beams become, the other waits for the next stop.
    table = {
        (): {EOS: -0.5, A: -3.0},
        (A,): {B: -30.0},
        (A, B): {C: -30.0, D: -31.0},
        (A, B, C): {EOS: -30.0, E: -31.0},
    }
    hypotheses, steps = search(table)
    assert steps == 4
    assert [h.tokens for h in hypotheses] == [(EOS,), (A, B, C, EOS)]


@pytest.mark.parametrize("penalty", [-1.0, 0.0, 0.5, 1.0, 2.0])
def test_length_counts_new_tokens_with_the_stop(penalty):  # known problem S27, trap T30
    hypotheses, _ = search(slope(-3.0), early_stopping=True, length_penalty=penalty)
    scores = {h.tokens: h.score for h in hypotheses}
    assert scores[A, EOS] == pytest.approx(-1.5 / 2**penalty)
    assert scores[EOS,] == -1.0
    for h in hypotheses:
        assert sum(h.transition_scores) / len(h.tokens) ** penalty == pytest.approx(h.score)
        assert list(scores.values()) == sorted(scores.values(), reverse=True)


# known problem S31
def test_rows_end_where_they_finished():  # trap T2: transformers fills up to the longest row
    (long, short), _ = search({(): {A: -0.5, EOS: -1.0}, (A,): {B: -0.1}, (A, B): {EOS: -0.1}})
    assert (long.tokens, short.tokens) == ((A, B, EOS), (EOS,))


def test_at_the_last_length_the_best_beams_become_hypotheses():
    hypotheses, steps = search({(): {A: -1.0, B: -2.0, C: -3.0, EOS: -9.0}}, room=1)
    assert [(h.tokens, h.finish_reason) for h in hypotheses] == [((A,), "length"), ((B,), "length")]
    assert steps == 1


def test_the_last_token_may_be_a_stop():
    (best, _), _ = search({(): {EOS: -1.0, B: -2.0}}, room=1)
    assert (best.tokens, best.finish_reason) == ((EOS,), "stop")


def test_processors_see_log_probabilities():  # known problem S29
    seen = []

    def look(sequences, scores):
        seen.append(scores.copy())

    decoder = FakeDecoder(lambda row: np.log([1.0, 2.0, 4.0, 1.0]), 4)
    options = BeamOptions(num_beams=2)
    beam_search(decoder, Sequences([[1]], [3]), options, [look])
    for scores in seen:
        assert scores.dtype == np.float32
        np.testing.assert_allclose(scores, np.log([[1 / 8, 1 / 4, 1 / 2, 1 / 8]] * 2), rtol=1e-6)


def test_scores_are_those_of_the_beams_that_ran():
    hypotheses, _ = search(LOGS, room=2)
    decoder = FakeDecoder(lambda row: 0, 12)
    options = BeamOptions(num_beams=2, stop_ids=frozenset([EOS]), num_return_sequences=2)
    (found,) = beam_search(
        decoder, Sequences([PROMPT], [5]), options, [scripted(LOGS)], keep_scores=True
    )
    assert [scores.shape for scores in found.scores] == [(2, 12), (2, 12)]
    for h in hypotheses:
        steps = zip(found.scores, h.beam_indices, h.tokens, strict=True)
        assert h.transition_scores == tuple(scores[beam, token] for scores, beam, token in steps)
    assert hypotheses[0].flat_indices(prompt=3, beams=2) == (6, 7)


def test_log_probabilities_are_normalised_after_bans():
    def ban(sequences, scores):
        scores[:, 2] = -np.inf

    decoder = FakeDecoder(lambda row: np.log([1.0, 2.0, 4.0, 1.0]), 4)
    options = BeamOptions(num_beams=1)
    sequences = Sequences([[1]], [3])
    (found,) = beam_search(decoder, sequences, options, [ban], logprobs=True)
    (best,) = found.hypotheses
    assert best.tokens == (1, 1)
    assert best.transition_scores == pytest.approx([np.log(2 / 8)] * 2)
    assert best.token_logprobs == pytest.approx([np.log(2 / 4)] * 2)
    assert best.score == pytest.approx(np.log(2 / 8))


def test_no_log_probabilities_unless_asked_for():
    assert search(LOGS)[0][0].token_logprobs is None


def test_a_criterion_ends_candidates():
    rows = []

    def criterion(ids):
        rows.append(ids.tolist())
        return ids[-1] == B

    table = {(): {A: -0.5, B: -1.0}, (A,): {C: -0.1}, (A, C): {B: -0.1}}
    (best, second), steps = search(table, criterion=criterion)
    assert (best.tokens, best.finish_reason) == ((A, C, B), "stop")
    assert (second.tokens, second.finish_reason) == ((B,), "stop")
    assert steps == 3
    assert rows[:2] == [[*PROMPT, A], [*PROMPT, B]]
    assert [*PROMPT, EOS] not in rows  # has ended already
    assert len(rows[-1]) == len(PROMPT) + 3


def test_time_ends_every_candidate():
    answers = iter([False, True])
    hypotheses, steps = search(slope(-3.0), expired=lambda: next(answers))
    assert steps == 2
    assert [(h.tokens, h.finish_reason) for h in hypotheses] == [
        ((A, B), "length"),  # -1.25 / 2
        ((A, EOS), "stop"),
    ]


def test_the_clock_ticks_with_each_step():
    clock = Clock()
    _, steps = search(LOGS, room=4, clock=clock)
    assert len(clock.timings(99).per_token_ms) == steps - 1


def noise(row, vocab=23):
    """Logits that hang on the row alone."""
    rng = np.random.default_rng([len(row), *row])
    return rng.normal(0, 2, vocab).astype(np.float32)


GRID = list(product((1, 2, 3, 5), (-1.0, 0.0, 1.0, 2.5), (False, True, "never"), ((), (1, 7, 9))))


@pytest.mark.parametrize(("beams", "penalty", "early", "stops"), GRID)
def test_equals_the_slow_reference(beams, penalty, early, stops):  # known problem S7
    prompts = [[4, 2], [11], [3, 3, 8, 5]]
    rooms = [7, 9, 4]

    def process(row, scores):
        scores[row[-1]] = -np.inf  # no token twice in a row
        scores[8] += 0.5 * len(row)

    def processor(sequences, scores):
        for i, row in enumerate(scores):
            process(sequences.row(i).tolist(), row)

    options = BeamOptions(
        num_beams=beams,
        num_return_sequences=beams,
        length_penalty=penalty,
        early_stopping=early,
        stop_ids=frozenset(stops),
    )
    lengths = [len(p) + room for p, room in zip(prompts, rooms, strict=True)]
    decoder = FakeDecoder(noise, 23)
    results = beam_search(decoder, Sequences(prompts, lengths), options, [processor])
    for found, prompt, room in zip(results, prompts, rooms, strict=True):
        wanted = reference(
            noise,
            prompt,
            beams=beams,
            room=room,
            stops=stops,
            penalty=penalty,
            early=early,
            process=process,
        )
        for hypothesis, (tokens, indices, score) in zip(found.hypotheses, wanted, strict=True):
            assert list(hypothesis.tokens) == tokens
            assert list(hypothesis.beam_indices) == indices
            assert hypothesis.score == pytest.approx(score, abs=1e-5, rel=1e-5)


@pytest.mark.parametrize("sampled", [False, True])
def test_a_prompt_does_not_depend_on_its_neighbours(sampled):  # known problem S26
    prompts, rooms = [[4, 2], [11], [3, 3, 8, 5], [7, 7]], [7, 12, 3, 9]
    options = BeamOptions(
        num_beams=3, num_return_sequences=3, early_stopping=True, stop_ids=frozenset([1, 7])
    )

    def run(picked):
        sampler = RowSampler([100 + i for i in picked]) if sampled else None
        own = [prompts[i] for i in picked]
        sequences = Sequences(own, [len(prompts[i]) + rooms[i] for i in picked])
        decoder = FakeDecoder(noise, 23)
        found = beam_search(decoder, sequences, options, sampler=sampler, keep_scores=True)
        return found, decoder

    together, decoder = run(range(4))
    assert decoder.batches[0] == 4  # each prompt is fed once
    assert decoder.batches[1:] == sorted(decoder.batches[1:], reverse=True)
    assert decoder.batches[1] == 12
    assert decoder.batches[-1] == 3  # rows that end leave
    for i, found in enumerate(together):
        ((alone,), _) = run([i])
        assert found.hypotheses == alone.hypotheses
        for ours, theirs in zip(found.scores, alone.scores, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_the_decoder_holds_the_rows_that_processors_see():  # known problem S6
    decoder = FakeDecoder(noise, 23)

    def process(sequences, scores):
        rows = [sequences.row(i).tolist() for i in range(len(sequences))]
        fed_once = len(decoder.batches) == 1
        assert decoder.rows == (rows[::3] if fed_once else rows)

    sequences = Sequences([[4, 2], [11]], [9, 5])
    options = BeamOptions(num_beams=3)
    beam_search(decoder, sequences, options, [process])
    assert decoder.batches[:4] == [2, 6, 6, 6]
    assert decoder.batches[4:] == [3] * 3  # 7 new tokens and 4


def test_the_models_logits_stay_as_they_are():
    given = []

    class Keeping(FakeDecoder):
        def step(self, tokens, lengths):
            logits = super().step(tokens, lengths)
            given.append((logits, logits.copy()))
            return logits

    options = BeamOptions(num_beams=2)
    beam_search(Keeping(noise, 23), Sequences([[1], [2]], [4, 4]), options)
    assert len(given) == 3
    for logits, before in given:
        np.testing.assert_array_equal(logits, before)


def test_scores_may_be_added_up_as_they_are():
    # Guided scores: what follows A sums to more than 1, and must be worth it.
    table = {(): [-1.0, -0.5, -9.0], (0,): [2.0, 1.0, 0.0], (1,): [-1.0, -2.0, -3.0]}
    decoder = FakeDecoder(lambda row: np.array(table[tuple(row[1:])]), 3)
    options = BeamOptions(num_beams=2, num_return_sequences=2)
    (found,) = beam_search(decoder, Sequences([[0]], [3]), options, normalize=False)
    assert [(h.tokens, h.score) for h in found.hypotheses] == [((0, 0), 0.5), ((0, 1), 0.0)]


@pytest.mark.parametrize("seed", range(8))
def test_drawn_candidates_are_ranked_by_score(seed):
    prompt, room, beams = [4, 2], 6, 3

    def top(row, scores):
        scores[np.argsort(scores)[:-9]] = -np.inf

    def processor(sequences, scores):
        for row in scores:
            top(None, row)

    options = BeamOptions(num_beams=beams, num_return_sequences=beams, stop_ids=frozenset([1, 7]))
    (found,) = beam_search(
        FakeDecoder(noise, 23),
        Sequences([prompt], [len(prompt) + room]),
        options,
        [processor],
        sampler=TorchSampler(seed, 1),
    )
    other = TorchSampler(seed, 1)
    wanted = reference(
        noise,
        prompt,
        beams=beams,
        room=room,
        stops=(1, 7),
        process=top,
        draw=lambda flat, count: other.draw_several(flat[None], [0], count)[0].tolist(),
    )
    assert [(list(h.tokens), list(h.beam_indices)) for h in found.hypotheses] == [
        (tokens, indices) for tokens, indices, _ in wanted
    ]


def broken(value, at):
    def process(sequences, scores):
        here = np.array([sequences.row(i).tolist() == at for i in range(len(sequences))])
        scores[here] = value

    return process


@pytest.mark.parametrize(
    "sampler", [lambda: None, lambda: RowSampler([1, 2]), lambda: TorchSampler(0, 2)]
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scores_that_leave_no_choice_are_refused(value, sampler):  # known problems S9, S21
    decoder = FakeDecoder(lambda row: np.arange(16.0), 16)

    def process(sequences, scores):
        scores[sequences.samples == 1] = value

    sequences = Sequences([[9], [8]], [5, 5])
    with pytest.raises(LogitsError, match=r"row 1 .* step 1"):
        beam_search(decoder, sequences, BeamOptions(num_beams=2), [process], sampler=sampler())


def test_nan_of_the_model_is_refused_with_its_step():  # known problem S9
    decoder = FakeDecoder(lambda row: np.full(16, np.nan) if row == [8, 15] else np.arange(16.0))
    with pytest.raises(LogitsError, match=r"row 1 .* step 2"):
        beam_search(decoder, Sequences([[9], [8]], [5, 5]), BeamOptions(num_beams=2))


def test_a_beam_that_ends_dead_leaves_the_others():
    table = {(): {A: -0.5, B: -1.0}, (B,): {C: -0.5}, (B, C): {EOS: -0.5}}
    processors = [scripted(table), broken(-np.inf, [*PROMPT, A])]
    options = BeamOptions(num_beams=2, stop_ids=frozenset([EOS]))
    sequences = Sequences([PROMPT], [13])
    (found,) = beam_search(FakeDecoder(lambda row: 0, 12), sequences, options, processors)
    assert found.hypotheses[0].tokens == (B, C, EOS)


def test_slots_that_nothing_can_fill_stay_empty():
    """One answer is possible, A EOS, and B leads nowhere: no beam goes on behind an end."""

    def only(sequences, scores):
        for i, row in enumerate(scores):
            news = tuple(sequences.row(i)[1:].tolist())
            row[~np.isin(np.arange(12), {(): [A, B], (A,): [EOS], (B,): []}[news])] = -np.inf

    options = BeamOptions(num_beams=3, num_return_sequences=3, stop_ids=frozenset([EOS]))
    decoder = FakeDecoder(lambda row: np.zeros(12), 12)
    (found,) = beam_search(decoder, Sequences([[3]], [10]), options, [only])
    assert found.hypotheses[0].tokens == (A, EOS)
    assert found.hypotheses[0].score == pytest.approx(-np.log(12))
    assert all(h.score < -1e8 for h in found.hypotheses[1:])
    assert found.hypotheses[2].tokens == ()
    assert len(decoder.batches) == 2


def test_an_empty_pool():
    pool = Pool(2)
    assert pool.empty
    assert not pool.full
    assert [(h.tokens, h.score) for h in pool.hypotheses(2)] == [((), -1e9), ((), -1e9)]


def test_the_way_back_may_be_long():
    link = None
    for token in range(200_000):
        link = Link(token, 0, -1.0, None, link)
    assert [step.token for step in link.path()] == list(range(200_000))


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"num_beams": 0}, "num_beams"),
        ({"num_beams": -2}, "num_beams"),
        ({"num_beams": 2.0}, "num_beams"),
        ({"num_beams": True}, "num_beams"),
        ({"num_beams": "4"}, "num_beams"),
        ({"num_return_sequences": 0}, "num_return_sequences"),
        ({"num_return_sequences": 4}, "4 sequences .* 3 beams"),
        ({"length_penalty": np.nan}, "length_penalty"),
        ({"length_penalty": np.inf}, "length_penalty"),
        ({"length_penalty": "1"}, "length_penalty"),
        ({"length_penalty": 1e6}, "length_penalty"),
        ({"early_stopping": 1}, "early_stopping"),
        ({"early_stopping": "Never"}, "early_stopping"),
        ({"early_stopping": None}, "early_stopping"),
    ],
)
def test_wrong_options(keywords, text):
    with pytest.raises(OptionError, match=text):
        BeamOptions(**{"num_beams": 3, **keywords})


@pytest.mark.parametrize(
    ("keywords", "max_length", "text"),
    [
        ({}, 2, "max_length is 2"),
        ({"length_penalty": 60.0}, 9, "length_penalty"),
        ({"length_penalty": -60.0}, 9, "length_penalty"),
        ({"num_beams": 17, "num_return_sequences": 1}, 9, "17 beams"),
        ({"stop_ids": frozenset(range(16))}, 9, "16 stop ids"),
    ],
)
def test_options_that_do_not_fit(keywords, max_length, text):
    options = BeamOptions(**{"num_beams": 3, **keywords})
    decoder = FakeDecoder(lambda row: 5)
    with pytest.raises(OptionError, match=text):
        beam_search(decoder, Sequences([[3, 4]], [max_length]), options)
    assert decoder.batches == []


class Recomputing:
    """A model's steps without its cache: each step runs the whole rows on a fresh decoder."""

    def __init__(self, model, capacity):
        self.model, self.vocab_size, self.capacity = model, model.vocab_size, capacity
        self.rows = None

    def step(self, tokens, lengths):
        rows = self.rows or [[] for _ in tokens]
        news = [own[:count].tolist() for own, count in zip(tokens, lengths, strict=True)]
        self.rows = [old + new for old, new in zip(rows, news, strict=True)]
        return np.concatenate([self.last(row) for row in self.rows])

    def last(self, row):
        decoder = self.model.start(self.capacity)
        logits = decoder.step(np.array([row]), np.array([len(row)])).copy()
        decoder.close()
        return logits

    def reorder(self, rows):
        self.rows = [list(self.rows[row]) for row in rows]


MODES = {
    "append": "models/llama",
    "append, graphs in two files": "models/llama-pair",
    "append, branches": "models/llama-tjs",
    "in place": "models/genai-llama",
    "in place, equal lengths": "models/genai-gemma2",
    "grow": "models/gemma3_text",
    "states": "models/genai-lfm2",
    "recurrent states": "handmade/recurrent_state",
    "static buffers": "handmade/static_scatter",
    "none": "handmade/no_cache",
}


@pytest.mark.parametrize("name", MODES.values(), ids=MODES)
def test_every_kind_of_cache_gives_what_recomputing_gives(name):  # known problems A13, C3
    fixture = FixtureModel(FIXTURES / name)
    model, prompts = fixture.model(), fixture.prompts[:3]
    greedy = {row[4] for row in fixture.greedy}  # tokens that are likely to come, as stops
    options = BeamOptions(
        num_beams=3, num_return_sequences=3, stop_ids=frozenset(greedy), early_stopping="never"
    )
    lengths = [len(prompt) + 8 for prompt in prompts]
    decoder = model.start(max(lengths) - 1)
    found = beam_search(decoder, Sequences(prompts, lengths), options)
    wanted = beam_search(Recomputing(model, max(lengths)), Sequences(prompts, lengths), options)
    for ours, theirs in zip(found, wanted, strict=True):
        assert [h.tokens for h in ours.hypotheses] == [h.tokens for h in theirs.hypotheses]
        assert [h.beam_indices for h in ours.hypotheses] == [
            h.beam_indices for h in theirs.hypotheses
        ]
        scores = [h.score for h in theirs.hypotheses]
        np.testing.assert_allclose([h.score for h in ours.hypotheses], scores, atol=2e-4)
