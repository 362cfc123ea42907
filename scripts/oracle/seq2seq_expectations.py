"""What transformers says of an encoder-decoder: each input run alone, in fp32."""

import copy
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from . import seq2seq_images as images
from . import seq2seq_tokens as tokens
from .seq2seq_families import Case, Family
from .seq2seq_replay import Replay, behind
from .seq2seq_weights import make

JSON = dict[str, Any]
INPUTS = 10
POOL = 50  # inputs to choose from
MARGIN = 4e-3  # of the two best scores in every greedy step
NOISE = 2e-4  # what scores of beams are shaken by
COARSE = 2e-3  # the same for files that round
DISTINCT = 6  # different tokens in a run of 20
ENDING = 3  # of the inputs, so many end by eos at least


@dataclass
class Input:
    """A text or a picture, and what the model is fed of it: a batch of 1."""

    source: Any
    feed: dict[str, torch.Tensor]


@dataclass
class Run:
    """What follows the prompt, eos included; the least gap of greedy steps, or a beam's score."""

    tokens: list[int]
    margin: float
    score: float | None


class Shaken(LogitsProcessor):
    """Adds a little noise to the scores of each step."""

    def __init__(self, seed: int, noise: float) -> None:
        self.noise = noise
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores + (torch.rand(scores.shape, generator=self.generator) - 0.5) * 2 * self.noise


def run(
    model: PreTrainedModel,
    family: Family,
    case: Case,
    row: Input,
    index: int,
    shake: Shaken | None = None,
    replay: Replay | None = None,
) -> Run:
    """Runs one input alone; `index` says which of the case's prompts it gets.

    With a replay, the numbers are those of exported files, and only the loop is transformers'.
    """
    dtype = next(model.parameters()).dtype
    feed = {k: v.to(dtype) if v.is_floating_point() else v for k, v in row.feed.items()}
    options = dict(case.options)
    start = 1
    if case.prompts:
        prompt = list(case.prompts[index % len(case.prompts)])
        options["decoder_input_ids"] = torch.tensor([prompt])
        start = len(prompt) + prepended(family, prompt)
    if shake:
        options["logits_processor"] = LogitsProcessorList([shake])
    if replay:
        options |= {"encoder_outputs": replay.encode(row.feed), "use_cache": False}
    settings = family.settings if case.settings else {}
    model.generation_config = GenerationConfig(**family.ids, **settings)
    with torch.inference_mode(), behind(model, replay) if replay else nullcontext():
        out = model.generate(**feed, **options, return_dict_in_generate=True, output_scores=True)
    new = out.sequences[0, start:].tolist()
    score = out.get("sequences_scores")
    if score is not None:
        return Run(new, math.inf, float(score[0]))
    return Run(new, min(gap(step[0]) for step in out.scores), None)


def in_double(model: PreTrainedModel) -> PreTrainedModel:
    """A copy in float64; so are tensors made in it, as TrOCR's mask, which follows no weight."""
    exact = copy.deepcopy(model).double()
    exact.register_forward_pre_hook(lambda *_: torch.set_default_dtype(torch.float64))
    exact.register_forward_hook(lambda *_: torch.set_default_dtype(torch.float32), always_call=True)
    return exact


def prepended(family: Family, prompt: list[int]) -> int:
    """1 if `generate` puts the start before the prompt: it does so for all but Donut."""
    donut = getattr(family.config, "encoder", None)
    donut = donut is not None and "donut" in donut.model_type
    return int(not donut and prompt[0] != family.ids["decoder_start_token_id"])


def gap(scores: torch.Tensor) -> float:
    """Distance of the two best of (V,); infinite where only one is allowed."""
    best = scores.topk(2).values
    return float(best[0] - best[1])


class Judge:
    """Runs a model, and tells whether a run would be the same with other rounding.

    With replays of a file that rounds, the first of which counts, the model lends only its loop.
    """

    def __init__(
        self, model: PreTrainedModel, family: Family, replays: Sequence[Replay] = ()
    ) -> None:
        self.model, self.family = model, family
        self.noise, self.margin = (COARSE, 5 * MARGIN) if replays else (NOISE, MARGIN)
        self.distinct, self.ending = (3, 0) if replays else (DISTINCT, ENDING)
        self.pool, self.least = (3 * POOL, 0) if replays else (POOL, INPUTS // 2)
        #: what must agree
        self.ways: list[tuple[PreTrainedModel, Replay | None]] = [(model, r) for r in replays]
        if not replays:
            self.ways = [(model, None), (in_double(model), None)]

    def stable(self, case: Case, row: Input, index: int) -> Run | None:
        """The run, or None if noise, other arithmetic or its own margin forbid to rely on it."""
        (model, replay), *others = self.ways
        first = run(model, self.family, case, row, index, None, replay)
        if first.margin < self.margin:
            return None
        runs = (run(m, self.family, case, row, index, None, r) for m, r in others)
        if first.score is not None:
            noise = [Shaken(seed, self.noise) for seed in (1, 2)]
            shaken = (run(model, self.family, case, row, index, s, replay) for s in noise)
            runs = chain(runs, shaken)
        return first if all(other.tokens == first.tokens for other in runs) else None


def pool(family: Family, folder: Path, size: int) -> list[Input]:
    """So many inputs to choose from; `folder` holds tokenizer and processor."""
    if family.processor:
        pictures = [images.draw(seed) for seed in range(size)]
        pixels = [torch.from_numpy(images.pixels(folder, picture)) for picture in pictures]
        return [
            Input(picture, {"pixel_values": value[None]})  # (1, 3, H, W)
            for picture, value in zip(pictures, pixels, strict=True)
        ]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [sentence(seed) for seed in range(size)]
    encoded = [tokenizer(text, return_tensors="pt") for text in texts]
    return [
        Input(text, {k: found[k] for k in ("input_ids", "attention_mask")})  # (1, S)
        for text, found in zip(texts, encoded, strict=True)
    ]


def sentence(seed: int) -> str:
    """One to fourteen random words, every third time with a mark at the end."""
    generator = np.random.default_rng(seed)
    words = generator.choice(tokens.WORDS, generator.integers(1, 15))
    return " ".join(words) + ("." if seed % 3 == 0 else "")


def choose(judge: Judge, rows: list[Input]) -> list[Input] | None:
    """Ten inputs whose greedy and beam runs are fit for a test, or None; some end by eos."""
    eos = judge.family.ids["eos_token_id"]
    ending, going = [], []
    seen: set[tuple[int, ...]] = set()
    for row in rows:
        first = fit(judge, row)
        if first is None or tuple(first) in seen:
            continue
        seen.add(tuple(first))
        (ending if first[-1] == eos else going).append(row)
        ended = max(min(len(ending), INPUTS // 2), INPUTS - len(going))
        if judge.ending <= ended <= len(ending):
            return ending[:ended] + going[: INPUTS - ended]
    return None


def fit(judge: Judge, row: Input) -> list[int] | None:
    """The greedy tokens if neither they nor those of beams hang on rounding or go round."""
    family = judge.family
    eos = family.ids["eos_token_id"]
    first = judge.stable(family.all_cases["greedy"], row, 0)
    if first is None:
        return None
    body = {token for token in first.tokens if token != eos}
    ended = first.tokens[-1] == eos
    if body & family.special or len(body) < (2 if ended else judge.distinct):
        return None
    beam = judge.stable(family.all_cases["beam"], row, 0)
    if beam is None or len(set(beam.tokens)) < min(judge.distinct, len(beam.tokens)):
        return None
    return first.tokens


def expect(judge: Judge, rows: list[Input], tokenizer: PreTrainedTokenizerBase) -> JSON | None:
    """The cases of expected.json, or None: too many runs hang on rounding."""
    cases = {}
    for name, case in judge.family.all_cases.items():
        runs = {i: judge.stable(case, row, i) for i, row in enumerate(rows)}
        good = {i: found for i, found in runs.items() if found is not None}
        if len(good) < judge.least:
            return None
        if good:
            cases[name] = describe(case, good, tokenizer)
    greedy, beam = cases["greedy"]["tokens"], cases["beam"]["tokens"]
    if sum(a != b for a, b in zip(greedy, beam, strict=True)) < 3:
        return None
    return cases


def describe(case: Case, runs: dict[int, Run], tokenizer: PreTrainedTokenizerBase) -> JSON:
    """One case as expected.json has it: `rows` are numbers of inputs, the lists go with them."""
    facts: JSON = {"settings": case.settings, "options": case.options, "rows": [*runs]}
    if case.prompts:
        given = [case.prompts[i % len(case.prompts)] for i in runs]
        facts["decoder_input_ids"] = [list(prompt) for prompt in given]
    facts["tokens"] = [found.tokens for found in runs.values()]
    facts["texts"] = [
        tokenizer.decode(found.tokens, skip_special_tokens=True) for found in runs.values()
    ]
    if all(found.score is not None for found in runs.values()):
        facts["scores"] = [round(found.score or 0, 5) for found in runs.values()]
    else:
        facts["margins"] = [round(min(found.margin, 1e3), 5) for found in runs.values()]
    return facts


Found = tuple[list[Input], JSON]


def examine(judge: Judge, folder: Path) -> Found | None:
    """Inputs whose runs are fit for a test, and the cases of expected.json; `folder` see `pool`."""
    chosen = choose(judge, pool(judge.family, folder, judge.pool))
    cases = chosen and expect(judge, chosen, AutoTokenizer.from_pretrained(folder))
    return (chosen, cases) if chosen and cases else None


def search(family: Family, folder: Path, seeds: int = 40) -> tuple[int, PreTrainedModel, Found]:
    """A seed under which a model's runs are fit for a test, the model, and the runs."""
    for seed in range(family.seed, family.seed + seeds):
        judge = Judge(make(family, seed), family)
        found = examine(judge, folder)
        if found:
            return seed, judge.model, found
    raise RuntimeError(f"{family.config.model_type}: none of {seeds} seeds gives usable runs")
