"""Waveforms that a test can make again from a few numbers: tones that glide, and noise.

Needs NumPy alone and nothing random: the noise is an integer hash of the sample's index.
"""

from typing import Any

import numpy as np

RATE = 16_000


def waveform(clip: dict[str, Any]) -> np.ndarray:
    """The samples (N,), float32 at 16 kHz, of {"seconds": float, "parts": [part, ...]}.

    A part lasts from `start` to `end` seconds and has an `amplitude`. With a `seed` it is noise,
    else a tone that glides from `low` to `high` Hz, both under a window without clicks.
    """
    total = np.zeros(round(clip["seconds"] * RATE))
    for part in clip["parts"]:
        first, last = round(part["start"] * RATE), round(part["end"] * RATE)
        time = np.arange(last - first) / RATE  # (N of the part,), seconds
        length = (last - first) / RATE
        if "seed" in part:
            sound = noise(last - first, part["seed"])
        else:
            slope = (part["high"] - part["low"]) / length
            sound = np.sin(2 * np.pi * (part["low"] + slope * time / 2) * time)
        total[first:last] += part["amplitude"] * sound * np.sin(np.pi * time / length)
    return total.astype(np.float32)


def noise(count: int, seed: int) -> np.ndarray:
    """Even noise (count,) in [-1, 1) by the finalizer of SplitMix64."""
    mixed = np.arange(count, dtype=np.uint64) + (np.uint64(seed) << np.uint64(32))
    mixed = mixed * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1.0
