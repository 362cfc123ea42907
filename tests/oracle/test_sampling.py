"""Sampling and beam sampling against ``torch.manual_seed`` and ``generate``, token for token."""

import numpy as np
import pytest

from onnxgen.generation.beams import BeamOptions, beam_search
from onnxgen.generation.sampling import new_sampler
from onnxgen.generation.sequences import Sequences

pytestmark = pytest.mark.oracle

PROMPTS = ([5, 17, 3, 22], [9, 31, 12, 12])
NEW = 10
STOPS = (2, 11)


@pytest.fixture(scope="module")
def oracle():
    from tests.oracle import torch_steps

    return torch_steps


def warp(scores, temperature, top_k):
    """Temperature and top-k, in place; ``scores`` (R,V) without ties."""
    scores /= np.float32(temperature)
    if top_k:
        scores[scores < np.sort(scores, axis=1)[:, [-top_k]]] = -np.inf


def sample(steps, prompts, sampler, temperature, top_k):
    """The new tokens of each row, with the stop that ended it."""
    rows, live = [[] for _ in prompts], list(range(len(prompts)))
    logits = steps.step(np.array(prompts), np.full(len(prompts), len(prompts[0])))
    for _ in range(NEW):
        scores = logits.copy()
        warp(scores, temperature, top_k)
        for row, token in zip(live, sampler.draw(scores, live).tolist(), strict=True):
            rows[row].append(token)
        kept = [i for i, row in enumerate(live) if rows[row][-1] not in STOPS]
        live = [live[i] for i in kept]
        if not live:
            break
        steps.reorder(kept)
        newest = np.array([[rows[row][-1]] for row in live])
        logits = steps.step(newest, np.ones(len(live), np.int64))
    return rows


def generate(model, seed, **keywords):
    import torch

    torch.set_num_threads(1)
    ids = torch.tensor(PROMPTS)
    torch.manual_seed(seed)
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        eos_token_id=list(STOPS),
        pad_token_id=1,
        max_new_tokens=NEW,
        return_dict_in_generate=True,
        output_scores=True,
        **keywords,
    )
    return out, out.sequences[:, len(PROMPTS[0]) :].tolist()


def until_stop(row):
    ends = [i for i, token in enumerate(row) if token in STOPS]
    return row[: ends[0] + 1] if ends else row


@pytest.mark.timeout(600)
@pytest.mark.parametrize("model_seed", range(4))
@pytest.mark.parametrize(("returned", "temperature", "top_k"), [(1, 1.0, 0), (3, 0.7, 12)])
def test_sampling(oracle, model_seed, returned, temperature, top_k):
    model, known, shorter = oracle.tiny_model(model_seed), {}, 0
    for seed in range(50):
        _, want = generate(
            model,
            seed,
            top_k=top_k,
            temperature=temperature,
            num_return_sequences=returned,
        )
        prompts = [prompt for prompt in PROMPTS for _ in range(returned)]
        sampler = new_sampler(seed=seed, rng="torch", prompts=len(PROMPTS), returned=returned)
        got = sample(oracle.TorchSteps(model, known), prompts, sampler, temperature, top_k)
        assert got == [until_stop(row) for row in want], seed
        shorter += sum(len(row) < NEW for row in got)
    assert shorter > 5  # rows that end while others go on


@pytest.fixture
def ranked(monkeypatch):
    """transformers' candidates as its version 5 has them: drawn, then ranked by score."""
    import torch
    from transformers import GenerationMixin, __version__

    if not __version__.startswith("4."):
        return
    draw = GenerationMixin._get_top_k_continuations

    def ranking(self, *args, **keywords):
        scores, *others = draw(self, *args, **keywords)
        scores, order = torch.sort(scores, dim=1, descending=True)
        return scores, *(self._gather_beams(other, order) for other in others)

    monkeypatch.setattr(GenerationMixin, "_get_top_k_continuations", ranking)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("ranked")
@pytest.mark.parametrize("model_seed", range(4))
@pytest.mark.parametrize(
    ("beams", "temperature", "top_k", "early", "penalty"),
    [(3, 1.0, 0, False, 1.0), (2, 1.5, 20, True, 0.5)],
)
def test_beam_sampling(oracle, model_seed, beams, temperature, top_k, early, penalty):
    model, known = oracle.tiny_model(model_seed), {}
    options = BeamOptions(
        num_beams=beams,
        num_return_sequences=beams,
        length_penalty=penalty,
        early_stopping=early,
        stop_ids=frozenset(STOPS),
    )
    for seed in range(25):
        out, want = generate(
            model,
            seed,
            top_k=top_k,
            temperature=temperature,
            num_beams=beams,
            num_return_sequences=beams,
            early_stopping=early,
            length_penalty=penalty,
        )
        found = beam_search(
            oracle.TorchSteps(model, known),
            Sequences(PROMPTS, [len(prompt) + NEW for prompt in PROMPTS]),
            options,
            [lambda sequences, scores: warp(scores, temperature, top_k)],
            sampler=new_sampler(seed=seed, rng="torch", prompts=len(PROMPTS)),
        )
        got = [h for one in found for h in one.hypotheses]
        assert [list(h.tokens) for h in got] == [until_stop(row) for row in want], seed
        for h, score in zip(got, out.sequences_scores, strict=True):
            assert h.score == pytest.approx(float(score), abs=1e-5, rel=1e-5)
        indices = [h.flat_indices(i // beams, beams) for i, h in enumerate(got)]
        kept = [tuple(i for i in row if i >= 0) for row in out.beam_indices.tolist()]
        assert indices == kept, seed
