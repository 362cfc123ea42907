"""The clips that the expectations of speech models are about; see speech_audio.waveform."""

from typing import Any

import numpy as np

from .speech_audio import waveform

SECONDS = {
    "short-0": 5.0, "short-1": 12.3, "short-2": 8.215, "short-3": 17.77, "short-4": 3.3,
    "short-5": 21.0, "full-0": 30.0, "tiny": 0.5, "silence": 4.0,
    "long-0": 65.0, "long-1": 91.25, "long-2": 71.404, "long-3": 78.88, "long-4": 94.5,
    "long-5": 67.7, "full-1": 30.0, "full-2": 30.0,
}  # fmt: skip


def clip(name: str) -> dict[str, Any]:
    """The recipe of a clip: glides and noises of half a second to three, some with a rest."""
    random = np.random.RandomState(100 + list(SECONDS).index(name))  # whose numbers never change
    seconds, parts, start = SECONDS[name], [], 0.0
    while name != "silence" and start < seconds - 0.25:
        end = round(min(start + random.uniform(0.5, 3.0), seconds), 2)
        kind, low, high, loud = random.uniform(size=4)
        part = {"start": start, "end": end, "amplitude": round(float(0.03 + 0.5 * loud**2), 3)}
        if kind < 0.3:
            parts.append(part | {"seed": random.randint(1000)})
        elif kind < 0.9:
            tone = {"low": round(80 + 3000 * low**2), "high": round(80 + 3000 * high**2)}
            parts.append(part | tone)
        start = end
    return {"seconds": seconds, "parts": parts}


def samples(name: str) -> np.ndarray:
    """The waveform (N,) of a clip, 16 kHz."""
    return waveform(clip(name))
