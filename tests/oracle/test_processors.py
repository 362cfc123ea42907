"""Every processor against transformers' class of the same purpose, on random inputs without ties.

onnxgen gets rows of unlike lengths together, transformers gets each row alone. Where onnxgen
follows a later version than the oracle's, the input is turned so that both versions agree.

Letters: R rows, L ids so far, P prompt, V vocabulary.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from onnxgen.generation import processors, warpers, whisper_rules
from onnxgen.generation.config import GenerationConfig
from onnxgen.generation.pipeline import build
from onnxgen.generation.sequences import Processor, Sequences
from onnxgen.generation.watermark import green_list, watermark

pytestmark = pytest.mark.oracle

CASES = 500
Oracle = Callable[[list[int], int, int], Any]  # (ids, P, row) -> transformers' processor


class Case:
    """Random rows with scores, all from one seed."""

    def __init__(self, seed: int, smallest: int = 8):
        self.rng = np.random.default_rng(seed)
        self.vocab = int(self.rng.integers(smallest, 300))
        rows = int(self.rng.integers(1, 4))
        few = int(self.rng.integers(2, self.vocab))  # ids are few, so that they come again
        self.prompts = [self.ids(int(self.rng.integers(1, 12)), few) for _ in range(rows)]
        new = int(self.rng.integers(0, 10))
        self.new = self.rng.integers(0, few, (new, rows))
        self.scores = self.tie_free((rows, self.vocab))

    def ids(self, count: int, below: int | None = None) -> list[int]:
        return self.rng.integers(0, below or self.vocab, count).tolist()

    def some(self, most: int, below: int | None = None) -> list[int]:
        count = int(self.rng.integers(1, min(most, below or self.vocab) + 1))
        return self.rng.permutation(below or self.vocab)[:count].tolist()

    def tie_free(self, shape: tuple[int, ...]) -> np.ndarray:
        while True:
            scores = self.rng.normal(0, self.rng.uniform(0.5, 6), shape).astype(np.float32)
            if len(np.unique(scores)) == scores.size:
                return scores

    def ban(self, share: float = 0.3) -> None:
        """Bans some tokens of each row, as processors before a warper do; never all."""
        banned = self.rng.random(self.scores.shape) < share
        banned[:, 0] = False
        self.scores[banned] = -np.inf

    def sequences(self, **options: Any) -> Sequences:
        limits = options.pop("limits", [1000] * len(self.prompts))
        seqs = Sequences(self.prompts, limits, **options)
        for tokens in self.new:
            seqs.append(tokens)
        return seqs


def check(case: Case, process: Processor, oracle: Oracle, seqs: Sequences | None = None) -> None:
    import torch

    seqs = seqs or case.sequences()
    ours = case.scores.copy()
    process(seqs, ours)
    for i in range(len(seqs)):
        ids = seqs.row(i).tolist()
        theirs = oracle(ids, int(seqs.prompt_lengths[i]), i)
        if isinstance(theirs, tuple):
            ids, theirs = theirs
        expected = theirs(torch.tensor([ids]), torch.from_numpy(case.scores[i : i + 1].copy()))
        same(ours[i], expected.numpy()[0])


def same(ours: np.ndarray, expected: np.ndarray) -> None:
    assert np.array_equal(np.isneginf(ours), np.isneginf(expected))
    kept = ~np.isneginf(expected)
    np.testing.assert_allclose(ours[kept], expected[kept], rtol=1e-6, atol=1e-6)


@pytest.fixture(scope="module")
def hf():
    from transformers.generation import logits_process

    return logits_process


@pytest.mark.parametrize("seed", range(CASES))
class TestProcessors:
    def test_sequence_bias(self, hf, seed):
        case = Case(seed)
        unused = case.vocab - 1
        biases = {}
        for _ in range(int(case.rng.integers(1, 30))):
            row = case.prompts[0] + case.new[:, 0].tolist()
            size = int(case.rng.integers(0, min(4, len(row)) + 1))
            before = row[len(row) - size :] if case.rng.random() < 0.7 else case.ids(size)
            ids = [*before, int(case.rng.integers(0, min(9, case.vocab)))]
            if unused not in ids:
                biases[tuple(ids)] = float(case.rng.normal(0, 3))
        biases[(0,)] = 1.5
        check(
            case,
            processors.sequence_bias(biases, case.vocab),
            # An id before the row lets 4.57.6 see a sequence whose beginning is the whole row.
            lambda ids, p, i: ([unused, *ids], hf.SequenceBiasLogitsProcessor(biases)),
        )

    def test_bad_words(self, hf, seed):
        case = Case(seed)
        unused, eos = case.vocab - 1, case.some(2)
        words = [[token] for token in eos] + [case.ids(1, case.vocab - 1)]
        for _ in range(int(case.rng.integers(1, 30))):
            row = case.prompts[0] + case.new[:, 0].tolist()
            size = int(case.rng.integers(0, min(4, len(row)) + 1))
            before = row[len(row) - size :] if case.rng.random() < 0.7 else case.ids(size)
            words.append([*before, int(case.rng.integers(0, case.vocab - 1))])
        words = [word for word in words if unused not in word[:-1]]
        if all(word in [[token] for token in eos] for word in words):
            words.append([eos[0], eos[0]])
        check(
            case,
            processors.bad_words(words, eos, case.vocab),
            lambda ids, p, i: ([unused, *ids], hf.NoBadWordsLogitsProcessor(words, eos)),
        )

    def test_repetition_penalty(self, hf, seed):
        case = Case(seed)
        penalty = float(case.rng.uniform(0.3, 3))
        check(
            case,
            processors.repetition_penalty(penalty),
            lambda ids, p, i: hf.RepetitionPenaltyLogitsProcessor(penalty),
        )

    def test_encoder_repetition_penalty(self, hf, seed):
        import torch

        case = Case(seed)
        penalty = float(case.rng.uniform(0.3, 3))
        encoder = [case.ids(int(case.rng.integers(1, 9))) for _ in range(2)]
        samples = case.rng.integers(0, 2, len(case.prompts)).tolist()
        check(
            case,
            processors.encoder_repetition_penalty(penalty),
            lambda ids, p, i: hf.EncoderRepetitionPenaltyLogitsProcessor(
                penalty, torch.tensor([encoder[samples[i]]])
            ),
            case.sequences(samples=samples, encoder_ids=encoder),
        )

    def test_no_repeat_ngram(self, hf, seed):
        case = Case(seed)
        size = int(case.rng.integers(1, 5))
        check(
            case,
            processors.no_repeat_ngram(size),
            lambda ids, p, i: hf.NoRepeatNGramLogitsProcessor(size),
        )

    def test_encoder_no_repeat_ngram(self, hf, seed):
        import torch

        case = Case(seed)
        size = int(case.rng.integers(1, 4))
        encoder = [case.ids(int(case.rng.integers(1, 30)), 6) for _ in range(2)]
        samples = case.rng.integers(0, 2, len(case.prompts)).tolist()
        check(
            case,
            processors.encoder_no_repeat_ngram(size),
            lambda ids, p, i: hf.EncoderNoRepeatNGramLogitsProcessor(
                size, torch.tensor([encoder[samples[i]]])
            ),
            case.sequences(samples=samples, encoder_ids=encoder),
        )

    def test_min_length(self, hf, seed):
        case = Case(seed)
        length, eos = int(case.rng.integers(1, 20)), case.some(3)
        check(
            case,
            processors.min_length(length, eos, case.vocab),
            lambda ids, p, i: hf.MinLengthLogitsProcessor(length, eos),
        )

    def test_min_new_tokens(self, hf, seed):
        case = Case(seed)
        count, eos = int(case.rng.integers(1, 12)), case.some(3)
        check(
            case,
            processors.min_new_tokens(count, eos, case.vocab),
            lambda ids, p, i: hf.MinNewTokensLengthLogitsProcessor(p, count, eos),
        )

    def test_prefix_constrained(self, hf, seed):
        case = Case(seed)
        allowed = {i: case.some(20) for i in range(len(case.prompts))}
        samples = case.rng.permutation(len(case.prompts)).tolist()

        def of(sample: int, ids: Any) -> list[int]:
            return allowed[sample] if len(ids) % 2 else [int(ids[-1])]

        check(
            case,
            processors.prefix_constrained(of),
            lambda ids, p, i: hf.PrefixConstrainedLogitsProcessor(
                lambda batch, ids: of(samples[i], ids), 1
            ),
            case.sequences(samples=samples),
        )

    def test_forced_bos(self, hf, seed):
        case = Case(seed)
        if seed % 2:
            case.new, case.prompts = case.new[:0], [case.ids(1) for _ in case.prompts]
        token = case.ids(1)[0]
        check(
            case,
            processors.forced_bos(token, case.vocab),
            lambda ids, p, i: hf.ForcedBOSTokenLogitsProcessor(token),
        )

    def test_forced_eos(self, hf, seed):
        case = Case(seed)
        eos = case.some(3)
        lengths = case.sequences().lengths
        limits = (lengths + case.rng.integers(1, 3, len(lengths))).tolist()
        check(
            case,
            processors.forced_eos(eos, case.vocab),
            lambda ids, p, i: hf.ForcedEOSTokenLogitsProcessor(limits[i], eos),
            case.sequences(limits=limits),
        )

    def test_remove_invalid(self, hf, seed):
        case = Case(seed)
        for value in (np.nan, np.inf, -np.inf):
            case.scores[case.rng.random(case.scores.shape) < 0.1] = value
        check(case, processors.remove_invalid(), lambda ids, p, i: hf.InfNanRemoveLogitsProcessor())

    def test_exponential_decay(self, hf, seed):
        case = Case(seed)
        eos = case.some(3)
        decay = (int(case.rng.integers(0, 8)), float(case.rng.uniform(0.5, 2)))
        check(
            case,
            processors.exponential_decay(decay, eos, case.vocab),
            lambda ids, p, i: hf.ExponentialDecayLengthPenalty(decay, eos, p),
        )

    def test_suppress(self, hf, seed):
        case = Case(seed)
        ids = case.some(40)
        check(
            case,
            processors.suppress(ids, case.vocab),
            lambda _, p, i: hf.SuppressTokensLogitsProcessor(ids),
        )

    def test_suppress_at_begin(self, hf, seed):
        case = Case(seed)
        case.new = case.new[: seed % 3]
        if seed % 5 == 0:
            case.prompts = [case.ids(1) for _ in case.prompts]
        banned, after_bos = case.some(40), bool(case.rng.integers(2))
        check(
            case,
            processors.suppress_at_begin(banned, case.vocab, after_bos=after_bos),
            lambda ids, p, i: hf.SuppressTokensAtBeginLogitsProcessor(
                banned, p if p > 1 or not after_bos else p + 1
            ),
        )

    def test_whisper_timestamps(self, hf, seed):
        case = Case(seed, smallest=20)
        rng, vocab = case.rng, case.vocab
        no_timestamps = int(rng.integers(8, vocab - 4))
        eos = int(rng.integers(1, no_timestamps))
        marks = int(rng.integers(0, len(case.new) + 1)) if len(case.new) else 0
        for step in rng.permutation(len(case.new))[:marks]:
            case.new[step] = rng.integers(no_timestamps + 1, vocab, len(case.prompts))
        highest = [None, 0, 1, 50][int(rng.integers(4))]
        config = SimpleNamespace(
            no_timestamps_token_id=no_timestamps,
            eos_token_id=eos,
            bos_token_id=None,
            max_initial_timestamp_index=highest,
        )
        check(
            case,
            whisper_rules.timestamps(no_timestamps, eos, vocab, max_initial=highest),
            lambda ids, p, i: hf.WhisperTimeStampLogitsProcessor(config, p),
        )


@pytest.mark.parametrize("seed", range(CASES))
class TestWarpers:
    def case(self, seed: int) -> tuple[Case, int]:
        case = Case(seed)
        if seed % 2:
            case.ban()
        return case, int(case.rng.integers(1, 4))

    def test_temperature(self, hf, seed):
        case, _ = self.case(seed)
        value = float(case.rng.uniform(0.05, 3))
        check(
            case,
            warpers.temperature(value),
            lambda ids, p, i: hf.TemperatureLogitsWarper(value),
        )

    def test_top_k(self, hf, seed):
        case, keep = self.case(seed)
        if seed % 3 == 0:  # wide enough for the look at groups
            case.scores = case.tie_free((len(case.prompts), 5000))
        k = int(case.rng.integers(1, 60))
        check(
            case,
            warpers.top_k(k, keep),
            lambda ids, p, i: hf.TopKLogitsWarper(k, min_tokens_to_keep=keep),
        )

    def test_top_p(self, hf, seed):
        case, keep = self.case(seed)
        p = float(case.rng.choice([0.0, case.rng.random(), 0.999]))
        check(
            case,
            warpers.top_p(p, keep),
            lambda ids, _, i: hf.TopPLogitsWarper(p, min_tokens_to_keep=keep),
        )

    def test_min_p(self, hf, seed):
        case, keep = self.case(seed)
        m = float(case.rng.choice([0.0, case.rng.random(), case.rng.random() ** 4, 1.0]))
        check(
            case,
            warpers.min_p(m, keep),
            lambda ids, p, i: hf.MinPLogitsWarper(m, min_tokens_to_keep=keep),
        )

    def test_typical(self, hf, seed):
        case, keep = self.case(seed)
        mass = float(case.rng.uniform(0.01, 0.99))
        check(
            case,
            warpers.typical(mass, keep),
            lambda ids, p, i: hf.TypicalLogitsWarper(mass, min_tokens_to_keep=keep),
        )

    def test_epsilon(self, hf, seed):
        case, keep = self.case(seed)
        cutoff = float(case.rng.random() ** 4 * 0.9 + 1e-6)
        check(
            case,
            warpers.epsilon(cutoff, keep),
            lambda ids, p, i: hf.EpsilonLogitsWarper(cutoff, min_tokens_to_keep=keep),
        )

    def test_eta(self, hf, seed):
        case, keep = self.case(seed)
        cutoff = float(case.rng.random() ** 4 * 0.9 + 1e-6)
        check(
            case,
            warpers.eta(cutoff, keep),
            lambda ids, p, i: hf.EtaLogitsWarper(cutoff, min_tokens_to_keep=keep),
        )

    def test_renormalize(self, hf, seed):
        case, _ = self.case(seed)
        check(case, warpers.renormalize(), lambda ids, p, i: hf.LogitNormalization())

    def test_green_list(self, hf, seed):
        case, _ = self.case(seed)
        case.scores = case.tie_free((len(case.prompts), 40 + case.vocab))
        options = {
            "greenlist_ratio": float(case.rng.uniform(0.1, 0.9)),
            "bias": float(case.rng.uniform(0.5, 3)),
            "hashing_key": int(case.rng.choice([15485863, 35, 2**40 + 17])),
            "seeding_scheme": "selfhash" if seed % 20 == 0 else "lefthash",
            "context_width": int(case.rng.integers(1, 4)),
        }
        case.prompts = [[0, 1, *prompt] for prompt in case.prompts]
        vocab = case.scores.shape[1]
        theirs = hf.WatermarkLogitsProcessor(vocab, "cpu", **options)
        check(case, green_list(vocab, **options), lambda ids, p, i: theirs)

    def test_synth_id(self, hf, seed):
        import torch

        case, _ = self.case(seed)
        case.new = case.rng.integers(0, 3, (12, len(case.prompts)))
        options = {
            "ngram_len": int(case.rng.integers(2, 5)),
            "keys": case.ids(int(case.rng.integers(1, 9)), 1000),
            "sampling_table_size": int(case.rng.choice([100, 65536])),
            "sampling_table_seed": seed,
            "context_history_size": int(case.rng.choice([2, 1024])),
            "skip_first_ngram_calls": bool(case.rng.integers(2)),
        }
        ours = watermark(options, case.vocab)
        seqs = Sequences(case.prompts, [1000] * len(case.prompts))
        theirs = [
            hf.SynthIDTextWatermarkLogitsProcessor(device="cpu", **options) for _ in case.prompts
        ]
        for tokens in case.new:
            scores = case.scores.copy()
            ours(seqs, scores)
            for i, process in enumerate(theirs):
                ids, before = torch.from_numpy(seqs.row(i).copy())[None], case.scores[i].copy()
                expected = process(ids, torch.from_numpy(before)[None])[0].numpy()
                # Shares that round to zero are lost at slightly other scores.
                np.testing.assert_allclose(
                    np.exp(scores[i]), np.exp(expected), rtol=1e-4, atol=1e-6
                )
            seqs.append(tokens)


@pytest.mark.parametrize("seed", range(CASES))
def test_guidance(hf, seed):
    import torch

    case = Case(seed)
    free = case.tie_free(case.scores.shape)
    scale = float(case.rng.uniform(0.1, 5))
    process = hf.UnbatchedClassifierFreeGuidanceLogitsProcessor(scale, None)
    process.get_unconditional_logits = lambda ids: torch.from_numpy(free)[:, None]
    expected = process(None, torch.from_numpy(case.scores.copy())).numpy()
    ours = processors.guidance(case.scores, free, scale)
    np.testing.assert_allclose(ours, expected, rtol=2e-6, atol=1e-5)


def random_options(case: Case) -> dict[str, Any]:
    """Options of all kinds at once, each there or not."""
    rng = case.rng
    every = {
        "sequence_bias": {tuple(case.ids(1)): float(rng.normal()), tuple(case.ids(2)): 2.0},
        "encoder_repetition_penalty": float(rng.uniform(0.5, 2)),
        "repetition_penalty": float(rng.uniform(0.5, 2)),
        "no_repeat_ngram_size": int(rng.integers(0, 4)),
        "encoder_no_repeat_ngram_size": int(rng.integers(2, 4)),
        "bad_words_ids": [case.ids(1), case.ids(2)],
        "min_length": int(rng.integers(0, 20)),
        "min_new_tokens": int(rng.integers(0, 8)),
        "forced_eos_token_id": case.some(2),
        "exponential_decay_length_penalty": (int(rng.integers(0, 4)), float(rng.uniform(0.9, 1.3))),
        "suppress_tokens": case.some(5),
        "begin_suppress_tokens": case.some(5),
        "temperature": float(rng.uniform(0.3, 2)),
        "top_k": int(rng.integers(0, 40)),
        "top_p": float(rng.uniform(0.3, 1)),
        "min_p": float(rng.random() ** 4),
        "typical_p": float(rng.uniform(0.3, 1)),
        "epsilon_cutoff": float(rng.random() ** 4 * 0.1),
        "eta_cutoff": float(rng.random() ** 4 * 0.1),
        "renormalize_logits": True,
    }
    return {name: value for name, value in every.items() if rng.random() < 0.4}


@pytest.fixture
def mended_decay(hf, monkeypatch):
    """The oracle's decay as later versions have it: a banned stop id stays banned, not NaN."""
    import torch

    decay = hf.ExponentialDecayLengthPenalty.__call__

    def call(self, input_ids, scores):
        return torch.where(scores.isfinite(), decay(self, input_ids, scores), scores)

    monkeypatch.setattr(hf.ExponentialDecayLengthPenalty, "__call__", call)


@pytest.mark.parametrize("seed", range(CASES))
def test_pipeline(hf, mended_decay, seed):
    """All at once and in their order, as the library itself lines them up."""
    import torch
    from transformers import GenerationConfig as Theirs
    from transformers import GenerationMixin

    class Model(GenerationMixin):
        config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=case.vocab))

    case = Case(seed, smallest=40)
    case.prompts = [[0, 1, *prompt] for prompt in case.prompts]
    sampling, beams, eos = bool(seed % 3), 1 + seed % 2, case.some(2)
    options = random_options(case)
    if "min_new_tokens" in options:
        options.pop("min_length", None)
    config = GenerationConfig(**options)
    ours = build(
        config, sampling=sampling, beams=beams, stop_ids=frozenset(eos), vocab_size=case.vocab
    )
    seqs = case.sequences()

    def oracle(ids: list[int], prompt: int, i: int) -> Any:
        theirs = Theirs(
            **{"top_k": 0, **options}, max_length=1000, do_sample=sampling, num_beams=beams
        )
        theirs._eos_token_tensor = torch.tensor(eos)
        processors = Model()._get_logits_processor(
            theirs,
            input_ids_seq_length=prompt,
            encoder_input_ids=torch.tensor([case.prompts[i]]),
            device="cpu",
        )
        return lambda ids, scores: processors(ids, scores)

    def process(seqs: Sequences, scores: np.ndarray) -> None:
        for step in ours:
            step(seqs, scores)

    check(case, process, oracle, seqs)
