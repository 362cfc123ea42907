"""Decoding speed of onnxgen beside a bare loop over the same session: bench_decode.py MODEL.

The bare loop binds the caches by hand and does nothing but run the session and take the argmax.
Both decode the same random tokens in turns, step by step, so that what else the machine does
weighs on both alike; medians are compared. ``outside`` is the share of a step of onnxgen's that
passes outside ONNX Runtime's run.
"""

import argparse
import json
import resource
import sys
import time
from statistics import median
from typing import Any

import numpy as np

import onnxgen
from onnxgen.generation.loop import Row, greedy
from onnxgen.graph.decoder import Mode
from onnxgen.runtime.decoder import DecoderModel
from onnxgen.runtime.embeddings import reader_of
from onnxgen.runtime.session import Cancel, Model, Session


class BareLoop:
    """One sequence, driven by hand."""

    def __init__(self, model: DecoderModel, capacity: int) -> None:
        self.graph, self.ort = model.graph, model.first.ort
        self.binding = self.ort.io_binding()
        self.ones = np.ones((1, capacity), np.int64)
        self.caches: dict[str, Any] = {}
        self.length = 0
        source = self.graph.source
        table = source.table if isinstance(source, Model) else None
        self.reader = reader_of(table) if table is not None else None
        if "keep" in self.graph.inputs:  # the last token's logits
            self.keep = np.array(1)
            self.binding.bind_cpu_input(self.graph.inputs["keep"].name, self.keep)
        self.in_place = self.graph.mode is Mode.IN_PLACE
        for slot in self.graph.slots:
            shape = slot.shape(1, capacity if self.in_place else 0)
            self.caches[slot.input] = np.zeros(shape, slot.dtype)
        if self.in_place:
            for slot in self.graph.slots:
                cache = self.caches[slot.input]
                place = ("cpu", 0, cache.dtype.type, cache.shape, cache.ctypes.data)
                self.binding.bind_input(slot.input, *place)
                self.binding.bind_output(slot.output, *place)
        else:
            for slot in self.graph.slots:
                self.binding.bind_cpu_input(slot.input, self.caches[slot.input])

    def step(self, ids: np.ndarray) -> int:
        """Feeds ``ids`` (1,S) and returns the most likely next token."""
        binding, graph = self.binding, self.graph
        start, self.length = self.length, self.length + ids.shape[1]
        fed = {
            "ids": ids,
            "mask": np.ascontiguousarray(self.ones[:, : self.length]),
            "positions": np.arange(start, self.length)[None],
            "last_index": np.array([self.length - 1], np.int32),
            "total_length": np.array(self.length, np.int32),
        }
        if self.reader is not None:
            fed["embeds"] = self.reader.take(ids)  # (1,S,H)
        for role in fed.keys() & graph.inputs.keys():
            binding.bind_cpu_input(graph.inputs[role].name, fed[role])
        names = [graph.logits.name]
        if not self.in_place:
            names += [slot.output for slot in graph.slots]
        for name in names:
            binding.bind_output(name)
        self.ort.run_with_iobinding(binding)
        outputs = binding.get_outputs()
        if not self.in_place:
            for slot, value in zip(graph.slots, outputs[1:], strict=True):
                binding.bind_ortvalue_input(slot.input, value)
        logits = outputs[-1 if self.in_place else 0].numpy()
        return int(logits[0, -1].argmax())


class Ours:
    """One sequence through onnxgen's decoder and choice; notes the time within the session."""

    def __init__(self, model: DecoderModel, capacity: int) -> None:
        self.decoder = model.start(capacity)
        self.row = [Row(0, [0], 1 << 30, frozenset())]
        self.inside = 0.0

    def step(self, ids: np.ndarray) -> int:
        """Feeds ``ids`` (1,S) and returns the most likely next token."""
        logits = self.decoder.step(ids, np.array([ids.shape[1]]))
        return int(greedy(logits, self.row)[0])


def timed_runs(ours: Ours) -> None:
    """Lets every session add the time of its runs to ``ours.inside``."""
    run = Session.run

    def timed(self: Session, binding: Any, cancel: Cancel, large: bool = False) -> None:
        start = time.perf_counter()
        run(self, binding, cancel, large)
        ours.inside += time.perf_counter() - start

    Session.run = timed  # type: ignore[method-assign]


def measure(model: DecoderModel, context: int, steps: int) -> dict[str, float]:
    """Medians over ``steps`` steps behind a context of ``context`` tokens, both loops in turns."""
    ids = np.random.default_rng(0).integers(10, model.vocab_size - 10, (1, context))
    bare, ours = BareLoop(model, context + steps), Ours(model, context + steps)
    start = time.perf_counter()
    token = ours.step(ids)
    first = time.perf_counter() - start
    assert bare.step(ids) == token, "the two loops part at the first token"
    timed_runs(ours)
    laps: dict[str, list[float]] = {"bare": [], "ours": [], "outside": []}
    for step in range(steps):
        fed = np.array([[token]])
        for name, loop in [("bare", bare), ("ours", ours)][:: 1 if step % 2 else -1]:
            inside, start = ours.inside, time.perf_counter()
            found = loop.step(fed)
            laps[name].append(time.perf_counter() - start)
            if name == "ours":
                laps["outside"].append(laps["ours"][-1] - (ours.inside - inside))
                token = found
            else:
                expected = found
        assert token == expected, f"the two loops part in step {step}"
    return {
        "context": context,
        "first_token_ms": first * 1e3,
        "bare_ms": median(laps["bare"]) * 1e3,
        "ours_ms": median(laps["ours"]) * 1e3,
        "ratio": median(laps["ours"]) / median(laps["bare"]),
        "outside_us": median(laps["outside"]) * 1e6,
        "outside_share": median(laps["outside"]) / median(laps["ours"]),
        "tokens_per_second": 1 / median(laps["ours"]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--context", type=int, nargs="+", default=[16, 128, 1000])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--max-ratio", type=float, help="fail if ours/bare is above this")
    parser.add_argument("--max-outside", type=float, help="fail if the outside share is above this")
    arguments = parser.parse_args()
    model = onnxgen.load(arguments.model, threads=arguments.threads).model
    failed = False
    for context in arguments.context:
        row = measure(model, context, arguments.steps)
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        failed |= bool(arguments.max_ratio and row["ratio"] > arguments.max_ratio)
        failed |= bool(arguments.max_outside and row["outside_share"] > arguments.max_outside)
        if arguments.json:
            print(json.dumps({**row, "peak_rss_mb": rss}))
            continue
        print(
            f"context {context:5d}: {row['ours_ms']:7.2f} ms a token, "
            f"{row['tokens_per_second']:6.1f} tok/s, {row['ratio']:.3f} x the bare loop, "
            f"outside {row['outside_us']:.0f} us ({row['outside_share']:.1%}), "
            f"first token {row['first_token_ms']:.0f} ms, peak RSS {rss:.0f} MB"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
