"""The cost of choosing a token, a step: bench_select.py [--rows R] [--steps N] [NAME...].

Beside onnxgen's processors stand transformers' of the same configuration where torch and
transformers can be imported. Both get the same scores in turns, so that what else the machine does
weighs on both alike; medians are compared, copies are not timed. Of beams, transformers' side has
only the arithmetic, onnxgen's the whole search. Exits with 1 where transformers is faster at one of
the main lines. Where other work loads the machine, OMP_NUM_THREADS=1 is kinder to torch.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from onnxgen.generation.beams import BeamOptions, beam_search
from onnxgen.generation.config import GenerationConfig
from onnxgen.generation.loop import Clock
from onnxgen.generation.pipeline import build
from onnxgen.generation.sampling import new_sampler
from onnxgen.generation.sequences import Processor, Sequences
from onnxgen.generation.whisper_rules import timestamps

try:
    import torch
    from transformers.generation import logits_process as hf
except ImportError:
    torch = hf = None

VOCABULARY, WHISPER_VOCABULARY = 151_936, 51_865
HISTORY = 1000  # ids of a row so far
EOS, NO_TIMESTAMPS = 50_257, 50_363
BEAMS, ROUND = 4, 10  # steps of a round of beam search
MAIN = ("greedy", "default sampling", "default sampling, with draw", "4 beams", "whisper")

Ours = Callable[[Sequences, np.ndarray], Any]
Theirs = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Choice:
    """What is measured: the same work in both, each from ids (R,L) and scores (R,V)."""

    name: str
    ours: Ours
    theirs: Callable[[], Theirs]
    vocab_size: int = VOCABULARY
    history: int = HISTORY
    new: int = 100  # of the history


def configured(**options: Any) -> Ours:
    """The processors of a configuration, for sampling, as one function."""
    processors = build(
        GenerationConfig(**options),
        sampling=True, beams=1, stop_ids=frozenset([EOS]), vocab_size=VOCABULARY,
    )  # fmt: skip
    return chained(processors)


def chained(processors: Sequence[Processor]) -> Ours:
    def run(seqs: Sequences, scores: np.ndarray) -> None:
        for process in processors:
            process(seqs, scores)

    return run


def listed(*processors: Any) -> Theirs:
    return hf.LogitsProcessorList(processors)


def choices(rng: np.random.Generator) -> list[Choice]:
    words = [rng.integers(0, VOCABULARY, 1 + i % 3).tolist() for i in range(200)]
    banned = rng.permutation(VOCABULARY)[:90].tolist()
    one = {
        "temperature": ({"temperature": 0.7}, lambda: hf.TemperatureLogitsWarper(0.7)),
        "top-k 50": ({"top_k": 50}, lambda: hf.TopKLogitsWarper(50)),
        "top-p 0.9": ({"top_p": 0.9}, lambda: hf.TopPLogitsWarper(0.9)),
        "min-p 0.05": ({"min_p": 0.05}, lambda: hf.MinPLogitsWarper(0.05)),
        "typical 0.9": ({"typical_p": 0.9}, lambda: hf.TypicalLogitsWarper(0.9)),
        "epsilon 3e-4": ({"epsilon_cutoff": 3e-4}, lambda: hf.EpsilonLogitsWarper(3e-4)),
        "eta 3e-4": ({"eta_cutoff": 3e-4}, lambda: hf.EtaLogitsWarper(3e-4)),
        "renormalize": ({"renormalize_logits": True}, lambda: hf.LogitNormalization()),
        "repetition penalty": (
            {"repetition_penalty": 1.2},
            lambda: hf.RepetitionPenaltyLogitsProcessor(1.2),
        ),
        "no repeated 3-grams": (
            {"no_repeat_ngram_size": 3},
            lambda: hf.NoRepeatNGramLogitsProcessor(3),
        ),
        "200 bad words": (
            {"bad_words_ids": words},
            lambda: hf.NoBadWordsLogitsProcessor(words, EOS),
        ),
        "90 suppressed": (
            {"suppress_tokens": banned},
            lambda: hf.SuppressTokensLogitsProcessor(banned),
        ),
        "min length": (
            {"min_length": 5000},
            lambda: hf.MinLengthLogitsProcessor(5000, EOS),
        ),
    }
    singles = [
        Choice(name, configured(**options), lambda make=make: listed(make()))
        for name, (options, make) in one.items()
    ]
    return [
        Choice("greedy", lambda seqs, scores: scores.argmax(1), lambda: lambda i, s: s.argmax(1)),
        *singles,
        Choice("default sampling", *sampling(draw=False)),
        Choice("default sampling, with draw", *sampling(draw=True)),
        Choice("whisper", whisper_of_ours(banned), lambda: whisper_of_theirs(banned),
               vocab_size=WHISPER_VOCABULARY, history=100, new=96),
    ]  # fmt: skip


def sampling(*, draw: bool) -> tuple[Ours, Callable[[], Theirs]]:
    """Temperature, top-k and top-p as most models' files ask for, and what is drawn behind them."""
    process = configured(temperature=0.7, top_k=50, top_p=0.9)
    sampler = new_sampler(seed=0, prompts=1)

    def ours(seqs: Sequences, scores: np.ndarray) -> None:
        process(seqs, scores)
        if draw:
            sampler.draw(scores, range(len(scores)))

    def make() -> Theirs:
        warp = listed(
            hf.TemperatureLogitsWarper(0.7), hf.TopKLogitsWarper(50), hf.TopPLogitsWarper(0.9)
        )

        def theirs(ids: Any, scores: Any) -> None:
            scores = warp(ids, scores)
            if draw:
                torch.multinomial(scores.softmax(-1), num_samples=1)

        return theirs

    return ours, make


def whisper_of_ours(banned: list[int]) -> Ours:
    text = [token % EOS for token in banned]
    config = GenerationConfig(suppress_tokens=text, begin_suppress_tokens=[220, EOS])
    rules = timestamps(NO_TIMESTAMPS, EOS, WHISPER_VOCABULARY, max_initial=50)
    return chained(
        build(
            config, sampling=False, beams=1, stop_ids=frozenset([EOS]),
            vocab_size=WHISPER_VOCABULARY, task=[rules],
        )
    )  # fmt: skip


def whisper_of_theirs(banned: list[int]) -> Theirs:
    from transformers import GenerationConfig as Config

    config = Config(eos_token_id=EOS, bos_token_id=EOS)
    config.no_timestamps_token_id, config.max_initial_timestamp_index = NO_TIMESTAMPS, 50
    return listed(
        hf.SuppressTokensLogitsProcessor([token % EOS for token in banned]),
        hf.SuppressTokensAtBeginLogitsProcessor([220, EOS], 4),
        hf.WhisperTimeStampLogitsProcessor(config, 4),
    )


def measure(choice: Choice, rows: int, steps: int) -> tuple[float, float | None]:
    """Milliseconds a step, ours and theirs."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, choice.vocab_size, (rows, choice.history))
    if choice.vocab_size == WHISPER_VOCABULARY:
        ids %= EOS
        ids[:, choice.history - choice.new] = NO_TIMESTAMPS + 1
    seqs = Sequences(ids.tolist(), [10_000] * rows)
    seqs.prompt_lengths[:] = choice.history - choice.new
    logits = rng.normal(0, 3, (rows, choice.vocab_size)).astype(np.float32)
    theirs = choice.theirs() if torch else None
    times: tuple[list[float], list[float]] = [], []
    for _ in range(steps):
        scores = logits.copy()
        start = perf_counter()
        choice.ours(seqs, scores)
        times[0].append(perf_counter() - start)
        if theirs:
            tensors = torch.from_numpy(ids), torch.from_numpy(logits.copy())
            start = perf_counter()
            theirs(*tensors)
            times[1].append(perf_counter() - start)
    return median(times[0]) * 1000, median(times[1]) * 1000 if theirs else None


class FixedSteps:
    """A model whose logits are the same in each step."""

    def __init__(self, rows: int) -> None:
        self.capacity, self.vocab_size = 1 << 20, VOCABULARY
        self._logits = np.random.default_rng(0).normal(0, 3, (rows, VOCABULARY)).astype(np.float32)

    def step(self, tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        return self._logits[: len(tokens)]

    step_all = step

    def reorder(self, rows: Any) -> None:
        pass

    rewind = reorder

    def close(self) -> None:
        pass


def measure_beams(rows: int, steps: int) -> tuple[float, float | None]:
    """Milliseconds a step, ours and theirs, of beam search with ``rows`` prompts."""
    decoder = FixedSteps(rows * BEAMS)
    times: tuple[list[float], list[float]] = [], []
    for _ in range(max(1, steps // ROUND)):
        seqs, clock = Sequences([[1]] * rows, [ROUND + 1] * rows), Clock()
        beam_search(decoder, seqs, BeamOptions(num_beams=BEAMS), clock=clock)
        times[0].extend(clock.timings(ROUND).per_token_ms)
        for _ in range(ROUND if torch else 0):
            logits = torch.from_numpy(decoder.step(np.zeros((rows * BEAMS, 1)), np.zeros(0)).copy())
            running = torch.zeros(rows, BEAMS, 1)
            start = perf_counter()
            sums = logits.log_softmax(-1).reshape(rows, BEAMS, -1) + running
            torch.topk(sums.reshape(rows, -1), 2 * BEAMS)
            times[1].append((perf_counter() - start) * 1000)
    return median(times[0]), median(times[1]) if torch else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1, help="rows of the batch (default 1)")
    parser.add_argument("--steps", type=int, default=40, help="steps of each (default 40)")
    parser.add_argument("names", nargs="*", help="measure only what is named so")
    args = parser.parse_args()
    slower = []
    print(f"{'ms a step':30}{'onnxgen':>10}{'torch':>10}{'ratio':>8}")
    measures: dict[str, Callable[[int, int], tuple[float, float | None]]] = {
        choice.name: partial(measure, choice) for choice in choices(np.random.default_rng(1))
    }
    measures["4 beams"] = measure_beams
    for name, times in measures.items():
        if args.names and name not in args.names:
            continue
        ours, theirs = times(args.rows, args.steps)
        beside = "" if theirs is None else f"{theirs:10.3f}{theirs / ours:8.1f}"
        print(f"{name:30}{ours:10.3f}{beside}", flush=True)
        if theirs is not None and theirs < ours and name in MAIN:
            slower.append(name)
    if slower:
        print("slower than torch:", ", ".join(slower), file=sys.stderr)
    return bool(slower)


if __name__ == "__main__":
    sys.exit(main())
