"""Resident memory over generations of mixed lengths: bench_memory.py MODEL.

Prompts of 10 to 2,000 random tokens, 8 new tokens each, in five rounds of the same lengths. Prints
the resident set after each generation, and by how much it grew from the second and third round to
the fourth and fifth, in MB a generation. What allocators keep for later differs by hundreds of MB
with what ran before; a leak, though, lifts the least, the median and the most of rounds alike, so
the least of these three growths is taken.
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
    parser.add_argument("--generations", type=int, default=17, help="in each round")
    parser.add_argument("--longest", type=int, default=2000)
    parser.add_argument("--max-growth", type=float, help="fail above this, in MB a generation")
    arguments = parser.parse_args()
    model = onnxgen.load(arguments.model)
    rng = np.random.default_rng(0)
    lengths = rng.integers(10, arguments.longest + 1, arguments.generations)
    lengths[0] = arguments.longest
    rounds = np.zeros((5, len(lengths)))
    for turn, index in np.ndindex(rounds.shape):
        prompt = rng.integers(10, model.model.vocab_size - 10, lengths[index]).tolist()
        model.generate(prompt, max_new_tokens=8, eos_token_id=None, do_sample=False)
        rounds[turn, index] = resident_mb()
        print(f"{lengths[index]:5d} tokens: {rounds[turn, index]:7.1f} MB", flush=True)
    early, late = rounds[1:3], rounds[3:5]
    lifts = (late.min() - early.min(), np.median(late - early), late.max() - early.max())
    growth = float(min(lifts)) / (2 * len(lengths))
    print(f"growth {growth:+.3f} MB a generation, at most {rounds.max():.0f} MB")
    return int(arguments.max_growth is not None and growth > arguments.max_growth)


if __name__ == "__main__":
    sys.exit(main())
