"""What transformers in float32 makes of speech: real_speech_expectations.py MODELS [NAME ...]

MODELS is the folder that real_models fills; NAME is whisper-tiny.en or whisper-base. Writes
fixtures/real/NAME.json case by case, the short ones first, and goes on where it was left; a case is
done again when its clips or arguments have changed. Runs in the oracle environment.
"""

import json
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
import torch
from oracle.speech_generate import RATE, Speaker, like
from oracle.speech_json import dump
from oracle.speech_models import OFFICIAL
from transformers import WhisperForConditionalGeneration, WhisperTokenizerFast, pipeline
from transformers.utils import logging

JSON = dict[str, Any]
OUT = Path(__file__).parent.parent / "fixtures" / "real"
#: a clip is what comes one after the other: a number is a rest of so many seconds, a list a file
#: (below `audio/` or `spoken/`), from which second and to which (null: its end)
CLIPS: dict[str, list[Any]] = {
    "ten": [["audio/beckett.wav", 0, None]],
    "thirty": [["audio/endgame_nagg_nell.wav", 0, None]],
    "long": [["audio/two_cities.wav", 0, None]],
    "silence": [10.0],
    "eight": [["audio/two_cities.wav", 0, 8.0]],
    "cut": [["audio/two_cities.wav", 10.3, 16.55]],  # in "belief", in "darkness"
    "padded": [["audio/beckett.wav", 0, None], 12.0],
    "sixty-five": [
        ["audio/two_cities.wav", 0, None], ["audio/endgame_nagg_nell.wav", 0, 20.625875],
    ],
    "minutes": [
        ["audio/two_cities.wav", 0, None], 3.0, ["audio/beckett.wav", 0, None], 8.0,
        ["audio/endgame_nagg_nell.wav", 0, None], 4.0, ["audio/two_cities.wav", 0, None], 12.0,
        ["audio/endgame_nagg_nell.wav", 0, None], 2.0, ["audio/beckett.wav", 0, None],
    ],
    "french": [["spoken/french.wav", 0, None]],
    "german": [["spoken/german.wav", 0, None]],
    "spanish": [["spoken/spanish.wav", 0, None]],
}  # fmt: skip
STAMPS = {"return_timestamps": True}
WORDS = STAMPS | {"return_token_timestamps": True}
#: what OpenAI's own program does by default
JUDGED = {
    "logprob_threshold": -1.0, "no_speech_threshold": 0.6, "compression_ratio_threshold": 1.35,
}  # fmt: skip
ONCE = STAMPS | JUDGED | {"temperature": [0.0]}
OFTEN = STAMPS | JUDGED | {"temperature": [0.0, 0.2, 0.4, 0.6, 0.8, 1.0], "seed": 0}
BEAMS = {"num_beams": 5}
CONDITIONED = {"condition_on_prev_tokens": True}
Case = tuple[tuple[str, ...], JSON]
SHORT, LONG = ("ten", "thirty", "silence"), ("long", "minutes")
BASIC: list[Case] = [
    *(((clip,), arguments) for clip in SHORT for arguments in ({}, STAMPS)),
    *(((clip,), WORDS) for clip in ("eight", "cut", "padded")),
    *(((clip,), arguments) for clip in SHORT for arguments in (BEAMS, STAMPS | BEAMS, ONCE)),
    (("ten",), {"prompt": "Hamm and Clov, by Samuel Beckett."}),
    (("thirty",), WORDS),
    (("cut",), STAMPS),
    (("ten",), WORDS | BEAMS),
    (("ten", "thirty", "silence"), {}),
    (("ten", "thirty"), STAMPS),
    *((("long",), arguments) for arguments in (STAMPS, WORDS, ONCE, STAMPS | BEAMS)),
    (("sixty-five",), WORDS),
    (("silence",), OFTEN),
    (("minutes",), STAMPS),
    (("minutes",), OFTEN),
]
MORE: list[Case] = [
    *((("long",), arguments) for arguments in (ONCE | CONDITIONED, OFTEN)),
    *((("minutes",), arguments) for arguments in (ONCE, ONCE | CONDITIONED, STAMPS | BEAMS)),
    (("long", "minutes"), STAMPS),
    (("minutes",), OFTEN | BEAMS | CONDITIONED),
]
TONGUES = ("french", "german", "spanish")
LANGUAGES: list[Case] = [
    *(((clip,), {}) for clip in TONGUES),
    *(((clip,), STAMPS | {"task": "translate"}) for clip in TONGUES),
    *(((clip,), {"language": clip, "task": "transcribe"}) for clip in TONGUES),
    *(((clip,), BEAMS | {"language": clip, "task": "translate"}) for clip in TONGUES),
    (("french",), STAMPS | {"language": "en"}),
    (TONGUES, STAMPS),
]
#: through the pipeline, whose merging of overlapping pieces is its own
PIECES: list[Case] = [
    (("ten",), {"return_timestamps": "word"}),
    (("thirty",), {"return_timestamps": True}),
    (("long",), {"chunk_length_s": 30}),
    (("long",), {"chunk_length_s": 30, "return_timestamps": True}),
    (("long",), {"chunk_length_s": 30, "return_timestamps": "word"}),
    (("sixty-five",),
     {"chunk_length_s": 30, "stride_length_s": [4, 2], "return_timestamps": "word"}),
]  # fmt: skip


class Sounds:
    """The clips, mono at 16 kHz."""

    def __init__(self, models: Path) -> None:
        self.models = models
        self.file = cache(self.read)

    def read(self, name: str) -> np.ndarray:
        samples, rate = soundfile.read(self.models / name, dtype="float32", always_2d=True)
        mono = samples.mean(axis=1)  # (N,) of (N, channels)
        return mono if rate == RATE else soxr.resample(mono, rate, RATE)

    def __call__(self, clip: str) -> np.ndarray:
        pieces = []
        for piece in CLIPS[clip]:
            if isinstance(piece, float):
                pieces.append(np.zeros(round(piece * RATE), np.float32))
                continue
            name, start, end = piece
            last = None if end is None else round(end * RATE)
            pieces.append(self.file(name)[round(start * RATE) : last])
        return np.concatenate(pieces)


class Record:
    """The file that results are written to."""

    def __init__(self, path: Path, about: JSON) -> None:
        self.path, self.about, self.rows = path, about, list[JSON]()
        if path.exists():
            old = json.loads(path.read_text())
            clips = old["clips"]
            self.rows = [
                row for row in old["cases"] + old["pipeline"]
                if all(clips.get(name) == CLIPS[name] for name in row["audio"] if name in CLIPS)
            ]  # fmt: skip

    def find(self, case: Case, kind: str) -> JSON | None:
        clips, arguments = case
        same = (
            row for row in self.rows
            if row["audio"] == list(clips) and row["arguments"] == arguments
            and ("chunks" in row) == (kind == "pipeline")
        )  # fmt: skip
        return next(same, None)

    def write(self, wanted: dict[str, list[Case]], languages: JSON) -> None:
        """What is known of the wanted cases, in their order."""
        kinds = {kind: [self.find(case, kind) for case in cases] for kind, cases in wanted.items()}
        known = {kind: [row for row in rows if row] for kind, rows in kinds.items()}
        used = {clip for rows in known.values() for row in rows for clip in row["audio"]}
        clips = {clip: CLIPS[clip] for clip in CLIPS if clip in used}
        whole = self.about | {"clips": clips} | languages | known
        self.path.with_suffix(".part").write_text(dump(whole) + "\n")
        self.path.with_suffix(".part").rename(self.path)


def answer(speaker: Speaker, case: Case) -> JSON:
    """A case as the file has it; `steady`: noise of 3e-5 in the features changes nothing."""
    clips, arguments = case
    speaker.model.set_attn_implementation("sdpa")  # word times have switched it, for good
    rows = speaker.run(clips, arguments)
    told: JSON = {"audio": list(clips), "arguments": arguments}
    if len(clips) > 1:
        return told | {"rows": rows}
    (row,) = rows
    row["sampled"] = any(call["temperature"] > 0 for call in row["calls"])
    if len(speaker.sound(clips[0])) <= 30 * RATE:  # minutes of speech take minutes
        (other,) = speaker.run(clips, arguments, noise=1)
        row["steady"] = like(row, other)
    return told | row


def pieces(speaker: Speaker, case: Case) -> JSON:
    """The same for the pipeline, greedy."""
    ((clip,), arguments) = case
    recognise = pipeline(
        "automatic-speech-recognition", model=speaker.model, tokenizer=speaker.words,
        feature_extractor=speaker.extract,
    )  # fmt: skip
    with torch.inference_mode():
        out = recognise(speaker.sound(clip), generate_kwargs={"num_beams": 1}, **arguments)
    chunks = [
        {"text": chunk["text"], "start": chunk["timestamp"][0], "end": chunk["timestamp"][1]}
        for chunk in out.get("chunks", [])
    ]
    told: JSON = {"audio": [clip], "arguments": arguments}
    return told | {"text": out["text"], "chunks": chunks}


def main(models: Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    for name in names or ["whisper-tiny.en", "whisper-base"]:
        folder = models / "hf" / name
        model = WhisperForConditionalGeneration.from_pretrained(folder).eval()
        model.generation_config.transformers_version = OFFICIAL
        words = WhisperTokenizerFast.from_pretrained(folder)
        speaker = Speaker(model, words, Sounds(models))
        about = {"model": name, "transformers": "4.57.6", "reference": "PyTorch, fp32"}
        wanted = {"cases": BASIC + MORE, "pipeline": PIECES}
        languages: JSON = {}
        if model.generation_config.is_multilingual:
            wanted["cases"] = LANGUAGES + BASIC
            languages["languages"] = {clip: speaker.language(clip) for clip in (*TONGUES, "ten")}
        record = Record(OUT / f"{name}.json", about)
        for kind, make in (("cases", answer), ("pipeline", pieces)):
            for case in wanted[kind]:
                if record.find(case, kind):
                    continue
                begun = time.monotonic()
                record.rows.append(make(speaker, case))
                record.write(wanted, languages)
                print(f"{name}: {case} in {time.monotonic() - begun:.0f} s", flush=True)
        record.write(wanted, languages)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
