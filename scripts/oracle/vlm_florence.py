"""Builds fixtures/models/florence-2: four small graphs, and what transformers makes of images."""

import argparse
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import Florence2Processor

from . import exporters
from . import vlm_florence_export as export
from . import vlm_florence_model as models
from . import vlm_florence_replay as replay
from . import vlm_florence_tokens as tokens
from .speech_json import dump
from .vlm_florence_cases import BATCH, WAYS, Input, Judge, Run, describe, feed, run
from .vlm_processors import probe

JSON = dict[str, Any]
SEEDS = range(27, 67)
Chosen = tuple[list[Input], list[list[Run]]]


@dataclass(frozen=True)
class Fixture:
    """The one folder; `files` as in fixtures.py."""

    name: str = "florence-2"
    family: str = "florence-2"
    about: str = (
        "BART behind DaViT, `If` on `use_cache_branch`; tasks, boxes; transformers.js layout"
    )
    exporter: str = "torch.onnx, own wrappers"
    files: dict[str, str] = field(default_factory=lambda: {"fp32": f"onnx/{exporters.MERGED}"})


ALL = [Fixture()]


def split(names: list[str]) -> tuple[list[Fixture], list[str]]:
    """The fixtures of the given names, all without any, and the other names."""
    known = {fixture.name for fixture in ALL}
    chosen = [fixture for fixture in ALL if not names or fixture.name in names]
    return chosen, [name for name in names if name not in known]


def build_all(chosen: list[Fixture], options: argparse.Namespace) -> None:
    for fixture in chosen:
        print(build(fixture, options), flush=True)


def build(fixture: Fixture, options: argparse.Namespace) -> str:
    """Searches weights, exports and verifies; returns the line to print about it."""
    folder = options.work / "exports" / fixture.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with exporters.quiet(options.work / "log.txt"):
        tokens.save(folder)
        processor = tokens.load(folder)
        seed, judge, (inputs, runs) = search(processor)
        models.settle(judge.model, folder)
        export.export(judge.model, folder / "onnx")
        verify(judge, folder / "onnx", inputs, runs)
        facts = {
            "task": "image-text-to-text", "family": fixture.family, "exporter": fixture.exporter,
            "transformers": transformers.__version__, "seed": seed, "dtype": "fp32",
            "reference": "transformers, eager attention, fp32", "image": "",
            **answers(judge, inputs, runs),
        }  # fmt: skip
    (folder / "expected.json").write_text(dump(facts) + "\n")
    target = options.out / fixture.name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    margin = min(row[0].margin for row in runs)
    lengths = [[len(row) for row in found[0].tokens] for found in runs]
    return f"{fixture.name:18} {size / 1000:5.0f} kB  seed {seed}  margin {margin:.3f} {lengths}"


def search(processor: Florence2Processor) -> tuple[int, Judge, Chosen]:
    """A seed under which all runs are fit for a test; the last of the inputs is the batch."""
    for seed in SEEDS:
        judge = Judge(seed, processor)
        chosen = judge.choose()
        if chosen is None:
            continue
        inputs, runs = (list(part) for part in zip(*chosen, strict=True))
        batch = feed(
            processor,
            [inputs[i].asks[0] for i in BATCH],
            [inputs[i].images[0] for i in BATCH],
        )
        together = judge.fit(batch)
        if together is not None and telling(runs, together):
            return seed, judge, ([*inputs, batch], [*runs, together])
    raise RuntimeError(f"none of {len(SEEDS)} seeds gives usable runs")


def telling(runs: list[list[Run]], together: list[Run]) -> bool:
    """Whether answers tell images, prompts and ways apart, and a batch from nothing else."""
    answers = [[found.tokens[0] for found in row] for row in runs]  # rows, ways
    greedy, ngrams, beam = zip(*answers, strict=True)
    alone = [[runs[i][way].tokens[0] for i in BATCH] for way in range(len(WAYS))]
    batch = together[0].tokens
    return (
        len({tuple(row) for row in greedy}) == len(greedy)
        and len({len(row) for row in batch}) > 1
        and any(len(row) < models.LENGTH for row in beam)
        and sum(a != b for a, b in zip(ngrams, beam, strict=True)) >= len(beam) // 2
        and any(a != b for a, b in zip(greedy, ngrams, strict=True))
        and [found.tokens for found in together] == alone
    )


def verify(judge: Judge, folder: Path, inputs: list[Input], runs: list[list[Run]]) -> None:
    """The files must give torch's numbers and its tokens, whatever the loop and the cache."""
    for mode in ("recompute", "cached", "batched"):
        sessions = replay.load(folder, mode)
        replay.compare(judge.model, sessions)
        for given, wanted in zip(inputs, runs, strict=True):
            agree("numpy", sessions.greedy(given.feed, models.LENGTH), wanted[0].tokens)
            for way, found in zip(WAYS, wanted, strict=True):
                got = run(judge.model, way, given, None, sessions)
                agree(f"{mode}, {way}", got.tokens, found.tokens)
                if found.scores and np.abs(np.subtract(got.scores, found.scores)).max() > 1e-3:
                    raise RuntimeError(f"{mode}, {way}: scores {got.scores}")


def agree(what: str, got: list[list[int]], wanted: list[list[int]]) -> None:
    if got != wanted:
        raise RuntimeError(f"{what}: {got} for {wanted}")


def answers(judge: Judge, inputs: list[Input], runs: list[list[Run]]) -> JSON:
    """The cases, one row alone each, with what their pixels are known by; and the batch."""
    rows = []
    for i, way in enumerate(WAYS):
        for given, found in zip(inputs[:-1], runs, strict=False):
            row = describe(judge.processor, way, given, found[i])
            if way == "greedy" and given.images:
                pixels = given.feed["pixel_values"]
                with torch.inference_mode():
                    features = judge.model.get_image_features(pixels)
                row |= {"pixel_values": probe(pixels), "image_features": probe(features)}
            rows.append(row)
    batch = [
        [
            describe(judge.processor, way, inputs[-1], runs[-1][i], row) | {"like_alone": True}
            for row in range(len(BATCH))
        ]
        for i, way in enumerate(WAYS)
    ]
    return {"cases": rows, "batch": batch[0], "batch_beams": batch[-1]}
