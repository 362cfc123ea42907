"""Selection by a graph chooses what the processors on the host choose, token for token."""

import re
from dataclasses import replace

import numpy as np
import pytest

from onnxgen.errors import LogitsError
from onnxgen.generation import config as options
from onnxgen.generation import pipeline
from onnxgen.generation.beams import BeamOptions
from onnxgen.generation.candidates import Proposer
from onnxgen.generation.choosing import Chooser
from onnxgen.generation.loop import Row
from onnxgen.generation.sampling import RowSampler
from onnxgen.generation.sequences import Sequences
from onnxgen.runtime.device import Device
from onnxgen.runtime.kept import KeptLogits
from onnxgen.runtime.selection import Selector
from onnxgen.tasks.selected import SelectedChooser, SelectedProposer
from onnxgen.tasks.selecting import Plan, plan, why_not
from tests.tasks.random_options import random_options

DEVICE = Device()
STEPS, VOCAB = 3, 500


def kept(values):
    held = DEVICE.memory(values.nbytes)
    held.array(values.shape, 4)[...] = np.ascontiguousarray(values).view(np.uint32)
    return KeptLogits(held, len(values), DEVICE, values.shape[1], "float32")


def complete(**keywords):
    return options.merge({}, None, keywords)


def ragged(rng, rows):
    """Prompts, some of a single id, some with ids that are none of the vocabulary."""
    prompts = [rng.integers(0, VOCAB + 2, rng.integers(1, 9)).tolist() for _ in range(rows)]
    return prompts, [len(p) + STEPS for p in prompts]


def choosers(config, rng, rows):
    """One on the host, one by the graph, and where that draws from a few one that races all."""
    sampling, stop_ids = bool(config.do_sample), options.stop_ids(config)
    prompts, ends = ragged(rng, rows)
    seeds = rng.integers(1 << 32, size=rows).tolist()
    processors = pipeline.build(
        config, sampling=sampling, beams=1, stop_ids=stop_ids, vocab_size=VOCAB
    )
    made = plan(config, stop_ids=stop_ids, vocab_size=VOCAB)
    racing = Plan(replace(made.spec, draws=sampling), made.flags)
    told = {"logprobs": bool(config.logprobs), "top_logprobs": config.top_logprobs or 0}

    def parts():
        return Sequences(prompts, ends), processors, RowSampler(seeds) if sampling else None

    by_graph = [
        SelectedChooser(each, Selector(each.spec, DEVICE, VOCAB), *parts(), **told)
        for each in (made, racing)
    ]
    return (
        Chooser(*parts(), **told),
        *by_graph,
        [Row(i, p, STEPS, stop_ids) for i, p in enumerate(prompts)],
    )


@pytest.mark.filterwarnings("ignore:min_new_tokens is given")
@pytest.mark.parametrize("case", range(200))
def test_rows_equal_the_host(case):
    rng = np.random.default_rng(case)
    rows = int(rng.integers(1, 5))
    config = complete(**random_options(rng, VOCAB), do_sample=bool(case % 2))
    assert why_not(config) is None
    host, *by_graph, live = choosers(config, rng, rows)
    for _ in range(STEPS):
        logits = rng.normal(0, 4, (len(live), VOCAB)).astype(np.float32)
        try:
            tokens = host(logits, live).tolist()
        except LogitsError as error:  # options that ban all tokens
            for each in by_graph:
                with pytest.raises(LogitsError, match=re.escape(str(error))):
                    each(kept(logits), live)
            return
        for each in by_graph:
            assert each(kept(logits), live).tolist() == tokens
        for row, token in zip(live, tokens, strict=True):
            row.push(token)
        live = [row for row in live if row.finish_reason is None]
        if not live:
            break
    for each in by_graph:
        assert each.overflows == 0
        for own, expected in zip(each.told, host.told, strict=True):
            same_told(own, expected)


def same_told(own, expected):
    close = {"rtol": 2e-6, "atol": 1e-5}
    np.testing.assert_allclose(own.logprobs, expected.logprobs, **close)
    if expected.logprobs:
        np.testing.assert_allclose(own.transitions, expected.transitions, **close)
    for best, right in zip(own.top_logprobs, expected.top_logprobs, strict=True):
        assert [i for i, _ in best] == [i for i, _ in right]
        np.testing.assert_allclose([v for _, v in best], [v for _, v in right], **close)


def test_more_open_tokens_than_reach_the_host_are_drawn_from_on_it():
    """Of 3,000 equal scores top-p 0.9 leaves 2,701; of steep ones a few."""
    vocab, width = 3000, 1024
    config = complete(do_sample=True, top_k=0, top_p=0.9, logprobs=True)
    made = plan(config, stop_ids=frozenset(), vocab_size=vocab)
    assert made.spec.candidates == width
    processors = pipeline.build(
        config, sampling=True, beams=1, stop_ids=frozenset(), vocab_size=vocab
    )
    rows = [Row(0, [1], 9, frozenset()), Row(1, [2], 9, frozenset())]

    def parts():
        return Sequences([[1], [2]], [9, 9]), processors, RowSampler([3, 4])

    selector = Selector(made.spec, DEVICE, vocab)
    host = Chooser(*parts(), logprobs=True)
    chooser = SelectedChooser(made, selector, *parts(), logprobs=True)
    rng = np.random.default_rng(0)
    for flat in (False, True, False, True):
        logits = rng.normal(0, 6, (2, vocab)).astype(np.float32)
        if flat:
            logits[1] = 0
        assert chooser(kept(logits), rows).tolist() == host(logits, rows).tolist()
    assert chooser.overflows == 2
    for own, expected in zip(chooser.told, host.told, strict=True):
        same_told(own, expected)


@pytest.mark.parametrize("sampling", [False, True])
def test_nan_names_its_row_and_step(sampling):  # known problem S9
    rng = np.random.default_rng(0)
    config = complete(do_sample=sampling, top_k=5)
    _, *by_graph, live = choosers(config, rng, 3)
    logits = rng.normal(0, 4, (3, VOCAB)).astype(np.float32)
    for each in by_graph:
        each(kept(logits), live)
    for row in live:
        row.push(7)
    logits[1, 30] = np.nan
    for each in by_graph:
        with pytest.raises(LogitsError, match="row 2 is nan in step 2"):
            each(kept(logits[:2]), [live[0], live[2]])


@pytest.mark.filterwarnings("ignore:min_new_tokens is given")
@pytest.mark.parametrize("case", range(100))
def test_beams_equal_the_host(case):
    rng = np.random.default_rng(1000 + case)
    count, beams = int(rng.integers(1, 4)), int(rng.integers(2, 5))
    sampling = bool(case % 2)
    config = complete(**random_options(rng, VOCAB), do_sample=sampling, num_beams=beams)
    stop_ids = options.stop_ids(config)
    asked = BeamOptions(num_beams=beams, stop_ids=stop_ids)
    processors = pipeline.build(
        config, sampling=sampling, beams=beams, stop_ids=stop_ids, vocab_size=VOCAB
    )
    seqs = Sequences(*ragged(rng, count))
    seqs.select(np.repeat(np.arange(count), beams))
    if case % 4 < 2:  # beams that have parted
        seqs.append(rng.integers(0, VOCAB, len(seqs)))
    running = -rng.exponential(3, (count, beams)).astype(np.float32)
    logits = rng.normal(0, 4, (len(seqs), VOCAB)).astype(np.float32)
    seeds = rng.integers(1 << 32, size=count).tolist()
    samplers = [RowSampler(seeds) if sampling else None for _ in range(2)]
    host = Proposer(asked.candidates, processors, samplers[0], True, False, bool(config.logprobs))
    made = plan(config, stop_ids=stop_ids, vocab_size=VOCAB, beam_options=asked)
    by_graph = SelectedProposer(made, Selector(made.spec, DEVICE, VOCAB), samplers[1])
    given = seqs, range(count), running, 1
    for own, right in zip(by_graph(kept(logits), *given), host(logits, *given), strict=True):
        assert own.beams.tolist() == right.beams.tolist()
        assert own.tokens.tolist() == right.tokens.tolist()
        np.testing.assert_allclose(own.sums, right.sums, rtol=1e-6)
        np.testing.assert_allclose(own.scores, right.scores, rtol=1e-6, atol=1e-5)
        if config.logprobs:
            np.testing.assert_allclose(own.logprobs, right.logprobs, rtol=1e-6, atol=1e-5)
        else:
            assert own.logprobs is None


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
    assert why_not(complete(typical_p=0.5), ["logits_processor"]) == "logits_processor"
