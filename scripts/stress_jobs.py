"""Random generations on the tiny fixtures of every kind, each with its options and its end."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import onnxgen
from onnxgen.errors import CancelledError

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
KINDS = {
    "llama": "text",  # appends
    "genai-llama": "text",  # in place
    "gemma3_text": "text",  # grows
    "genai-lfm2": "text",  # states
    "llama-nocache": "text",
    "llama-pair": "text",
    "t5": "translation",
    "bart": "translation",
    "vit-gpt2": "image",
    "whisper": "speech",
    "moonshine": "speech",
    "smolvlm": "chat",
    "qwen2-vl": "chat",
    "florence-2": "chat",
}
ENDS = ("whole", "whole", "cancel", "close", "error", "late")


class CallersError(Exception):
    """What a caller's own function raises."""


def path(name: str) -> Path:
    return FIXTURES / "models" / name


@cache
def model(name: str) -> Any:
    """One of the fixtures, loaded once."""
    return onnxgen.load(path(name), threads=1)


@dataclass(frozen=True)
class Job:
    """A generation: the model's name, its input, options and how it is to end."""

    model: str
    source: Any
    options: dict[str, Any]
    end: str
    seed: int

    def answers(self, own: Any = None) -> list[tuple[int, ...]]:
        """The tokens of all answers, run to the end, on the model or another copy of it."""
        return tokens((own or model(self.model)).generate(self.source, **self.options))

    def run(self) -> str:
        """Runs it to its end, whichever it is; how it went."""
        own = model(self.model)
        rng = np.random.default_rng(self.seed)
        try:
            if self.end == "cancel":
                switch = onnxgen.Cancel()
                timer = threading.Timer(float(rng.uniform(0, 0.02)), switch.cancel)
                timer.start()
                try:
                    own.generate(self.source, cancel=switch, **self.options)
                finally:
                    timer.join()
            elif self.end == "close" and self.options.get("num_beams", 1) == 1:
                stream = own.stream(self.source, **self.options)
                for _ in range(int(rng.integers(0, 6))):
                    next(stream, None)
                stream.close()
            elif self.end == "error":
                own.generate(self.source, logits_processor=[failing(rng)], **self.options)
            elif self.end == "late":
                limit = float(rng.uniform(0, 0.005))
                own.generate(self.source, max_time=limit, **self.options)
            else:
                own.generate(self.source, **self.options)
        except CancelledError:
            return "cancelled"
        except CallersError:
            return "failed"
        return {"cancel": "cancelled too late", "error": "not yet failed"}.get(self.end, self.end)


def failing(rng: np.random.Generator) -> Callable[[Any, Any], Any]:
    """A logits processor that fails after some calls."""
    left = int(rng.integers(0, 20))

    def process(ids: Any, scores: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise CallersError
        return scores

    return process


def tokens(answer: Any) -> list[tuple[int, ...]]:
    """The tokens in whatever a call returns."""
    if isinstance(answer, list):
        return [own for one in answer for own in tokens(one)]
    if hasattr(answer, "segments"):
        return [tuple(token for segment in answer.segments for token in segment.tokens)]
    return [answer.tokens]


def jobs(seed: int, only: str | None = None) -> Iterator[Job]:
    """Endless random jobs, the same for a ``seed``; on ``only`` one model, if it is named."""
    rng = np.random.default_rng(seed)
    names = [only] if only else list(KINDS)
    while True:
        name = str(rng.choice(names))
        source, options = SOURCES[KINDS[name]](name, rng)
        options |= {"max_new_tokens": int(rng.integers(1, 16)), **method(name, rng)}
        if options.get("prompt_lookup_num_tokens"):  # one row alone
            source = source[0]
        yield Job(name, source, options, str(rng.choice(ENDS)), int(rng.integers(1 << 31)))


def method(name: str, rng: np.random.Generator) -> dict[str, Any]:
    """A random way to choose tokens that the model knows."""
    kind = KINDS[name]
    seed = int(rng.integers(1 << 31))
    ways: list[dict[str, Any]] = [
        {"do_sample": False, "num_beams": 1},
        {"do_sample": True, "seed": seed, "top_k": 20, "temperature": 1.5, "num_beams": 1},
        {"do_sample": True, "seed": seed, "top_p": 0.8, "num_beams": 1},
        {"do_sample": False, "num_beams": int(rng.integers(2, 5))},
        {"do_sample": False, "num_beams": 1, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    ]
    if kind == "speech":  # which chooses by temperatures
        ways = [way for way in ways if not way["do_sample"]]
        return dict(ways[rng.integers(len(ways))])
    ways += [
        {"do_sample": False, "num_beams": 1, "logprobs": True, "top_logprobs": 3},
        {"do_sample": False, "num_beams": 1, "output_scores": True},
    ]
    if kind == "text":
        ways += [
            {"do_sample": False, "num_beams": 1, "guidance_scale": 1.5},
            {"do_sample": False, "num_beams": 1, "prefill_chunk_size": 3},
        ]
        if name in ("llama", "genai-llama"):
            ways.append({"do_sample": False, "num_beams": 1, "prompt_lookup_num_tokens": 3})
    return {"eos_token_id": None, **ways[rng.integers(len(ways))]}


def text(name: str, rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    width = model(name).model.vocab_size
    lengths = rng.integers(1, 40, rng.integers(1, 5))
    return [rng.integers(4, width, length).tolist() for length in lengths], {}


def translation(name: str, rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    lengths = rng.integers(1, 20, rng.integers(1, 5))
    return [rng.integers(4, 100, length).tolist() for length in lengths], {}


def image(name: str, rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    folder = path(name) / "images"
    picked = rng.choice(sorted(folder.iterdir()), rng.integers(1, 4))
    return [str(path) for path in picked], {}


def speech(name: str, rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    length = int(rng.integers(4_000, 20_000))
    return rng.normal(0, 0.1, length).astype(np.float32), {}


def chat(name: str, rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    if name == "florence-2":
        return "<CAPTION>", {"images": [FIXTURES / "images" / "photo.jpg"]}
    shown = [str(path) for path in rng.choice(PICTURES, rng.integers(0, 3))]
    return model(name).about(shown, "What is this?")


PICTURES = [FIXTURES / "images" / name for name in ("photo.jpg", "tiny.png", "rows.png")]
SOURCES = {
    "text": text,
    "translation": translation,
    "image": image,
    "speech": speech,
    "chat": chat,
}
