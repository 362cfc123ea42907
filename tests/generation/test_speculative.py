"""Speculative decoding gives what plain decoding gives, in fewer runs of the model."""

import zlib

import numpy as np
import pytest

from onnxgen.errors import LogitsError, OptionError
from onnxgen.generation import processors, warpers
from onnxgen.generation.choosing import Chooser
from onnxgen.generation.loop import Clock, Row, greedy, run
from onnxgen.generation.proposers import Called, DraftModel, PromptLookup, SameChance
from onnxgen.generation.sampling import new_sampler
from onnxgen.generation.sequences import Sequences
from onnxgen.generation.speculative import Pace, Speculation
from tests.generation.fakes import FakeDecoder

VOCAB = 12


class FakeSteps(FakeDecoder):
    """As strict as a decoder: a capacity, a memory of logits that the next call overwrites."""

    def __init__(self, choose, vocab_size=VOCAB, capacity=1 << 20):
        super().__init__(choose, vocab_size)
        self.capacity, self.calls, self.sizes, self.rewinds = capacity, 0, [], 0
        self._given = np.zeros(0, np.float32)

    def step(self, tokens, lengths):
        return self._kept(super().step(tokens, lengths), tokens)

    def step_all(self, tokens, lengths):
        assert tokens.shape == (1, lengths[0])
        one = np.ones(1, np.int64)
        columns = [super(FakeSteps, self).step(tokens[:, [i]], one) for i in range(lengths[0])]
        return self._kept(np.stack(columns, axis=1), tokens)

    def _kept(self, logits, tokens):
        self._given[...] = np.nan
        self._given = logits
        self.calls += 1
        self.sizes.append(tokens.shape[1])
        assert len(self.rows[0]) <= self.capacity
        return logits

    def rewind(self, lengths):
        assert 0 <= lengths[0] < len(self.rows[0])
        self.rewinds += 1
        super().rewind(lengths)


def model(seed, memory=2, vocab_size=VOCAB, sharpness=3.0):
    """Logits that hang on the last ``memory`` ids: short enough for rows to repeat themselves."""

    def choose(row):
        key = zlib.crc32(np.array([seed, *row[-memory:]], np.int64).tobytes())
        return np.random.default_rng(key).normal(size=vocab_size) * sharpness

    return choose


PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 1, 4]


class Answers:
    """One request, to be run plainly and with guesses."""

    def __init__(self, choose, budget=40, stop=(), criterion=None, make=list, **options):
        self.choose, self.budget, self.stop = choose, budget, frozenset(stop)
        self.criterion, self.make, self.options = criterion, make, options
        self.sampler, self.seed, self.rng = None, options.pop("seed", None), "philox"

    def __call__(self, speculation=None):
        row = Row(0, PROMPT, self.budget, self.stop, self.criterion)
        decoder = FakeSteps(self.choose, capacity=len(PROMPT) + self.budget - 1)
        sequences = Sequences([PROMPT], [len(PROMPT) + self.budget])
        if self.sampler is None and self.seed is not None:
            self.sampler = new_sampler(seed=self.seed, rng=self.rng, prompts=1)
        chooser = Chooser(sequences, self.make(), self.sampler, top_logprobs=2, scores=True)
        self.sampler = None
        runner = speculation.run if speculation else run
        steps = list(runner(decoder, [row], chooser, Clock()))
        assert decoder.rows == [[*PROMPT, *row.tokens[:-1]]]  # what a kept cache relies on
        return row, chooser.told[0], steps, decoder

    def check(self, proposer):
        """Runs both ways; the statistics, and how many runs plain decoding took."""
        row, told, steps, plain = self()
        speculation = Speculation(proposer)
        fast_row, fast_told, fast_steps, fast = self(speculation)
        assert fast_row.tokens == row.tokens
        assert fast_row.finish_reason == row.finish_reason
        assert fast_steps == steps
        assert fast_told.logprobs == told.logprobs
        assert fast_told.top_logprobs == told.top_logprobs
        np.testing.assert_array_equal(fast_told.scores, told.scores)
        statistics = speculation.statistics
        assert fast.calls == statistics.steps
        # Each guess that came true saved a run, but not one that the row ended with.
        assert statistics.steps - plain.calls + statistics.accepted in {0, 1}
        assert fast.calls <= plain.calls
        assert statistics.accepted <= statistics.proposed == sum(fast.sizes[1:]) - fast.calls + 1
        return statistics, plain.calls


def with_memory():
    """Processors that hang on all of the row so far."""
    return [
        processors.repetition_penalty(1.3),
        processors.no_repeat_ngram(4),
        processors.min_new_tokens(6, [7], VOCAB),
        counting(),
    ]


def counting():
    """One with a state of its own: it must see each length once, in order."""
    seen = []

    def process(seqs, scores):
        seen.append(int(seqs.lengths[0]))
        assert seen == list(range(seen[0], seen[0] + len(seen)))
        scores[:, len(seen) % VOCAB] += 1

    return process


def foretold(tokens, wrong=lambda place: False, extra=0):
    """Proposes how ``tokens`` go on behind the prompt, wrong at the places that ``wrong`` names."""

    def propose(ids):
        start = len(ids) - len(PROMPT)
        coming = [(t + wrong(start + i)) % VOCAB for i, t in enumerate(tokens[start:])]
        return coming + [0] * extra

    return propose


def plain_tokens(answers):
    return answers()[0].tokens


SAMPLING = {"greedy": None, "sampling": 5}


@pytest.mark.parametrize("seed", SAMPLING.values(), ids=SAMPLING)
@pytest.mark.parametrize("make", [list, with_memory], ids=["plain", "processors"])
@pytest.mark.parametrize("number", range(4))
class TestEqualsPlainDecoding:
    def answers(self, number, make, seed):
        def made():
            return [*make(), *([warpers.temperature(0.7), warpers.top_k(5)] if seed else [])]

        return Answers(model(number), stop=[7], make=made, seed=seed)

    def test_prompt_lookup(self, number, make, seed):
        for ngram, most in [(1, 3), (2, 10), (3, 40)]:
            self.answers(number, make, seed).check(PromptLookup(ngram, most))

    @pytest.mark.parametrize("every", [1, 2, 3, 5, 1000])
    def test_guesses_that_are_partly_wrong(self, number, make, seed, every):  # known problem C23
        answers = self.answers(number, make, seed)
        tokens = plain_tokens(answers)
        propose = foretold(tokens, lambda place: place % every == every - 1)
        answers.check(Called(propose, most=7))

    def test_noise(self, number, make, seed):
        """Guesses of any length, at random: empty ones, and longer than asked for."""
        random = np.random.default_rng(number)
        answers = self.answers(number, make, seed)
        tokens = plain_tokens(answers)

        def propose(ids):
            right = foretold(tokens)(ids)[: random.integers(0, 6)]
            return right + random.integers(0, VOCAB, random.integers(0, 60)).tolist()

        answers.check(Called(propose, most=int(random.integers(1, 20))))

    @pytest.mark.parametrize("other", [0, 100], ids=["same", "other"])
    def test_draft_model(self, number, make, seed, other):
        draft = FakeSteps(model(number + other), vocab_size=VOCAB)
        self.answers(number, make, seed).check(DraftModel(draft, vocab_size=VOCAB))

    def test_short_budgets(self, number, make, seed):
        answers = self.answers(number, make, seed)
        tokens = plain_tokens(answers)
        for budget in range(1, 8):
            answers.budget = budget
            answers.check(Called(foretold(tokens, extra=3)))


def test_right_guesses_save_runs():
    """On paper: the prompt gives 1 token, six runs of 1 + 2 give 18, the 20th comes alone."""
    answers = Answers(model(1), budget=20)
    tokens = plain_tokens(answers)
    statistics, calls = answers.check(Called(foretold(tokens), most=2))
    assert (statistics.steps, statistics.proposed, statistics.accepted) == (8, 12, 12)
    assert statistics.acceptance == 1
    assert calls == 20


def test_width_grows_with_hits_and_falls_with_misses():
    pace = Pace(PromptLookup(most=30), 0.2)
    assert pace.width() == 2
    widths = []
    for _ in range(8):
        pace.note(pace.width(), False)
        widths.append(pace.width())
    assert widths == sorted(widths)
    assert widths[-1] >= 15
    pace.note(0, True)
    assert 3 <= pace.width() < widths[-1]
    for _ in range(30):
        pace.note(0, True)
    assert pace.width() == 0


@pytest.mark.parametrize(("rate", "price"), [(0.3, 0.2), (0.6, 0.2), (0.8, 0.07), (0.95, 0.4)])
def test_width_is_the_best_of_all(rate, price):
    pace = Pace(PromptLookup(most=50), price)
    pace.rate = rate
    speeds = [(1 - rate ** (k + 1)) / (1 - rate) / (1 + price * k) for k in range(51)]
    assert pace.width() == int(np.argmax(speeds))


def test_wrong_guesses_cost_nearly_nothing():
    answers = Answers(model(2), budget=400)
    tokens = plain_tokens(answers)
    statistics, calls = answers.check(Called(foretold(tokens, lambda place: True)))
    assert statistics.accepted == 0
    assert statistics.proposed <= 10
    assert statistics.steps == calls == 400


def test_guesses_that_come_true_again_are_tried_again():
    """Right are only those behind token 200; looked at without being fed, they show it."""
    answers = Answers(model(2), budget=300)
    tokens = plain_tokens(answers)
    statistics, calls = answers.check(Called(foretold(tokens, lambda place: place < 200)))
    assert calls == 300
    assert statistics.steps < 225


def test_draft_that_fails_is_asked_seldom_and_then_again():
    answers = Answers(model(2), budget=300)
    tokens = [*PROMPT, *plain_tokens(answers)]
    right_from = len(PROMPT) + 200

    def choose(row):  # wrong, then right
        return (tokens[len(row)] + (len(row) < right_from)) % VOCAB if len(row) < len(tokens) else 0

    draft = FakeSteps(choose)
    statistics, _ = answers.check(DraftModel(draft, vocab_size=VOCAB))
    assert statistics.proposed - statistics.accepted < 20
    assert statistics.steps < 260
    early = [size for size in draft.sizes[1:] if size > 1]  # pauses are caught up at once
    assert max(early) == 33


class TestStops:
    """Inside a block that would have been right to its end."""

    def ends(self, **options):
        answers = Answers(model(4), budget=30, **options)
        whole = plain_tokens(Answers(model(4), budget=30))
        answers.check(Called(foretold(whole), most=10))
        row = answers()[0]
        return row.tokens, row.finish_reason, whole

    def test_stop_token(self):
        whole = plain_tokens(Answers(model(4), budget=30))
        for stop in set(whole):
            tokens, reason, _ = self.ends(stop=[stop])
            assert tokens == whole[: whole.index(stop) + 1]
            assert reason == "stop"

    @pytest.mark.parametrize("length", range(1, 20))
    def test_criterion(self, length):
        tokens, reason, whole = self.ends(criterion=lambda ids: len(ids) == len(PROMPT) + length)
        assert (tokens, reason) == (whole[:length], "stop")

    def test_stop_ids_are_never_fed_ahead(self):  # known problem C22
        answers = Answers(lambda row: 5, budget=30, stop=[7])
        speculation = Speculation(Called(lambda ids: [7] * 5))
        assert set(answers(speculation)[3].sizes[1:]) == {1}

    def test_other_ids_that_are_not_to_be_fed_ahead(self):
        answers = Answers(lambda row: 5, budget=30)
        speculation = Speculation(Called(lambda ids: [5] * 5), never=[5])
        assert set(answers(speculation)[3].sizes[1:]) == {1}

    def test_time(self, monkeypatch):
        """A tick a second, of a block that would be longer."""
        now = iter(range(100))
        monkeypatch.setattr("onnxgen.generation.loop.perf_counter", lambda: float(next(now)))
        row = Row(0, PROMPT, 30, frozenset())
        proposer = Called(lambda ids: [5] * 9)
        runner = Speculation(proposer).run
        list(runner(FakeSteps(lambda row: 5), [row], greedy, Clock(limit=7.5)))
        assert (row.tokens, row.finish_reason) == ([5] * 8, "length")


def test_times_are_divided_among_the_tokens_of_a_block(monkeypatch):
    now = iter([0.0, 1.0, 4.0, 4.0, 4.0, 5.0])
    monkeypatch.setattr("onnxgen.generation.loop.perf_counter", lambda: next(now))
    clock = Clock()
    row = Row(0, [1], 5, frozenset())
    list(
        Speculation(Called(lambda ids: [5] * 9)).run(FakeSteps(lambda row: 5), [row], greedy, clock)
    )
    timings = clock.timings(5)
    assert timings.prefill_ms == pytest.approx(1000)
    assert timings.per_token_ms == pytest.approx((1000, 1000, 1000, 1000))
    assert timings.total_ms == pytest.approx(5000)


def test_tokens_are_handed_out_before_the_next_is_chosen():
    """Streams read what is told of a token when it comes."""
    row = Row(0, [1], 9, frozenset())
    speculation = Speculation(Called(lambda ids: [5] * 9))
    for count, step in enumerate(
        speculation.run(FakeSteps(lambda row: 5), [row], greedy, Clock()), start=1
    ):
        assert (step.rows, step.tokens, len(row.tokens)) == ([0], [5], count)


def test_a_kept_cache_is_gone_on_with():
    decoder = FakeSteps(model(3))
    decoder.step(np.array([PROMPT[:10]]), np.array([10]))
    row = Row(0, PROMPT, 40, frozenset(), fed=10)
    list(Speculation(PromptLookup()).run(decoder, [row], greedy, Clock()))
    assert decoder.sizes[1] == len(PROMPT) - 10
    assert row.tokens == plain_tokens(Answers(model(3), budget=40))


class TestErrors:
    def run(self, proposal, rows=1, choose=lambda row: 5):
        rows = [Row(i, [1, 2], 9, frozenset()) for i in range(rows)]
        speculation = Speculation(Called(lambda ids: proposal))
        return list(speculation.run(FakeSteps(choose), rows, greedy, Clock()))

    def test_several_rows(self):
        with pytest.raises(OptionError, match="one prompt"):
            self.run([], rows=2)

    @pytest.mark.parametrize(
        "proposal", [[1.5], [[1, 2]], "text", [[1], [2, 3]], [-1], [VOCAB], 3, [True]], ids=str
    )
    def test_proposals_that_are_no_ids(self, proposal):
        with pytest.raises(OptionError, match="a proposer gave"):
            self.run(proposal)

    @pytest.mark.parametrize("proposal", [[], None, (), np.zeros((1, 0))], ids=str)
    def test_no_proposal(self, proposal):
        if proposal is None:
            with pytest.raises(OptionError, match="a proposer gave"):
                self.run(proposal)
        else:
            assert len(self.run(proposal)) == 9

    def test_broken_logits_count_only_where_plain_decoding_meets_them(self):
        def choose(row):
            return np.full(VOCAB, np.nan) if 6 in row else 5

        assert len(self.run([5, 6, 6], choose=choose)) == 9
        with pytest.raises(LogitsError, match="step 4"):
            self.run([5, 5, 5], choose=lambda row: np.full(VOCAB, np.nan) if len(row) == 5 else 5)

    @pytest.mark.parametrize("most", [0, -1, 1.5, True])
    def test_numbers_of_tokens(self, most):
        for make in (
            lambda: PromptLookup(2, most),
            lambda: PromptLookup(most),
            lambda: Called(list, most),
        ):
            with pytest.raises(OptionError):
                make()


class TestPromptLookup:
    @pytest.mark.parametrize(
        ("ids", "ngram", "count", "expected"),
        [
            ([1, 2, 3, 9, 1, 2], 2, 10, [3, 9, 1, 2]),
            ([1, 2, 3, 9, 1, 2], 2, 2, [3, 9]),
            ([5, 2, 7, 1, 2, 3, 1, 2], 2, 1, [3]),  # the longer n-gram counts
            ([5, 2, 7, 1, 2, 3, 1, 2], 1, 1, [7]),  # the first place counts
            ([5, 2, 7, 4, 2], 3, 9, [7, 4, 2]),  # shorter ones if the long one is nowhere
            ([1, 2, 3], 2, 9, []),
            ([4, 4], 2, 9, [4]),
            ([4], 2, 9, []),
        ],
    )
    def test_examples(self, ids, ngram, count, expected):
        assert PromptLookup(ngram).propose(np.array(ids), count).tolist() == expected

    def test_equals_a_search_of_all_places(self):
        random = np.random.default_rng(0)
        for _ in range(300):
            ids = random.integers(0, 4, random.integers(1, 30)).tolist()
            ngram, count = random.integers(1, 6, 2).tolist()
            places = [
                (size, end)
                for size in range(ngram, 0, -1)
                for end in range(size, len(ids))
                if ids[end - size : end] == ids[len(ids) - size :]
            ]
            expected = ids[places[0][1] :][:count] if places else []
            assert PromptLookup(ngram).propose(np.array(ids), count).tolist() == expected


class TestDraftModel:
    def test_the_model_itself_is_always_right(self):
        answers = Answers(model(1), budget=41)
        draft = FakeSteps(model(1))
        statistics, _ = answers.check(DraftModel(draft, vocab_size=VOCAB, cost=0.05))
        assert statistics.acceptance == 1
        assert statistics.steps < 12
        assert draft.calls == statistics.proposed

    @pytest.mark.parametrize("rng", ["philox", "torch"])
    def test_the_model_itself_draws_the_same(self, rng):
        warp = [warpers.temperature(1.5), warpers.top_p(0.9)]
        make = lambda: [processors.presence_penalty(2.0), *warp]  # noqa: E731
        answers = Answers(model(1), budget=60, make=make, seed=3)
        answers.rng = rng
        sampler = new_sampler(seed=3, rng=rng, prompts=1)
        plain = plain_tokens(answers)
        begin = SameChance(
            make(), sampler, prompt=PROMPT, max_length=len(PROMPT) + 60, vocab_size=VOCAB
        )
        answers.sampler = sampler  # the row's own, as it is
        draft = DraftModel(FakeSteps(model(1)), begin, vocab_size=VOCAB)
        speculation = Speculation(draft)
        assert answers(speculation)[0].tokens == plain
        assert speculation.statistics.acceptance == 1
        assert speculation.statistics.proposed > 20

    @pytest.mark.parametrize("width", [VOCAB - 3, VOCAB + 5])
    def test_a_vocabulary_of_another_size(self, width):
        draft = FakeSteps(model(1, vocab_size=width), vocab_size=width)
        prompt = [id_ for id_ in PROMPT if id_ < VOCAB - 3]
        begin = SameChance([], None, prompt=prompt, max_length=60, vocab_size=VOCAB)
        for made in (
            DraftModel(draft, vocab_size=VOCAB),
            DraftModel(draft, begin, vocab_size=VOCAB),
        ):
            draft.rows = None
            tokens = made.propose(np.array(prompt), 6)
            assert len(tokens) == 6
            assert max(tokens) < min(width, VOCAB)

    def test_its_capacity_ends_its_guesses(self):
        draft = FakeSteps(model(1), capacity=len(PROMPT) + 10)
        statistics, _ = Answers(model(1), budget=40).check(DraftModel(draft, vocab_size=VOCAB))
        assert 0 < statistics.accepted <= 11

    def test_what_it_holds_is_always_the_row(self):  # known problem C23
        draft = FakeSteps(model(1))
        made, random = DraftModel(draft, vocab_size=VOCAB), np.random.default_rng(0)
        ids = [1]
        for _ in range(60):
            tokens = made.propose(np.array(ids), int(random.integers(1, 6)))
            assert draft.rows == [[*ids, *tokens[:-1]]]
            cut = random.integers(0, len(tokens) + 1)
            ids += [*tokens[:cut], int(random.integers(0, VOCAB))]

    def test_where_all_is_banned_it_stays_silent(self):
        draft = FakeSteps(lambda row: np.full(VOCAB, -np.inf))
        assert DraftModel(draft, vocab_size=VOCAB).propose(np.array(PROMPT), 5) == []

    def test_broken_logits(self):
        draft = FakeSteps(lambda row: np.full(VOCAB, np.nan))
        with pytest.raises(LogitsError, match="draft"):
            DraftModel(draft, vocab_size=VOCAB).propose(np.array(PROMPT), 5)
