"""The cost of features from audio: bench_features.py [--repeats N] [AUDIO...].

Beside onnxgen's log-mel spectrogram stands that of transformers, where torch and transformers can
be imported: by torch, which it takes by default, on as many threads as torch likes and on one (as
onnxgen's), and by its own NumPy. All get the same waveform in turns, so that what else the machine
does weighs on all alike; the fastest run of each counts. Exits with 1 where torch is faster on one
thread.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from onnxgen.audio.features import LogMel
from onnxgen.audio.reading import read

try:
    import torch
    from transformers import WhisperFeatureExtractor
except ImportError:
    torch = WhisperFeatureExtractor = None

RATE = 16_000
SECONDS = (5, 30, 120)
ONE = "torch, 1 thread"


def torch_of(bins: int, samples: np.ndarray, threads: int) -> Callable[[], Any]:
    theirs = WhisperFeatureExtractor(feature_size=bins)
    long = {"truncation": False, "padding": "longest"} if len(samples) > theirs.n_samples else {}

    def run() -> Any:
        torch.set_num_threads(threads)
        return theirs(samples, sampling_rate=RATE, return_tensors="np", **long)["input_features"][0]

    return run


def numpy_of(bins: int, samples: np.ndarray) -> Callable[[], Any]:
    theirs = WhisperFeatureExtractor(feature_size=bins)
    filled = np.zeros(max(theirs.n_samples, len(samples)), np.float32)
    filled[: len(samples)] = samples
    return lambda: theirs._np_extract_fbank_features(filled[None], "cpu")[0]


def measure(runs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Milliseconds of the fastest of ``repeats`` runs of each."""
    best = dict.fromkeys(runs, np.inf)
    for _ in range(repeats + 1):  # the first warms up
        for name, run in runs.items():
            start = perf_counter()
            run()
            best[name] = min(best[name], (perf_counter() - start) * 1000)
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15, help="runs of each (default 15)")
    parser.add_argument("audio", nargs="*", type=Path, help="files; by default noise")
    args = parser.parse_args()
    waveforms = {path.name: read(path) for path in args.audio}
    if not waveforms:
        noise = np.random.default_rng(0).normal(0, 0.1, SECONDS[-1] * RATE).astype(np.float32)
        waveforms = {f"{seconds} s of noise": noise[: seconds * RATE] for seconds in SECONDS}
    threads = torch.get_num_threads() if torch else 1
    slower = []
    for bins in (80, 128):
        ours = LogMel({"feature_size": bins})
        for name, samples in waveforms.items():
            runs: dict[str, Callable[[], Any]] = {"onnxgen": partial(ours, samples)}
            if torch:
                runs["torch"] = torch_of(bins, samples, threads)
                runs[ONE] = torch_of(bins, samples, 1)
                runs["numpy"] = numpy_of(bins, samples)
            off = max((np.abs(run() - runs["onnxgen"]()).max() for run in runs.values()), default=0)
            best = measure(runs, args.repeats)
            times = "  ".join(f"{who} {ms:.1f} ms" for who, ms in best.items())
            print(f"{bins} bins, {name}: {times}  (farthest apart: {off:.1e})", flush=True)
            if best.get(ONE, np.inf) < best["onnxgen"]:
                slower.append(f"{bins} bins, {name}")
    if slower:
        print("slower than torch:", "; ".join(slower), file=sys.stderr)
    return bool(slower)


if __name__ == "__main__":
    sys.exit(main())
