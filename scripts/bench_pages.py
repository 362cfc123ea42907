"""What huge pages cost when a model loads and save in each step: bench_pages.py MODEL.

MODEL generates text. Processes with and without huge pages run in turns; each loads the model and
decodes a random prompt several times. Prints the medians of their times and of the ratios of each
round, with their standard errors. How long loading takes depends on whether the system, and a
hypervisor below it, has huge pages at hand.
"""

import argparse
import json
import subprocess
import sys
import time
from statistics import median
from typing import Any

import numpy as np
from bench_peers import error

import onnxgen


def measure(arguments: argparse.Namespace, huge: bool) -> dict[str, float]:
    """Seconds of loading and milliseconds of a step, in this process."""
    start = time.perf_counter()
    model: Any = onnxgen.load(arguments.model, threads=arguments.threads, huge_pages=huge)
    loading = time.perf_counter() - start
    prompt = np.random.default_rng(0).integers(10, model.model.vocab_size - 10, arguments.context)
    steps = []
    for _ in range(5):
        answer = model.generate(
            prompt.tolist(), max_new_tokens=96, eos_token_id=None, do_sample=False
        )
        steps.append(median(answer.timings.per_token_ms))
    return {"loading": loading, "step": median(steps)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--one", choices=("huge", "small"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments, arguments.one == "huge")))
        return
    found: dict[str, list[dict[str, float]]] = {"huge": [], "small": []}
    for turn in range(arguments.rounds):
        for kind in list(found)[:: -1 if turn % 2 else 1]:
            command = [sys.executable, *sys.argv, "--one", kind]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[kind].append(json.loads(done.stdout))
    for what, unit in (("loading", "s"), ("step", "ms")):
        huge, small = ([one[what] for one in found[kind]] for kind in ("huge", "small"))
        ratios = [a / b for a, b in zip(huge, small, strict=True)]
        print(
            f"{what}: {median(huge):.2f} {unit} on huge pages, {median(small):.2f} {unit} on "
            f"small ones, ratio {median(ratios):.2f} ±{error(ratios):.2f}"
        )


if __name__ == "__main__":
    main()
