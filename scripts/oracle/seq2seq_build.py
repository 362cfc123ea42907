"""Builds the encoder-decoder folders of fixtures/models, and verifies their files."""

import argparse
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from transformers import GenerationConfig, PreTrainedModel

from . import exporters, graphs
from . import seq2seq_expectations as expectations
from .seq2seq_compact import compact
from .seq2seq_expectations import Found, Input, Judge, run
from .seq2seq_families import FAMILIES, Family
from .seq2seq_fixtures import Files, Fixture
from .seq2seq_replay import Replay, session

JSON = dict[str, Any]


def build_all(chosen: list[Fixture], options: argparse.Namespace) -> None:
    """Builds folders, each family's checkpoint first."""
    for name in dict.fromkeys(fixture.family for fixture in chosen):
        checkpoint = options.work / name
        with exporters.quiet(options.work / "log.txt"):
            seed, model, found = make_checkpoint(FAMILIES[name], checkpoint)
        for fixture in chosen:
            if fixture.family == name:
                print(build(fixture, checkpoint, seed, model, found, options), flush=True)


def make_checkpoint(family: Family, folder: Path) -> tuple[int, PreTrainedModel, Found]:
    """Writes weights, and in beside/ what goes with the graphs; returns seed, model and runs."""
    shutil.rmtree(folder, ignore_errors=True)
    beside = folder / "beside"
    beside.mkdir(parents=True)
    family.save_text(beside)
    if family.processor:
        family.processor.save_pretrained(beside)
    GenerationConfig(**family.ids, **family.settings).save_pretrained(beside)
    seed, model, found = expectations.search(family, beside)
    model.generation_config = GenerationConfig(**family.ids)
    model.save_pretrained(folder)
    return seed, model, found


def build(
    fixture: Fixture,
    checkpoint: Path,
    seed: int,
    model: PreTrainedModel,
    found: Found,
    options: argparse.Namespace,
) -> str:
    """Exports, cleans and verifies one folder; returns the line to print about it."""
    family = FAMILIES[fixture.family]
    folder = options.work / "exports" / fixture.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with exporters.quiet(options.work / "log.txt"):
        exporters.optimum(checkpoint, folder, f"{family.task}-with-past")
        fixture.change(folder)
        for path in folder.rglob("*.onnx"):
            graphs.clean(path)
            compact(path)
        shutil.copytree(checkpoint / "beside", folder, dirs_exist_ok=True)
        facts = describe(fixture, family, model, found, folder)
    facts = {
        "task": family.task, "family": fixture.family, "exporter": fixture.exporter,
        "transformers": transformers.__version__, "seed": seed, **facts,
    }  # fmt: skip
    (folder / "expected.json").write_text(dump(facts))
    target = options.out / fixture.name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return f"{fixture.name:18} {size / 1000:5.0f} kB  seed {seed}  {scores(facts)}"


def describe(
    fixture: Fixture, family: Family, model: PreTrainedModel, found: Found, folder: Path
) -> JSON:
    """What expected.json says of each set of files, after all have been run."""
    parts: JSON = {}
    for dtype, files in fixture.files.items():
        if files.modes:
            replays = [replay(folder, files, mode) for mode in files.modes]
            parts[dtype] = measure(family, model, replays, folder)
        else:
            for mode in ("recompute", "cached", "batched"):
                verify(family, model, replay(folder, files, mode), found)
            if not parts:
                parts[dtype] = {
                    "reference": "transformers, eager attention, fp32",
                    "inputs": write_inputs(found[0], folder),
                    "cases": found[1],
                }
    main = next(iter(parts))
    return {"dtype": main} | parts.pop(main) | ({"variants": parts} if parts else {})


def replay(folder: Path, files: Files, mode: str) -> Replay:
    """The sessions of one set of files."""
    first = session(folder / files.first)
    later = first if files.later == files.first else session(folder / files.later)
    return Replay(session(folder / files.encoder), first, later, mode)


def verify(family: Family, model: PreTrainedModel, replay: Replay, found: Found) -> None:
    """The files must give torch's tokens in every case, and its scores."""
    inputs, cases = found
    for name, facts in cases.items():
        for i, row in enumerate(facts["rows"]):
            got = run(model, family, family.all_cases[name], inputs[row], row, None, replay)
            if got.tokens != facts["tokens"][i]:
                raise RuntimeError(f"{name}, input {row}: {got.tokens} for {facts['tokens'][i]}")
            if got.score is not None and abs(got.score - facts["scores"][i]) > 1e-3:
                raise RuntimeError(f"{name}, input {row}: score {got.score}")


def measure(family: Family, model: PreTrainedModel, replays: list[Replay], folder: Path) -> JSON:
    """Expectations of files that round, from plain onnxruntime behind transformers' loop."""
    found = expectations.examine(Judge(model, family, replays), folder)
    if not found:
        raise RuntimeError("no ten inputs give runs that rounding leaves alone")
    inputs, cases = found
    greedy = family.all_cases["greedy"]
    torch_says = [run(model, family, greedy, row, i).tokens for i, row in enumerate(inputs)]
    return {
        "reference": f"onnxruntime, {' and '.join(r.mode for r in replays)}, transformers' loop",
        "torch_agrees_for": [
            leading(a, b) for a, b in zip(cases["greedy"]["tokens"], torch_says, strict=True)
        ],
        "inputs": write_inputs(inputs, folder),
        "cases": cases,
    }


def leading(row: list[int], other: list[int]) -> int:
    """How many of the first tokens are equal."""
    pairs = enumerate(zip(row, other, strict=False))
    return next((i for i, pair in pairs if len(set(pair)) > 1), min(len(row), len(other)))


def write_inputs(inputs: list[Input], folder: Path) -> JSON:
    """Texts with their ids; or pictures, in files, with what the processor makes of them."""
    if "input_ids" in inputs[0].feed:
        ids = [row.feed["input_ids"][0].tolist() for row in inputs]
        return {"texts": [row.source for row in inputs], "input_ids": ids}
    (folder / "images").mkdir()
    names = [f"images/{i}.png" for i in range(len(inputs))]
    for name, row in zip(names, inputs, strict=True):
        row.source.save(folder / name)
    pixels = np.concatenate([row.feed["pixel_values"].numpy() for row in inputs])  # (10, 3, H, W)
    np.savez_compressed(folder / "pixel_values.npz", pixel_values=pixels)
    return {"images": names, "pixel_values": "pixel_values.npz"}


def scores(facts: JSON) -> str:
    """The smallest margin of greedy steps, the lengths of runs, how far torch agrees."""
    parts = {facts["dtype"]: facts} | facts.get("variants", {})
    lines = []
    for name, part in parts.items():
        cases = part["cases"]
        rows = {case: len(found["rows"]) for case, found in cases.items()}
        line = f"{name}: margin {min(cases['greedy']['margins']):.3f} lengths"
        line += f" {[len(row) for row in cases['greedy']['tokens']]} rows {rows}"
        if "torch_agrees_for" in part:
            line += f" torch agrees for {part['torch_agrees_for']}"
        lines.append(line)
    return "; ".join(lines)


def dump(value: JSON) -> str:
    """JSON with each list of numbers on one line."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    return re.sub(r"\[[\d\s,.e-]+\]", lambda found: json.dumps(json.loads(found[0])), text) + "\n"
