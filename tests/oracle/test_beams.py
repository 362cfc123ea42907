"""Beam search against transformers, live: tokens, beam indices, scores.

A batch is compared with transformers' runs of its prompts one by one, since there prompts of a
batch do not stop by themselves.
"""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from onnxgen.generation.beams import BeamOptions, beam_search
from onnxgen.generation.sequences import Sequences

pytestmark = pytest.mark.oracle

PROMPTS = ([5, 17, 3, 22], [9, 31])
NEW = 12


@pytest.fixture(scope="module")
def oracle():
    from tests.oracle import torch_steps

    return torch_steps


def expected(oracle, model, prompt, **keywords):
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


def likely_stops(oracle, model):
    """Three ids that come often, behind the start, in what the model says without stops."""
    counts = Counter()
    for prompt in PROMPTS:
        free = {"num_beams": 5, "num_return_sequences": 5, "max_new_tokens": NEW}
        for tokens, *_ in expected(oracle, model, prompt, **free)[0]:
            counts.update(tokens[3:])
    return [token for token, _ in counts.most_common(4)[1:]]


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
@pytest.mark.parametrize("seed", range(6))
def test_the_grid(oracle, seed):
    model, known, lengths = oracle.tiny_model(seed), {}, Counter()
    likely = likely_stops(oracle, model)
    grid = product((1, 2, 3), (2, 3, 5), (-1.0, 0.0, 1.0, 2.0), (False, True, "never"))
    for count, beams, penalty, early in grid:
        stops = likely[:count]
        options = BeamOptions(
            num_beams=beams,
            num_return_sequences=beams,
            length_penalty=penalty,
            early_stopping=early,
            stop_ids=frozenset(stops),
        )
        sequences = Sequences(PROMPTS, [len(p) + NEW for p in PROMPTS])
        results = beam_search(oracle.TorchSteps(model, known), sequences, options, keep_scores=True)
        for found, prompt in zip(results, PROMPTS, strict=True):
            answers, steps = expected(
                oracle,
                model,
                prompt,
                num_beams=beams,
                num_return_sequences=beams,
                length_penalty=penalty,
                early_stopping=early,
                eos_token_id=stops,
                max_new_tokens=NEW,
            )
            check(found, answers, steps)
            lengths.update(len(tokens) for tokens, *_ in answers)
    assert lengths.total() - lengths[NEW] > 200  # the grid is about ends, so they must occur
    assert len(lengths) > 4
