"""Resident memory over generations of mixed lengths: bench_memory.py MODEL.

Prompts of 10 to 2,000 random tokens, 8 new tokens each. Prints the resident set after each
generation and the slope of a line through them from the sixth on, in MB a generation.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import onnxgen


def resident_mb() -> float:
    """The resident set of this process (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--generations", type=int, default=50)
    parser.add_argument("--longest", type=int, default=2000)
    parser.add_argument("--max-slope", type=float, help="fail above this, in MB a generation")
    arguments = parser.parse_args()
    model = onnxgen.load(arguments.model)
    rng = np.random.default_rng(0)
    sizes = []
    for _ in range(arguments.generations):
        length = int(rng.integers(10, arguments.longest + 1))
        prompt = rng.integers(10, model.model.vocab_size - 10, length).tolist()
        model.generate(prompt, max_new_tokens=8, eos_token_id=None, do_sample=False)
        sizes.append(resident_mb())
        print(f"{length:5d} tokens: {sizes[-1]:7.1f} MB", flush=True)
    settled = sizes[5:]
    slope = float(np.polyfit(np.arange(len(settled)), settled, 1)[0])
    print(f"slope {slope:+.3f} MB a generation, from {settled[0]:.1f} to {settled[-1]:.1f} MB")
    return int(arguments.max_slope is not None and slope > arguments.max_slope)


if __name__ == "__main__":
    sys.exit(main())
