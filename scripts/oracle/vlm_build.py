"""Builds the vision-language folders of fixtures/models, and verifies their files."""

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from . import exporters, graphs, vlm_buffers, vlm_exporters, vlm_genai, vlm_models, vlm_processors
from .seq2seq_compact import compact
from .speech_json import dump
from .vlm_answers import Speaker
from .vlm_cases import BATCH, NEW
from .vlm_fixtures import Fixture
from .vlm_replay import Graphs, prompt_of

JSON = dict[str, Any]
SEEDS = range(60)
#: of the two best scores in each greedy step; how many tokens of an answer differ
MARGIN, DISTINCT = 4e-3, 6


def build_all(chosen: list[Fixture], options: argparse.Namespace) -> None:
    for fixture in chosen:
        print(build(fixture, options), flush=True)


def build(fixture: Fixture, options: argparse.Namespace) -> str:
    """Exports, cleans and verifies one folder; returns the line to print about it."""
    folder = options.work / "exports" / fixture.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with exporters.quiet(options.work / "log.txt"):
        seed, speaker, told, batch = search(fixture)
        model = speaker.model
        vlm_processors.save(speaker.processor, fixture.words(), folder)
        architecture = {"architectures": [type(model).__name__]}
        vlm_processors.write(model.config.to_diff_dict() | architecture, folder / "config.json")
        speaker.settings.save_pretrained(folder)
        export(fixture, speaker, folder, options.builder)
        for path in folder.rglob("*.onnx"):
            graphs.clean(path)
            compact(path)
        verify(fixture, speaker, folder, told, batch)
    facts: JSON = {
        "task": "image-text-to-text", "family": fixture.family, "exporter": fixture.exporter,
        "transformers": transformers.__version__, "seed": seed, "dtype": "fp32",
        "reference": "transformers, eager attention, fp32",
        "image": fixture.image, "cases": told, "batch": batch,
    }  # fmt: skip
    (folder / "expected.json").write_text(dump(facts) + "\n")
    target = options.out / fixture.name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    least = min(row["margin"] for row in (*told, *batch) if "margin" in row)
    return f"{fixture.name:18} {size / 1000:5.0f} kB  seed {seed}  margin {least:.4f}"


def search(fixture: Fixture) -> tuple[int, Speaker, list[JSON], list[JSON]]:
    """The first seed whose answers are fit for tests, and these."""
    for seed in SEEDS:
        model = vlm_models.make(fixture.model, fixture.words(), seed, fixture.embedding_std)
        processor = fixture.processor(fixture.words())
        speaker = Speaker(model, processor, (fixture.image, fixture.video))
        told = []
        for case in fixture.asked:
            row = speaker.answer(case)
            why = unfit(row)
            if why:
                break
            told.append(row)
        else:
            batch = speaker.answer_batch(BATCH)
            why = next(filter(None, map(unfit, batch)), "") or blind(told)
            if not why:
                return seed, speaker, told, batch
        print(fixture.name, seed, why, flush=True)
    raise RuntimeError(f"{fixture.name}: no seed gives answers fit for tests")


def unfit(row: JSON) -> str:
    """Why an answer is none for a test, if so."""
    if row.get("margin", MARGIN) < MARGIN:
        return f"{row['name']}: margin {row['margin']}"
    if len(row["tokens"]) < NEW:
        return f"{row['name']}: ends after {len(row['tokens'])}"
    if len(set(row["tokens"])) < DISTINCT:
        return f"{row['name']}: tokens {row['tokens']}"
    if not row.get("like_alone", True):
        return f"{row['name']}: another answer in the batch"
    return ""


def blind(told: list[JSON]) -> str:
    """Whether another image gets the same answer."""
    named = {row["name"]: row["tokens"] for row in told}
    if named["one image"][:4] == named["another image"][:4]:
        return "both images get one answer"
    return ""


@torch.inference_mode()
def export(fixture: Fixture, speaker: Speaker, folder: Path, builder: Path) -> None:
    """Writes the three graphs."""
    model, place = speaker.model, folder / "onnx"
    place.mkdir()
    vlm_exporters.export_embed(model, place)
    vlm_exporters.export_vision(fixture.vision(model), example_of(speaker, fixture), place)
    if fixture.genai:
        vlm_genai.export_decoder(builder, model, fixture.words(), place)
    else:
        vlm_exporters.export_decoder(model, fixture.sight, place)


def example_of(speaker: Speaker, fixture: Fixture) -> tuple[torch.Tensor, ...]:
    """What the vision encoder is traced with: two images."""
    inputs = speaker.inputs(next(case for case in fixture.asked if len(case.images) == 2))
    names = {"grid_thw": "image_grid_thw"}
    found = [inputs[names.get(name, name)] for name in fixture.vision(speaker.model).inputs]
    if "image_sizes" in inputs:
        found = [found[0].flatten(0, 1)]
    if "pixel_attention_mask" in inputs:
        found[1] = found[1].bool()
    return tuple(found)


def verify(
    fixture: Fixture, speaker: Speaker, folder: Path, told: list[JSON], batch: list[JSON]
) -> None:
    """The files must give torch's tokens in every case, alone and in a batch."""
    files = opened(speaker, folder)
    ends = speaker.settings.eos_token_id
    stops = set(ends if isinstance(ends, list) else [ends])
    for case, row in zip([*fixture.asked, *BATCH], [*told, *batch], strict=True):
        prompt = prompt_of(speaker, speaker.inputs(case), files, fixture.first)
        if case.options:
            tokens, score = files.beams(prompt, NEW, case.options["num_beams"], stops)
            if tokens != row["tokens"] or abs(score - row["score"]) > 1e-3:
                raise RuntimeError(f"{case.name}: {tokens}, {score} for {row['tokens']}")
        else:
            (tokens,) = files.greedy(prompt, NEW, stops)
            if tokens != row["tokens"]:
                raise RuntimeError(f"{case.name}: {tokens} for {row['tokens']}")
    careless(fixture, speaker, folder, told[0])
    inputs = [speaker.inputs(case) for case in BATCH]
    if fixture.genai:
        prompts = [prompt_of(speaker, row, files, fixture.first) for row in inputs]
        rows = vlm_buffers.greedy(files, prompts, NEW)
    else:
        together = speaker.together(inputs)
        rows = files.greedy(prompt_of(speaker, together, files, fixture.first), NEW, stops)
    if rows != [row["tokens"] for row in batch]:
        raise RuntimeError(f"batch: {rows}")


def opened(speaker: Speaker, folder: Path) -> Graphs:
    return Graphs(folder, vlm_exporters.head_size(vlm_exporters.decoder(speaker.model).config))


def careless(fixture: Fixture, speaker: Speaker, folder: Path, row: JSON) -> None:
    """Where an image has positions or a mask of its own, those of text must give other tokens."""
    case, files = fixture.asked[0], opened(speaker, folder)
    prompt = prompt_of(speaker, speaker.inputs(case), files, fixture.first)
    if prompt.positions.ndim == 3:
        prompt.positions = np.arange(prompt.ids.shape[1])[None, None].repeat(3, 0)
        prompt.later = np.array([prompt.ids.shape[1]])
    elif fixture.sight != "causal":
        with tempfile.TemporaryDirectory() as other:
            shutil.copytree(folder / "onnx", Path(other) / "onnx")
            vlm_exporters.export_decoder(speaker.model, "causal", Path(other) / "onnx")
            files = opened(speaker, Path(other))
    else:
        return
    (tokens,) = files.greedy(prompt, NEW, set())
    if tokens == row["tokens"]:
        raise RuntimeError(f"{fixture.name}: what the prompt's tokens see does not matter")
