"""Beam search against transformers, live: tokens, beam indices, scores.

A batch is compared with transformers' runs of its prompts one by one, since there prompts of a
batch do not stop by themselves.
"""

import random
from collections import Counter
from functools import cache
from itertools import product

import numpy as np
import pytest

import onnxgen
from onnxgen.generation.beams import BeamOptions, beam_search
from onnxgen.generation.sequences import Sequences
from tests.fixture_models import FIXTURES

pytestmark = pytest.mark.oracle

PROMPTS = ([5, 17, 3, 22], [9, 31])
NEW = 12
SEEDS = 6
GRID = tuple(product((1, 2, 3), (2, 3, 5), (-1.0, 0.0, 1.0, 2.0), (False, True, "never")))

# An export of each cache mode, with the family and the seed of its weights.
EXPORTS = {
    "in_place": ("genai-llama", "llama", 0),
    "append": ("llama", "llama", 0),
    "none": ("llama-nocache", "llama", 0),
    "grow": ("mpt", "mpt", 1),
}


@pytest.fixture(scope="module")
def oracle():
    from tests.oracle import torch_steps

    return torch_steps


def expected(model, prompt, **keywords):
    """What transformers says of one prompt: for each sequence tokens, indices, score, transitions;
    and the scores of all steps."""
    import torch

    torch.set_num_threads(1)
    ids = torch.tensor([prompt])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        return_dict_in_generate=True,
        output_scores=True,
        pad_token_id=1,
        **keywords,
    )
    moves = model.compute_transition_scores(out.sequences, out.scores, out.beam_indices)
    answers = []
    for row, indices in enumerate(out.beam_indices):
        length = int((indices >= 0).sum())
        answers.append(
            (
                out.sequences[row, len(prompt) : len(prompt) + length].tolist(),
                indices[:length].tolist(),
                float(out.sequences_scores[row]),
                moves[row, :length].numpy(),
            )
        )
    return answers, [step.numpy() for step in out.scores]


def likely_stops(model, prompts):
    """Three ids that come often, behind the start, in what the model says without stops."""
    counts = Counter()
    for prompt in prompts:
        free = {"num_beams": 5, "num_return_sequences": 5, "max_new_tokens": NEW}
        for tokens, *_ in expected(model, prompt, **free)[0]:
            counts.update(tokens[3:])
    return [token for token, _ in counts.most_common(4)[1:]]


def asked(case, likely):
    """The options of a case of the grid."""
    count, beams, penalty, early = case
    return {
        "num_beams": beams,
        "num_return_sequences": beams,
        "length_penalty": penalty,
        "early_stopping": early,
        "eos_token_id": likely[:count],
    }


def check(found, answers, steps):
    for hypothesis, (tokens, indices, score, moves) in zip(found.hypotheses, answers, strict=True):
        assert list(hypothesis.tokens) == tokens
        assert list(hypothesis.beam_indices) == indices
        assert hypothesis.score == pytest.approx(score, abs=1e-5, rel=1e-5)
        np.testing.assert_allclose(hypothesis.transition_scores, moves, atol=1e-5)
    assert len(found.scores) == len(steps)
    for ours, theirs in zip(found.scores, steps, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_grid(oracle, seed):
    model, known, lengths = oracle.tiny_model(seed), {}, Counter()
    likely = likely_stops(model, PROMPTS)
    for case in GRID:
        keywords = asked(case, likely)
        stops = frozenset(keywords["eos_token_id"])
        rest = {name: value for name, value in keywords.items() if name != "eos_token_id"}
        options = BeamOptions(**rest, stop_ids=stops)
        sequences = Sequences(PROMPTS, [len(p) + NEW for p in PROMPTS])
        results = beam_search(oracle.TorchSteps(model, known), sequences, options, keep_scores=True)
        for found, prompt in zip(results, PROMPTS, strict=True):
            answers, steps = expected(model, prompt, max_new_tokens=NEW, **keywords)
            check(found, answers, steps)
            lengths.update(len(tokens) for tokens, *_ in answers)
    assert lengths.total() - lengths[NEW] > 200  # the grid is about ends, so they must occur
    assert len(lengths) > 4


class Told:
    """What transformers says of prompts of one fixture's weights, asked for once."""

    def __init__(self, family, seed):
        from scripts.oracle.expectations import make_model
        from scripts.oracle.families import FAMILIES

        self.model, self.known = make_model(FAMILIES[family], seed), {}
        self.model.generation_config.eos_token_id = None
        rng = np.random.default_rng(1)
        self.prompts = [
            [rng.integers(3, 288, size).tolist() for size in (4, 2)] for _ in range(SEEDS)
        ]

    def likely(self, number):
        key = (number,)
        if key not in self.known:
            self.known[key] = likely_stops(self.model, self.prompts[number])
        return self.known[key]

    def answers(self, number, case):
        """Of both prompts of a pair."""
        if (number, case) not in self.known:
            keywords = asked(case, self.likely(number)) | {"max_new_tokens": NEW}
            self.known[number, case] = [
                expected(self.model, prompt, **keywords)[0] for prompt in self.prompts[number]
            ]
        return self.known[number, case]


@pytest.fixture(scope="module")
def told():
    return cache(Told)


def check_export(told, mode, cases):
    """By either selection; ``cases`` are numbers of prompts with a case of the grid each."""
    folder, family, seed = EXPORTS[mode]
    path, by = FIXTURES / "models" / folder, told(family, seed)
    own = mode == "append"  # rewritten it would be in place
    models = [
        onnxgen.load(path, selection=how, threads=1, rewrites=not own) for how in ("numpy", "onnx")
    ]
    assert models[0].model.graph.mode.name.lower() == mode
    for number, case in cases:
        keywords = asked(case, by.likely(number)) | {"max_new_tokens": NEW}
        expected_ones = by.answers(number, case)
        for model in models:
            found = model.generate(by.prompts[number], **keywords)
            for own, right in zip(found, expected_ones, strict=True):
                check_generations(own, right)


def check_generations(found, answers):
    for own, (tokens, indices, score, moves) in zip(found, answers, strict=True):
        assert list(own.tokens) == tokens
        assert list(own.beam_indices) == indices
        assert own.sequence_score == pytest.approx(score, abs=1e-4, rel=1e-4)
        np.testing.assert_allclose(own.transition_scores, moves, atol=1e-4)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("mode", EXPORTS)
def test_the_whole_grid_on_an_export(told, mode):
    check_export(told, mode, product(range(SEEDS), GRID))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", EXPORTS)
def test_a_sample_of_108_of_the_grids_648_on_an_export(told, mode):
    every = list(product(range(SEEDS), GRID))
    check_export(told, mode, random.Random(2).sample(every, 108))
