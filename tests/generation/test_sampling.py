"""Drawing tokens: numbers of torch and of SplitMix64, and the distributions asked for."""

import numpy as np
import pytest

from onnxgen.errors import LogitsError, OptionError
from onnxgen.generation.sampling import (
    RowSampler,
    TorchSampler,
    largest,
    new_sampler,
    splitmix,
    torch_exponential,
)


def logs(*weights):
    with np.errstate(divide="ignore"):
        return np.log(np.array([weights], np.float32))  # (1,W)


def test_exponentials_are_those_of_torch():
    words = np.random.RandomState(0).randint(0, 1 << 64, 4, np.uint64)
    want = np.array([3.5083263, 1.2303847, 0.6150441, 2.5351186], np.float32)
    np.testing.assert_array_equal(torch_exponential(words), want)


def test_draws_are_those_of_torch():
    sampler = TorchSampler(0, 1)
    scores = logs(0.1, 0.2, 0.3, 0.4)
    assert [int(sampler.draw(scores, [0])[0]) for _ in range(8)] == [2, 2, 3, 3, 1, 2, 0, 1]


def test_draws_without_replacement_are_the_best_of_one_race():
    # p / q of the golden numbers: 0.029, 0.163, 0.488, 0.158
    assert TorchSampler(0, 1).draw_several(logs(0.1, 0.2, 0.3, 0.4), [0], 4).tolist() == [
        [2, 1, 3, 0]
    ]


def test_torch_takes_the_low_half_of_a_seed():
    scores = np.zeros((1, 1000), np.float32)
    low, high = TorchSampler(5, 1), TorchSampler(5 + (7 << 32), 1)
    assert low.draw(scores, [0]) == high.draw(scores, [0])


def test_rows_that_have_ended_use_up_torchs_numbers():
    scores = np.zeros((3, 50), np.float32)
    whole, part = TorchSampler(1, 3), TorchSampler(1, 3)
    for _ in range(4):
        assert part.draw(scores[:2], [0, 2]).tolist() == whole.draw(scores, [0, 1, 2])[::2].tolist()


def test_splitmix_is_the_published_sequence():
    want = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]  # the outputs of a generator seeded with 1234567
    assert splitmix(1234567, np.arange(1, 6)).tolist() == want
    assert splitmix(1234567, np.array([3, 1])).tolist() == [want[2], want[0]]


SAMPLERS = {"philox": lambda: RowSampler([7]), "torch": lambda: TorchSampler(7, 1)}


@pytest.mark.parametrize("name", SAMPLERS)
def test_tokens_come_as_often_as_their_weights_say(name):
    sampler, weights = SAMPLERS[name](), np.array([8, 4, 2, 1, 0, 1])
    scores = logs(*weights) + np.float32(3)  # need not be normalised
    counts = np.zeros(6)
    for _ in range(8000):
        counts[sampler.draw(scores, [0])[0]] += 1
    assert counts[4] == 0
    expected = 500 * weights[weights > 0]
    deviation = ((counts[weights > 0] - expected) ** 2 / expected).sum()
    assert deviation < 18.5  # chi-square with 4 degrees of freedom: one seed in 1000 lies above


@pytest.mark.parametrize("name", SAMPLERS)
def test_pairs_come_as_often_as_draws_without_replacement_say(name):
    sampler, weights = SAMPLERS[name](), np.array([4, 3, 2, 1]) / 10
    pairs = np.zeros((4, 4))
    for _ in range(6000):
        first, second = sampler.draw_several(logs(*weights), [0], 2)[0]
        pairs[first, second] += 1
    expected = 6000 * weights[:, None] * weights / (1 - weights[:, None])
    off = ~np.eye(4, dtype=bool)
    assert (pairs[~off] == 0).all()
    deviation = ((pairs - expected) ** 2 / expected)[off].sum()
    assert deviation < 31.3  # 11 degrees of freedom, one seed in 1000


def test_ids_far_apart_and_steps_draw_independently():
    # Pairs of uniform draws over 30 ids, from one row's steps and from two rows.
    rows = RowSampler([1, 2])
    scores = np.full((2, 20000), -np.inf, np.float32)
    kept = np.arange(30) * 600
    scores[:, kept] = 0
    drawn = np.array([rows.draw(scores, [0, 1]) // 600 for _ in range(3000)])
    for first, second in [(drawn[1:, 0], drawn[:-1, 0]), (drawn[:, 0], drawn[:, 1])]:
        table = np.zeros((30, 30))
        np.add.at(table, (first, second), 1)
        expected = len(first) / 900
        deviation = ((table - expected) ** 2 / expected).sum()
        assert deviation < 1034  # 899 degrees of freedom, one seed in 1000


def noise(rows, width=500):
    return np.random.default_rng(3).normal(0, 2, (rows, width)).astype(np.float32)


def test_a_row_draws_the_same_alone_and_in_any_batch():  # known problem S33
    seeds, scores = [11, 12, 13], noise(3)
    together = RowSampler(seeds)
    batches = [together.draw(scores, [0, 1, 2]) for _ in range(3)]
    later = together.draw(scores[1:2], [1])  # the others have ended
    for row, seed in enumerate(seeds):
        alone = RowSampler([seed])
        for batch in batches:
            assert alone.draw(scores[row : row + 1], [0]) == batch[row]
        if row == 1:
            assert alone.draw(scores[1:2], [0]) == later


def test_a_token_more_or_less_changes_nothing_unless_it_wins():
    scores = noise(1)
    wins = 0
    for seed in range(200):
        drawn = int(RowSampler([seed]).draw(scores, [0])[0])
        fewer = scores.copy()
        fewer[0, [3, 8, 499]] = -np.inf
        other = int(RowSampler([seed]).draw(fewer, [0])[0])
        assert other == drawn or drawn in (3, 8, 499)
        wins += other == drawn
    assert wins > 150


def test_large_and_small_kept_sets_draw_alike():
    # More than one chunk against one: the numbers hang on the token alone.
    scores = noise(1, 40000)
    order = RowSampler([5]).draw_several(scores, [0], 300)[0]
    few = np.full_like(scores, -np.inf)
    few[0, order] = scores[0, order]
    assert RowSampler([5]).draw_several(few, [0], 300)[0].tolist() == order.tolist()


@pytest.mark.parametrize("name", SAMPLERS)
def test_where_too_few_have_a_chance_the_lowest_others_follow(name):
    scores = logs(0, 1, 0, 0, 1, 0)
    drawn = SAMPLERS[name]().draw_several(scores, [0], 5)[0].tolist()
    assert set(drawn[:2]) == {1, 4}
    assert drawn[2:] == [0, 2, 3]


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scores_without_a_best_are_refused(name, value):  # known problem S9
    sampler = {"philox": RowSampler([1, 2, 3]), "torch": TorchSampler(1, 3)}[name]
    good = np.zeros((3, 5), np.float32)
    sampler.draw(good, [0, 1, 2])
    bad = good[:2].copy()
    bad[1] = value if np.isinf(value) else [0, 1, value, 2, 3]
    with pytest.raises(LogitsError, match=r"row 2 .* step 2"):
        sampler.draw(bad, [0, 2])


CASES = [(10, 1), (10, 4), (4096 * 3, 1), (4096 * 3 + 17, 5), (70000, 64), (9000, 200), (3, 3)]


@pytest.mark.parametrize(("width", "count"), CASES)
@pytest.mark.parametrize("kind", ["normal", "ties", "mostly -inf", "all -inf", "rising"])
def test_largest_equals_a_stable_sort(width, count, kind):  # known problems S30, S32
    rng = np.random.default_rng(width)
    values = rng.normal(size=width).astype(np.float32)
    if kind == "ties":
        values = np.round(values)
    elif kind == "mostly -inf":
        values[rng.permutation(width)[3:]] = -np.inf
    elif kind == "all -inf":
        values[:] = -np.inf
    elif kind == "rising":
        values.sort()
    want = np.argsort(-values, kind="stable")[:count]
    assert largest(values, count).tolist() == want.tolist()


def tokens(sampler, rows, scores):
    return [sampler.draw(scores[:rows], list(range(rows))).tolist() for _ in range(5)]


def test_a_seed_acts_on_each_prompt_as_if_alone():
    scores = np.tile(noise(1), (6, 1))
    both = new_sampler(seed=4, prompts=2, returned=3)
    alone = new_sampler(seed=4, prompts=1, returned=3)
    rows = np.array(tokens(both, 6, scores))
    assert (rows[:, :3] == rows[:, 3:]).all()
    assert (rows[:, :3] == tokens(alone, 3, scores)).all()
    assert (rows[:, 0] == np.ravel(tokens(new_sampler(seed=4, prompts=1), 1, scores))).all()
    assert len(set(map(tuple, rows[:, :3].T))) == 3  # what is returned for one prompt differs
    next_seed = np.ravel(tokens(new_sampler(seed=5, prompts=1), 1, scores))
    assert (rows[:, 1] != next_seed).any()


def test_seeds_are_of_the_prompts():
    scores = np.tile(noise(1), (2, 1))
    both = np.array(tokens(new_sampler(seeds=[4, 9], prompts=2), 2, scores))
    for row, seed in enumerate([4, 9]):
        alone = tokens(new_sampler(seed=seed, prompts=1), 1, scores)
        assert both[:, row].tolist() == np.ravel(alone).tolist()


@pytest.mark.parametrize("rng", ["philox", "torch"])
def test_without_a_seed_runs_differ(rng):
    scores = noise(2)
    runs = {str(tokens(new_sampler(prompts=2, rng=rng), 2, scores)) for _ in range(5)}
    assert len(runs) == 5


def test_the_sampler_of_torch_counts_all_rows():
    scores = np.tile(noise(1), (4, 1))
    made, direct = new_sampler(seed=3, rng="torch", prompts=2, returned=2), TorchSampler(3, 4)
    assert tokens(made, 4, scores) == tokens(direct, 4, scores)


@pytest.mark.parametrize("seed", [0, (1 << 64) - 1, np.int64(3)])
@pytest.mark.parametrize("rng", ["philox", "torch"])
def test_seeds_that_are_taken(seed, rng):
    assert new_sampler(seed=seed, rng=rng, prompts=1).draw(noise(1), [0]).shape == (1,)


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1 << 64}, "seed is 18446744073709551616"),
        ({"seed": 1.0}, "seed is 1.0"),
        ({"seed": True}, "seed is True"),
        ({"seed": "7"}, "seed is '7'"),
        ({"seed": np.nan}, "seed is nan"),
        ({"seed": [1, 2]}, "seed is"),
        ({"seed": -1, "rng": "torch"}, "seed is -1"),
        ({"seeds": 5}, "seeds is 5"),
        ({"seeds": "12"}, "seeds is '12'"),
        ({"seeds": {1, 2}}, "seeds is"),
        ({"seeds": [1]}, "1 seeds for 2 prompts"),
        ({"seeds": [1, 2, 3]}, "3 seeds for 2 prompts"),
        ({"seeds": [1, None]}, r"seeds\[1\] is None"),
        ({"seeds": [1, -2]}, r"seeds\[1\] is -2"),
        ({"seed": 1, "seeds": [1, 2]}, "both seed and seeds"),
        ({"seeds": [1, 2], "rng": "torch"}, "rng='torch'"),
        ({"rng": "mt19937"}, "rng is 'mt19937'"),
        ({"rng": None}, "rng is None"),
        ({"rng": ["torch"]}, "rng is"),
    ],
)
def test_wrong_seeds(keywords, text):
    with pytest.raises(OptionError, match=text):
        new_sampler(**keywords, prompts=2)
