"""A peer of bench_peers.py: peers.py PEER FOLDER CHECKPOINT GGUF THREADS CAPACITY

Work comes in, a line of JSON each, and goes out as times and tokens; before that comes a line of
versions. Of onnxgen it may also be asked where its plain decoding differs from given tokens. All
but onnxgen and bare run where nothing of onnxgen's is installed.
"""

import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

Ids = list[int]
Tick = Callable[[Sequence[int]], None]  # takes the new token of each row
Run = Any  # called with prompts, the number of new tokens, a Tick, and options of onnxgen's


@dataclass(frozen=True)
class Place:
    """What a peer runs, and how."""

    folder: Path  # the export
    checkpoint: Path  # what was exported
    gguf: Path
    threads: int
    capacity: int  # tokens of prompt and answer


class Onnxgen:
    def __init__(self, place: Place) -> None:
        load = importlib.import_module("onnxgen").load
        self._model = load(place.folder, task="text-generation", threads=place.threads)

    def __call__(self, prompts: list[Ids], new: int, tick: Tick, **options: Any) -> None:
        chosen = {"max_new_tokens": new, "eos_token_id": None, "do_sample": False, **options}
        for step in self._model.request(prompts, None, chosen).steps():
            tick(step.tokens)

    def margins(self, prompt: Ids, tokens: Ids) -> list[float]:
        """Where plain decoding takes other ``tokens``: how far its two best logits are apart."""
        decoder, found, fed = self._model.model.start(len(prompt) + len(tokens)), [], prompt
        for token in tokens:
            logits = decoder.step(np.array([fed]), np.array([len(fed)]))[0]
            if logits.argmax() != token:
                second, best = np.partition(logits, -2)[-2:]
                found.append(float(best - second))
            fed = [token]
        decoder.close()
        return found


def bare(place: Place) -> Run:
    import onnxruntime
    from bench_decode import BareLoop

    from onnxgen.files import resolve
    from onnxgen.graph.decoder import DecoderGraph
    from onnxgen.tasks.defaults import graph_config

    files = resolve(place.folder)
    graph = DecoderGraph.load(files.graphs["decoder"], graph_config(files))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = place.threads
    session = onnxruntime.InferenceSession(graph.path, options, ["CPUExecutionProvider"])
    model: Any = SimpleNamespace(graph=graph, first=SimpleNamespace(ort=session))

    def run(prompts: list[Ids], new: int, tick: Tick) -> None:
        loop, fed = BareLoop(model, len(prompts[0]) + new), np.array(prompts)
        for _ in range(new):
            token = loop.step(fed)
            tick([token])
            fed = np.array([[token]])

    return run


def genai(place: Place) -> Run:
    og = importlib.import_module("onnxruntime_genai")
    told = json.loads((place.folder / "genai_config.json").read_text())["model"]
    session = {"intra_op_num_threads": place.threads}  # else half of the cores
    # A stop id it must have: the last of the vocabulary hardly comes.
    last = told["vocab_size"] - 1
    changes = {"eos_token_id": last, "decoder": {"session_options": session}}
    config = og.Config(str(place.folder))
    config.overlay(json.dumps({"model": changes}))
    model = og.Model(config)

    def run(prompts: list[Ids], new: int, tick: Tick) -> None:
        ids = padded(prompts, told["pad_token_id"], left=False).astype(np.int32)
        rows, width = ids.shape
        params = og.GeneratorParams(model)
        params.set_search_options(max_length=width + new, batch_size=rows, do_sample=False)
        generator = og.Generator(model, params)
        generator.append_tokens(ids)
        for _ in range(new):
            generator.generate_next_token()
            tick(generator.get_next_tokens().tolist())

    return run


def optimum(place: Place) -> Run:
    from onnxruntime import SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = place.threads
    kind = importlib.import_module("optimum.onnxruntime").ORTModelForCausalLM
    model = kind.from_pretrained(place.folder, session_options=options)
    return transformers_generate(model, place)


def torch(place: Place) -> Run:
    transformers = importlib.import_module("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(place.checkpoint, dtype="float32")
    return transformers_generate(model.eval(), place)


def transformers_generate(model: Any, place: Place) -> Run:
    pytorch, transformers = map(importlib.import_module, ("torch", "transformers"))
    pytorch.set_num_threads(place.threads)
    transformers.utils.logging.set_verbosity_error()
    model.generation_config.eos_token_id = None
    pad = model.generation_config.pad_token_id

    class Streamer:
        def __init__(self, tick: Tick) -> None:
            self._tick, self._prompt = tick, True

        def put(self, value: Any) -> None:
            if not self._prompt:
                self._tick(value.tolist())
            self._prompt = False  # it comes first

        def end(self) -> None:
            pass

    def run(prompts: list[Ids], new: int, tick: Tick) -> None:
        ids = padded(prompts, pad, left=True)
        mask = padded([[1] * len(prompt) for prompt in prompts], 0, left=True)
        given = {"input_ids": ids, "attention_mask": mask}
        tensors = {name: pytorch.from_numpy(array) for name, array in given.items()}
        model.generate(**tensors, max_new_tokens=new, do_sample=False, streamer=Streamer(tick))

    return run


def llama_cpp(place: Place) -> Run:
    model = importlib.import_module("llama_cpp").Llama(
        str(place.gguf),
        n_ctx=place.capacity,
        n_threads=place.threads,
        n_threads_batch=place.threads,
        verbose=False,
    )

    def run(prompts: list[Ids], new: int, tick: Tick) -> None:
        model.reset()
        fed = prompts[0]
        for _ in range(new):
            model.eval(fed)
            fed = [model.sample(temp=0.0)]
            tick(fed)

    return run


def padded(prompts: list[Ids], pad: int, *, left: bool) -> np.ndarray:
    """Prompts as an array (B,S)."""
    ids = np.full((len(prompts), max(map(len, prompts))), pad, np.int64)
    for row, prompt in zip(ids, prompts, strict=True):
        row[len(row) - len(prompt) if left else 0 :][: len(prompt)] = prompt
    return ids


def timed(run: Run, batches: list[list[Ids]], new: int, options: dict[str, Any]) -> dict[str, Any]:
    """Does ``batches`` of prompts one after the other; seconds are means over them."""
    first, rest, rows = [], [], []
    for prompts in batches:
        ticks: list[float] = []
        columns: list[Ids] = []

        def tick(tokens: Sequence[int], ticks: Any = ticks, columns: Any = columns) -> None:
            ticks.append(time.perf_counter())
            columns.append([int(token) for token in tokens])

        start = time.perf_counter()
        run(prompts, new, tick, **options)
        assert len(ticks) == new, f"{len(ticks)} tokens came, not {new}"
        first.append(ticks[0] - start)
        rest.append(ticks[-1] - ticks[0])
        rows += [list(row) for row in zip(*columns, strict=True)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    speed = (new - 1) * len(batches[0]) / fmean(rest)
    return {"first": fmean(first), "speed": speed, "tokens": rows, "peak": peak}


@dataclass(frozen=True)
class Kind:
    """What starts a peer, and what names its version."""

    start: Callable[[Place], Run]
    packages: tuple[str, ...]


PEERS = {
    "onnxgen": Kind(Onnxgen, ("onnxruntime",)),
    "bare": Kind(bare, ("onnxruntime",)),
    "genai": Kind(genai, ("onnxruntime-genai", "onnxruntime")),
    "optimum": Kind(optimum, ("optimum-onnx", "onnxruntime")),
    "torch": Kind(torch, ("transformers", "torch")),
    "llama-cpp": Kind(llama_cpp, ("llama-cpp-python",)),
}


def main(name: str, folder: str, checkpoint: str, gguf: str, threads: str, capacity: str) -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    kind = PEERS[name]
    run = kind.start(Place(Path(folder), Path(checkpoint), Path(gguf), int(threads), int(capacity)))
    print(json.dumps([f"{p} {version(p)}" for p in kind.packages]), file=out, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        answer = run.margins(**asked) if "tokens" in asked else timed(run, **asked)
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
