"""An hour of speech as a stream: long_speech.py MODELS

MODELS is the folder that real_models fills. Joins its clips, with pauses between, to one recording
and transcribes it in this process. Prints how soon the first segment came, beside reading the file
and the first window alone; the resident set after every ten minutes of sound; and the real-time
factor, seconds of sound a second. Fails where the first segment took longer than reading the file
and twice that window, or where the process grew by more than 50 MB after the tenth minute.
"""

import argparse
import sys
import tempfile
import time
import wave
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from bench_memory import resident_mb

import onnxgen
from onnxgen.audio.reading import read

RATE = 16_000
WINDOW = 30  # seconds that a Whisper hears at once
PAUSES = (1.0, 2.0)  # seconds between clips
MARK = 10  # minutes of sound from one line to the next; the growth counts from the first on
MOST_GROWTH = 50  # MB
MOST_WINDOWS = 2  # the first segment may take reading the file and so many windows
REPEATS = 3


def join(clips: list[Path], seconds: int, out: Path) -> None:
    """Writes ``clips`` one after the other, again and again, as ``seconds`` of sound."""
    rng = np.random.default_rng(0)
    sounds = cycle([read(clip, RATE) for clip in clips])  # (T,) each
    left = seconds * RATE
    with wave.open(str(out), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        while left:
            rest = np.zeros(round(rng.uniform(*PAUSES) * RATE), np.float32)
            samples = np.concatenate([next(sounds), rest])[:left]  # (T,)
            left -= len(samples)
            file.writeframes((samples.clip(-1, 1) * 32767).astype("<i2").tobytes())


def seconds_of(act: Callable[[], Any]) -> float:
    """The median time that ``act`` takes, behind one that warms up."""
    laps = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        act()
        laps.append(time.perf_counter() - start)
    return median(laps[1:])


def stream(model: Any, recording: Path) -> tuple[float, float, float]:
    """Seconds to the first segment and to the end, and the growth in MB from the first mark on.

    The last resident set is that of the last segment, where the stream still holds what it needs.
    """
    marks: dict[int, float] = {}
    first, end, held, words, segments = 0.0, 0.0, 0.0, 0, 0
    start = time.perf_counter()
    for segment in model.stream(recording, return_timestamps=True):
        first = first or time.perf_counter() - start
        segments, words = segments + 1, words + len(segment.text.split())
        end, held = segment.end or end, resident_mb()
        minutes = int(end // 60) // MARK * MARK
        if minutes and minutes not in marks:
            marks[minutes] = held
            print(f"{minutes:3d} min: {held:7.1f} MB, {time.perf_counter() - start:6.1f} s, "
                  f"{segments} segments, {words} words", flush=True)  # fmt: skip
    total = time.perf_counter() - start
    print(f"the last of {segments} segments ends at {end / 60:.1f} min: {held:.1f} MB")
    return first, total, held - marks[MARK]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path)
    parser.add_argument("--minutes", type=int, default=60, help=f"more than {MARK}")
    parser.add_argument("--model", default="whisper-tiny.en", help="a folder of MODELS")
    parser.add_argument("--dtype")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.minutes <= MARK:
        parser.error(f"--minutes: more than {MARK}, from which on growth counts")
    clips = sorted((arguments.models / "audio").glob("*.wav"))
    model = onnxgen.load(
        arguments.models / arguments.model,
        task="speech-to-text",
        dtype=arguments.dtype,
        threads=arguments.threads,
    )
    with tempfile.TemporaryDirectory() as folder:
        whole, window = Path(folder) / "whole.wav", Path(folder) / "window.wav"
        join(clips, 60 * arguments.minutes, whole)
        join(clips, WINDOW, window)
        alone = seconds_of(lambda: next(model.stream(window, return_timestamps=True)))
        reading = seconds_of(lambda: read(whole, RATE))
        spectrum = seconds_of(partial(model.extractor, read(whole, RATE)))
        first, total, growth = stream(model, whole)
    most = reading + MOST_WINDOWS * alone
    print(f"first segment after {first:.2f} s, at most {most:.2f} s: reading the file takes "
          f"{reading:.2f} s, the first window alone {alone:.2f} s "
          f"(and the spectrum of the whole file {spectrum:.2f} s)")  # fmt: skip
    print(f"growth from minute {MARK} to the end {growth:+.1f} MB, at most {MOST_GROWTH} MB")
    factor = 60 * arguments.minutes / total
    print(f"{arguments.minutes} min in {total:.1f} s: {factor:.1f} x real time")
    return int(first > most or growth > MOST_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
