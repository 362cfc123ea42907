"""Selection by a graph chooses what the processors on the host choose, token for token."""

from dataclasses import replace

import numpy as np
import pytest

from onnxgen.errors import LogitsError
from onnxgen.generation import config as options
from onnxgen.generation import pipeline
from onnxgen.generation.beams import BeamOptions
from onnxgen.generation.choosing import Chooser
from onnxgen.generation.loop import Row
from onnxgen.generation.sampling import RowSampler, splitmix
from onnxgen.generation.sequences import Sequences
from onnxgen.generation.softmax import log_softmax
from onnxgen.runtime.device import Device
from onnxgen.runtime.selection import Selector
from onnxgen.tasks.selecting import plan, why_not

DEVICE = Device()
STEPS = 3


def memory(values):
    held = DEVICE.memory(values.nbytes)
    held.array(values.shape, 4)[...] = np.ascontiguousarray(values).view(np.uint32)
    return held


def noise(seeds, step, width):
    """The q of the race of :class:`RowSampler`, for all ids: float32 (R,W)."""
    keys = []
    for seed in seeds:
        generator = np.random.Philox(key=seed)
        keys.append([generator.random_raw() for _ in range(step)][-1])
    ids = np.arange(width)
    words = np.stack([splitmix(key, ids) for key in keys])
    return -np.log(((words >> np.uint64(12)) + 0.5) * 2.0**-52).astype(np.float32)


def random_options(rng, vocab):
    """Any of the options that the graph knows, each in a third of all cases."""

    def ids(most=40):
        return rng.choice(vocab, rng.integers(1, most), replace=False).tolist()

    values = {
        "logit_bias": {i: float(rng.normal(0, 3)) for i in ids()},
        "sequence_bias": {(i,): float(rng.normal(0, 3)) for i in ids()},
        "repetition_penalty": float(rng.uniform(0.5, 3)),
        "bad_words_ids": [[i] for i in ids()],
        "min_length": int(rng.integers(0, 12)),
        "min_new_tokens": int(rng.integers(0, 3)),
        "forced_bos_token_id": int(rng.integers(vocab)),
        "forced_eos_token_id": ids(3),
        "suppress_tokens": ids(),
        "begin_suppress_tokens": ids(),
        "temperature": float(rng.uniform(0.3, 2)),
        "top_k": int(rng.integers(1, vocab)),
        "top_p": float(rng.uniform(0.05, 1)),
        "min_p": float(rng.uniform(0, 0.3)),
        "renormalize_logits": True,
        "logprobs": True,
    }
    chosen = {name: value for name, value in values.items() if rng.random() < 0.35}
    chosen.setdefault("top_k", 0)
    return {**chosen, "eos_token_id": ids(4)}


def complete(**keywords):
    return options.merge({}, None, keywords)


def ragged(rng, rows, vocab):
    """Prompts, some of a single id, some with ids that are none of the vocabulary."""
    prompts = [rng.integers(0, vocab + 2, rng.integers(1, 9)).tolist() for _ in range(rows)]
    return prompts, [len(p) + STEPS for p in prompts]


@pytest.mark.filterwarnings("ignore:min_new_tokens is given")
@pytest.mark.parametrize("case", range(200))
def test_rows_equal_the_host(case):
    rng = np.random.default_rng(case)
    vocab, rows, sampling = 500, int(rng.integers(1, 5)), bool(case % 2)
    config = complete(**random_options(rng, vocab), do_sample=sampling)
    stop_ids = options.stop_ids(config)
    assert why_not(config) is None
    processors = pipeline.build(
        config, sampling=sampling, beams=1, stop_ids=stop_ids, vocab_size=vocab
    )
    seeds = rng.integers(1 << 32, size=rows).tolist()
    prompts, ends = ragged(rng, rows, vocab)
    chooser = Chooser(
        Sequences(prompts, ends),
        processors,
        RowSampler(seeds) if sampling else None,
        logprobs=bool(config.logprobs),
    )
    made = plan(config, stop_ids=stop_ids, vocab_size=vocab)
    selector = Selector(made.spec, DEVICE, vocab)
    racer = Selector(replace(made.spec, draws=sampling), DEVICE, vocab)
    sampler, seqs = RowSampler(seeds), Sequences(prompts, ends)
    for step in range(1, STEPS + 1):
        logits = rng.normal(0, 4, (rows, vocab)).astype(np.float32)
        given = {
            "ids": seqs.ids,
            "lengths": seqs.lengths,
            "flags": {name: flag(seqs) for name, flag in made.flags.items()},
            "noise": noise(seeds, step, vocab),
        }
        found = selector.choose(memory(logits), rows, **given)
        live = [Row(i, p, STEPS, stop_ids) for i, p in enumerate(prompts)]
        if not np.isfinite(found.best).all():  # options that ban all tokens
            with pytest.raises(LogitsError):
                chooser(logits, live)
            return
        tokens = chooser(logits, live)
        assert drawn(found, made.spec, sampling, sampler, vocab).tolist() == tokens.tolist()
        raced = racer.choose(memory(logits), rows, **given)
        assert raced.tokens.tolist() == tokens.tolist()
        if config.logprobs:
            told = [each.logprobs[-1] for each in chooser.told]
            np.testing.assert_allclose(raced.logprobs, told, rtol=2e-6, atol=1e-5)
        seqs.append(tokens)


def drawn(found, spec, sampling, sampler, vocab):
    """What the graph chose, or the sampler draws from the candidates that it gave."""
    if spec.draws or not sampling:
        return found.tokens
    assert (found.open <= found.ids.shape[1]).all()
    scores = np.full((len(found.ids), vocab), -np.inf, np.float32)
    np.put_along_axis(scores, found.ids, found.scores, axis=1)
    return sampler.draw(scores, range(len(scores)))


@pytest.mark.filterwarnings("ignore:min_new_tokens is given")
@pytest.mark.parametrize("case", range(100))
def test_beams_equal_the_host(case):
    rng = np.random.default_rng(1000 + case)
    vocab, prompts_count, beams = 500, int(rng.integers(1, 4)), int(rng.integers(2, 5))
    sampling = bool(case % 2)
    config = complete(**random_options(rng, vocab), do_sample=sampling, num_beams=beams)
    stop_ids = options.stop_ids(config)
    chosen = BeamOptions(num_beams=beams, stop_ids=stop_ids)
    processors = pipeline.build(
        config, sampling=sampling, beams=beams, stop_ids=stop_ids, vocab_size=vocab
    )
    prompts, ends = ragged(rng, prompts_count, vocab)
    seqs = Sequences(prompts, ends)
    seqs.select(np.repeat(np.arange(prompts_count), beams))
    if case % 4 < 2:  # beams that have parted
        seqs.append(rng.integers(0, vocab, len(seqs)))
    running = -rng.exponential(3, len(seqs)).astype(np.float32)  # (B,)
    logits = rng.normal(0, 4, (len(seqs), vocab)).astype(np.float32)
    seeds = rng.integers(1 << 32, size=prompts_count).tolist()
    scores = log_softmax(logits)
    for process in processors:
        process(seqs, scores)
    sums = (scores + running[:, None]).reshape(prompts_count, -1)  # (I,N×V)
    if sampling:
        expected = RowSampler(seeds).draw_several(sums, range(prompts_count), chosen.candidates)
    else:
        expected = np.argsort(-sums, axis=1, kind="stable")[:, : chosen.candidates]
    made = plan(config, stop_ids=stop_ids, vocab_size=vocab, beam_options=chosen)
    found = Selector(made.spec, DEVICE, vocab).candidates(
        memory(logits),
        running,
        ids=seqs.ids,
        lengths=seqs.lengths,
        flags={name: flag(seqs) for name, flag in made.flags.items()},
        noise=noise(seeds, 1, beams * vocab),
    )
    assert found.places.tolist() == expected.tolist()
    np.testing.assert_allclose(found.sums, np.take_along_axis(sums, expected, 1), rtol=1e-6)
    own = np.take_along_axis(scores.reshape(sums.shape), expected, 1)
    np.testing.assert_allclose(found.scores, own, rtol=1e-6, atol=1e-5)
    if config.logprobs:
        norms = np.log(np.exp(scores.astype(np.float64)).sum(1))
        np.testing.assert_allclose(found.norms, norms, atol=1e-5)


@pytest.mark.parametrize(
    ("keywords", "reason"),
    [
        ({}, None),
        ({"do_sample": True, "top_p": 0.9, "min_p": 0.1, "temperature": 0.5}, None),
        ({"num_beams": 3, "do_sample": True}, None),
        ({"typical_p": 0.5}, None),  # greedy decoding has no warpers
        ({"typical_p": 0.5, "do_sample": True}, "typical_p"),
        ({"eta_cutoff": 0.1, "do_sample": True}, "eta_cutoff"),
        ({"epsilon_cutoff": 0.1, "do_sample": True}, "epsilon_cutoff"),
        ({"no_repeat_ngram_size": 2}, "no_repeat_ngram_size"),
        ({"encoder_no_repeat_ngram_size": 2}, "encoder_no_repeat_ngram_size"),
        ({"guidance_scale": 1.5}, "guidance_scale"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": -0.5}, "frequency_penalty"),
        ({"encoder_repetition_penalty": 1.2}, "encoder_repetition_penalty"),
        ({"remove_invalid_values": True}, "remove_invalid_values"),
        ({"exponential_decay_length_penalty": [3, 1.1]}, "exponential_decay_length_penalty"),
        ({"watermarking_config": {"bias": 2.0}}, "watermarking_config"),
        ({"output_scores": True}, "output_scores"),
        ({"bad_words_ids": [[1], [2]]}, None),
        ({"bad_words_ids": [[1], [2, 3]]}, "bad_words_ids with several ids"),
        ({"sequence_bias": {(1,): 2.0}}, None),
        ({"sequence_bias": [[[1, 2], 2.0]]}, "sequence_bias with several ids"),
    ],
    ids=str,
)
def test_why_not(keywords, reason):
    assert why_not(complete(**keywords)) == reason


def test_why_not_a_function():
    assert why_not(complete(), functions=True) == "logits_processor or prefix_allowed_tokens_fn"
