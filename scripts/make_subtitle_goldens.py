"""Writes ``fixtures/audio/subtitles.json``: what openai-whisper's writers make of transcripts.

They need only the standard library, so a source archive is enough, unpacked by hand::

    pip download --no-deps --no-binary :all: openai-whisper==20250625
    python scripts/make_subtitle_goldens.py openai_whisper-20250625/whisper/utils.py
"""

import importlib.util
import io
import json
import random
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "fixtures" / "audio" / "subtitles.json"
SENTENCES = [
    " And so, my fellow Americans, ask not what your country can do for you;",
    " ask what you can do for your country.",
    " Ça c'est l'été,   déjà ?",
    " Ja! (genau) so-und-so.",
    " 東京は 日本の 首都です。",
    " A word thatislongerthananylinemaybe ends",
    " x",
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"highlight_words": True},
    {"max_line_width": 12},
    {"max_line_width": 12, "highlight_words": True},
    {"max_line_width": 24, "max_line_count": 1},
    {"max_line_width": 16, "max_line_count": 2},
    {"max_line_width": 16, "max_line_count": 2, "highlight_words": True},
    {"max_line_width": 9, "max_words_per_line": 2},
    {"max_words_per_line": 1},
    {"max_words_per_line": 3},
    {"max_words_per_line": 4, "highlight_words": True},
]


def transcript(rng: random.Random, count: int, words: bool) -> dict[str, Any]:
    """A result of ``transcribe`` with ``count`` segments, its fields in its order."""
    time = rng.choice([0.0, 0.0, 59.9995, 3599.4, 3600.0, 360000.0])
    segments = []
    for number in range(count):
        text = rng.choice(SENTENCES)
        start = time + rng.choice([0, 0, 0.5, 4.2])
        spoken, at = [], start
        for word in [" " + part for part in text.split()]:
            at += rng.choice([0, 0, 0.0004, 0.3, 2.5, 3.5])
            length = rng.choice([0.0, 0.12, 0.3456, 0.9])
            spoken.append({"word": word, "start": at, "end": at + length})
            spoken[-1]["probability"] = round(rng.random(), 4)
            at += length
        time = at
        segment = {
            "id": number,
            "seek": int(start * 100),
            "start": start,
            "end": time,
            "text": text if words or rng.random() < 0.4 else f"{text}\twith --> signs ",
            "tokens": [rng.randrange(50000) for _ in range(3)],
            "temperature": rng.choice([0.0, 0.2]),
            "avg_logprob": -round(rng.random(), 4),
            "compression_ratio": round(1 + rng.random(), 4),
            "no_speech_prob": round(rng.random(), 4),
        }
        if words:
            segment["words"] = spoken
        segments.append(segment)
    text = "".join(segment["text"] for segment in segments)
    return {"text": text, "segments": segments, "language": rng.choice(["en", "fr"])}


def main(utils: str) -> None:
    """Runs each writer on each transcript."""
    spec = importlib.util.spec_from_file_location("utils", utils)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def written(name: str, result: dict[str, Any], options: dict[str, Any]) -> str:
        file = io.StringIO()
        getattr(module, f"Write{name.upper()}")("").write_result(result, file, options)
        return file.getvalue()

    rng = random.Random(0)
    cases = []
    for number in range(17):
        words = number % 3 > 0
        result = transcript(rng, number % 4, words)
        formats = ("txt", "tsv", "json", "vtt", "srt")
        case = {
            "transcript": result,
            "files": {name: written(name, result, {}) for name in formats},
        }
        laid_out = []
        for options in rng.sample(OPTIONS[1:], 4) if words else ():
            files = {name: written(name, result, options) for name in ("vtt", "srt")}
            laid_out.append({"options": options, "files": files})
        cases.append({**case, "layouts": laid_out})
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(
        json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main(sys.argv[1])
