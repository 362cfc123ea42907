"""Builds folders of fixtures/models; make_fixtures.py runs it in the oracle environment."""

import argparse
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
import transformers
from transformers import GenerationConfig, PreTrainedModel

from . import (
    expectations,
    exporters,
    fixtures,
    graphs,
    readme,
    seq2seq_build,
    seq2seq_fixtures,
    speech_build,
    speech_fixtures,
    tokens,
    vlm_build,
    vlm_fixtures,
    vlm_florence,
)
from .expectations import NEW
from .families import FAMILIES
from .fixtures import Fixture
from .replay import Replay

JSON = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="oracle")
    parser.add_argument("--builder", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(1)  # sums in one order, so that a rebuild gives the same numbers
    speech, names = speech_fixtures.split(options.names)
    seq2seq, names = seq2seq_fixtures.split(names) if names or not options.names else ([], [])
    vlm, names = vlm_fixtures.split(names) if names or not options.names else ([], [])
    florence, names = vlm_florence.split(names) if names or not options.names else ([], [])
    chosen = fixtures.choose(names) if names or not options.names else []
    for family in dict.fromkeys(fixture.family for fixture in chosen):
        model, expected = make_checkpoint(family, options.work)
        for fixture in chosen:
            if fixture.family == family:
                print(build(fixture, model, expected, options), flush=True)
    speech_build.build_all(speech, options)
    seq2seq_build.build_all(seq2seq, options)
    vlm_build.build_all(vlm, options)
    vlm_florence.build_all(florence, options)
    readme.update(options.out.parent / "README.md", options.out)


def make_checkpoint(family: str, work: Path) -> tuple[PreTrainedModel, JSON]:
    """Writes WORK/FAMILY (weights, tokenizer); returns the model and its expectations."""
    folder = work / family
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with exporters.quiet(work / "log.txt"):
        model, expected = expectations.search(FAMILIES[family])
        model.generation_config = GenerationConfig(
            bos_token_id=tokens.BOS_ID, eos_token_id=tokens.EOS_ID, pad_token_id=tokens.PAD_ID
        )
        model.save_pretrained(folder)
        tokens.save(folder)
    return model, expected


def build(
    fixture: Fixture, model: PreTrainedModel, expected: JSON, options: argparse.Namespace
) -> str:
    """Exports, cleans and verifies one folder; returns the line to print about it."""
    folder = options.work / "exports" / fixture.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    checkpoint = options.work / fixture.family
    with exporters.quiet(options.work / "log.txt"):
        fixture.export(options.builder, checkpoint, folder)
    if fixture.table is not None:
        np.save(folder / fixture.table, model.get_input_embeddings().weight.detach().numpy())
    if not (folder / "tokenizer.json").exists():
        tokens.save(folder)
    (folder / "special_tokens_map.json").unlink(missing_ok=True)
    for path in folder.rglob("*.onnx"):
        graphs.clean(path)
    facts = describe(fixture, model, expected, folder)
    (folder / "expected.json").write_text(dump(facts))
    target = options.out / fixture.name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    return summary(fixture, facts, folder)


def describe(fixture: Fixture, model: PreTrainedModel, expected: JSON, folder: Path) -> JSON:
    """The content of expected.json, after every file has been run against it."""
    facts = {
        "family": fixture.family,
        "exporter": fixture.exporter,
        "transformers": transformers.__version__,
    }
    parts = {}
    for dtype, file in fixture.files.items():
        replay = Replay(
            folder / file,
            first=folder / fixture.first if fixture.first else None,
            table=np.load(folder / fixture.table) if fixture.table else None,
            dims=open_dims(folder),
        )
        check = measure if dtype in fixture.lossy else verify
        parts[dtype] = check(replay, expected, model)
    main = parts.pop(next(iter(fixture.files)))
    facts |= {"dtype": next(iter(fixture.files))} | main
    return facts | ({"variants": parts} if parts else {})


def open_dims(folder: Path) -> dict[str, int]:
    """Sizes that graphs of the genai builder leave open, from genai_config.json if it is there."""
    path = folder / "genai_config.json"
    if not path.exists():
        return {}
    decoder = json.loads(path.read_text())["model"]["decoder"]
    window = decoder.get("sliding_window", {}).get("window_size", 0)
    return {"kv_cache_dim": decoder["head_size"], "past_sliding_length": window}


def verify(replay: Replay, expected: JSON, _model: PreTrainedModel) -> JSON:
    """Both naive runs of an fp32 file must give torch's tokens; returns torch's expectations."""
    prompts = [*expected["prompts"], expected["chat"]["prompt"]]
    wanted = [*expected["greedy"], expected["chat"]["tokens"]]
    for prompt, greedy in zip(prompts, wanted, strict=True):
        for name, run in (("recomputed", replay.recompute), ("cached", replay.cached)):
            got = run(prompt, len(greedy)).tokens
            if got != greedy:
                raise RuntimeError(f"{name} tokens differ from torch's: {got}, wanted {greedy}")
    return expected


def measure(replay: Replay, expected: JSON, model: PreTrainedModel) -> JSON:
    """Expectations of a file that rounds, from plain onnxruntime.

    They come from recomputation. Activations quantized by the range of the whole input make every
    token depend on what else is fed in the same step, so that recomputation is another computation
    than decoding with a cache; there the naive cached run is what counts.
    """
    prompts = [wandering(replay, prompt) for prompt in expected["prompts"]]
    cached = [replay.cached(prompt, NEW) for prompt in prompts]
    recomputed = [replay.recompute(prompt, NEW).tokens for prompt in prompts]
    torch_says = [expectations.generate(model, [prompt])[0].tokens for prompt in prompts]
    rows = [row.tokens for row in cached]
    same = rows == recomputed
    index = expected["eos"]["prompt"]
    stop = expectations.last_new(rows[index])
    facts = {
        "reference": f"{'full recompute' if same else 'one row with its cache'}, onnxruntime",
        "recompute_agrees_for": [leading(a, b) for a, b in zip(rows, recomputed, strict=True)],
        "torch_agrees_for": [leading(a, b) for a, b in zip(rows, torch_says, strict=True)],
        "seed": expected["seed"],
        "prompts": prompts,
        "greedy": rows,
        "margins": [round(min(row.margins), 5) for row in cached],
        "eos": {
            "eos_token_id": rows[index][stop],
            "prompt": index,
            "tokens": rows[index][: stop + 1],
        },
    }
    chat = replay.cached(expected["chat"]["prompt"], NEW)
    margin = round(min(chat.margins), 5)
    if margin > expectations.MARGIN:
        text = tokens.build().decode(chat.tokens, skip_special_tokens=True)
        told = {"tokens": chat.tokens, "text": text, "margin": margin}
        facts["chat"] = expected["chat"] | told
    return facts


def wandering(replay: Replay, prompt: list[int]) -> list[int]:
    """The prompt, or a random one of its length, whose tokens are fit for a test."""
    generator = np.random.default_rng(len(prompt))
    for _ in range(100):
        row = replay.cached(prompt, NEW).tokens
        if len(set(row)) >= expectations.DISTINCT and min(row) >= tokens.SPECIALS:
            return prompt
        prompt = generator.integers(tokens.SPECIALS, tokens.VOCAB, len(prompt)).tolist()
    raise RuntimeError(f"no prompt of length {len(prompt)} gives tokens fit for a test")


def leading(row: list[int], other: list[int]) -> int:
    """How many of the first tokens are equal."""
    unequal = (step for step, pair in enumerate(zip(row, other, strict=True)) if len(set(pair)) > 1)
    return next(unequal, len(row))


def summary(fixture: Fixture, facts: JSON, folder: Path) -> str:
    """One line: name, size, attention operators, distinct tokens, smallest margin."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    kinds = set[str]()
    for path in folder.rglob("*.onnx"):
        kinds |= graphs.operators(path)
    hints = sorted(kinds & graphs.TELLING) or ["MatMul, Softmax"]
    distinct = min(len(set(row)) for row in facts["greedy"])
    line = f"{fixture.name:18} {size / 1000:5.0f} kB  distinct >= {distinct:2}  {scores(facts)}"
    for dtype, part in facts.get("variants", {}).items():
        line += f"  {dtype}: {scores(part)}"
    return f"{line}  {', '.join(hints)}"


def scores(facts: JSON) -> str:
    """The smallest margin and, where the file rounds, for how many tokens torch agrees."""
    text = f"margin {min(facts['margins']):.4f}"
    if "torch_agrees_for" in facts:
        text += f"  torch agrees for {facts['torch_agrees_for']}"
    return text


def dump(value: JSON) -> str:
    """JSON with each list of numbers on one line."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    return re.sub(r"\[[\d\s,.-]+\]", lambda found: json.dumps(json.loads(found[0])), text) + "\n"


if __name__ == "__main__":
    main()
