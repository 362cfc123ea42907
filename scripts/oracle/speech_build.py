"""Builds the speech folders of fixtures/models, and verifies their files."""

import argparse
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import MoonshineForConditionalGeneration, PreTrainedModel

from . import exporters, graphs, speech_answers, speech_models, speech_moonshine
from .speech_answers import MARGIN
from .speech_cases import Case
from .speech_clips import clip, samples
from .speech_fixtures import Fixture
from .speech_generate import Speaker
from .speech_json import dump
from .speech_models import ENGLISH, MULTILINGUAL
from .speech_replay import Graphs, compare

JSON = dict[str, Any]
#: files in which optimum-onnx repeats what others hold
REPEATED = ("added_tokens.json", "merges.txt", "special_tokens_map.json", "vocab.json")
#: weights under which every case has an answer that rounding does not change
SEEDS = {"whisper": 3, "whisper-en": 5, "moonshine": 0}


def build_all(chosen: list[Fixture], options: argparse.Namespace) -> None:
    """Builds folders, each family's checkpoint first and its answers once."""
    for family in dict.fromkeys(fixture.family for fixture in chosen):
        members = [fixture for fixture in chosen if fixture.family == family]
        model = make(family)
        checkpoint = options.work / family
        shutil.rmtree(checkpoint, ignore_errors=True)
        checkpoint.mkdir(parents=True)
        asked = {case.name: case for fixture in members for case in fixture.asked}
        with exporters.quiet(options.work / "log.txt"):
            speech_models.save(model, checkpoint)
            answers = answer_all(model, family, list(asked.values()))
        for fixture in members:
            print(build(fixture, checkpoint, model, answers, options), flush=True)


def make(family: str) -> PreTrainedModel:
    seed = SEEDS[family]
    if family == "moonshine":
        return speech_models.moonshine(seed)
    return speech_models.whisper(words(family), seed)


def words(family: str) -> Any:
    return ENGLISH if family == "whisper-en" else MULTILINGUAL


def answer_all(model: PreTrainedModel, family: str, asked: list[Case]) -> dict[str, JSON]:
    """The answers by the names of the cases."""
    found = {}
    moonshine = isinstance(model, MoonshineForConditionalGeneration)
    speaker = None if moonshine else Speaker(model, words(family).fast, samples)
    for turn, case in enumerate(asked):
        told = (
            speech_answers.answer(speaker, case, turn)
            if speaker
            else speech_moonshine.answer(model, case, turn)
        )
        if told is None:
            raise RuntimeError(f"{family}: no clip is fit for the case {case.name!r}")
        found[case.name] = told
    return found


def build(
    fixture: Fixture,
    checkpoint: Path,
    model: PreTrainedModel,
    answers: dict[str, JSON],
    options: argparse.Namespace,
) -> str:
    """Exports, cleans and verifies one folder; returns the line to print about it."""
    folder = options.work / "exports" / fixture.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with exporters.quiet(options.work / "log.txt"):
        fixture.export(checkpoint, folder)
        for name in REPEATED:
            (folder / name).unlink(missing_ok=True)
        if fixture.words:
            fixture.words.save(folder)
        for path in folder.rglob("*.onnx"):
            graphs.clean(path)
        told = [answers[case.name] for case in fixture.asked]
        worst = verify(model, Graphs(folder, *fixture.decoder), told)
        facts = describe(fixture, model, told)
    if worst > MARGIN / 2:
        raise RuntimeError(f"{fixture.name}: torch and the graphs differ by {worst}")
    (folder / "expected.json").write_text(dump(facts) + "\n")
    target = options.out / fixture.name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    margin = min(case["margin"] for case in told if "margin" in case)
    return (f"{fixture.name:22} {size / 1000:5.0f} kB  {len(told)} cases  margin {margin:.4f}"
            f"  differs from torch by {worst:.1e}")  # fmt: skip


def verify(model: PreTrainedModel, graphs: Graphs, told: list[JSON]) -> float:
    """How far the graphs are from torch, along the answers of the first case and of silence."""
    worst = 0.0
    for case in told[:2]:
        (name,) = case["audio"]
        if isinstance(model, MoonshineForConditionalGeneration):
            heard, start = torch.from_numpy(samples(name))[None], [1]
        else:
            speaker = Speaker(model, MULTILINGUAL.fast, samples)
            heard, start = speaker.features((name,))["input_features"], case["calls"][0]["prompt"]
        worst = max(worst, compare(model, graphs, heard, start + case["tokens"][:24]))
    return worst


def describe(fixture: Fixture, model: PreTrainedModel, told: list[JSON]) -> JSON:
    """The content of expected.json."""
    clips = sorted({name for case in told for name in case["audio"]})
    facts: JSON = {
        "task": "automatic-speech-recognition",
        "family": fixture.family,
        "exporter": fixture.exporter,
        "transformers": transformers.__version__,
        "seed": SEEDS[fixture.family],
        "dtype": "fp32",
        "reference": "transformers, eager attention, fp32",
        "audio": {name: clip(name) for name in clips},
    }
    if fixture.family != "moonshine":
        speaker = Speaker(model, words(fixture.family).fast, samples)
        if fixture.name == "whisper":
            facts["features"] = {
                name: speech_answers.probe(speaker.features((name,))["input_features"][0].numpy())
                for name in clips
            }
        if fixture.family == "whisper":
            facts["languages"] = {name: speaker.language(name) for name in clips}
    return facts | {"cases": told}
