"""What Florence-2 is asked, and what transformers answers, each input alone and in a batch."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import (
    Florence2ForConditionalGeneration,
    Florence2Processor,
    GenerationConfig,
    LogitsProcessorList,
)
from transformers.image_utils import load_image

from . import vlm_florence_tokens as tokens
from .seq2seq_expectations import MARGIN, NOISE, Shaken, gap, in_double
from .seq2seq_replay import behind
from .vlm_florence_model import LENGTH, SETTINGS, make
from .vlm_florence_replay import Sessions

JSON = dict[str, Any]
DISTINCT = 6  # different tokens in an answer, at least
IMAGES = Path(__file__).parents[2] / "fixtures" / "images"
NAMES = [
    "photo.jpg", "palette.png", "cmyk.jpg", "turned.jpg", "grey.jpg", "panorama.png", "page.png",
    "alpha.webp",
]  # fmt: skip
#: ways to call `generate`, on top of generation_config.json
WAYS: dict[str, JSON] = {
    "greedy": {
        "num_beams": 1, "early_stopping": False, "no_repeat_ngram_size": 0,
        "max_new_tokens": LENGTH,
    },
    "greedy without repetition": {
        "num_beams": 1, "early_stopping": False, "max_new_tokens": LENGTH,
    },
    "beams": {"max_new_tokens": LENGTH},
}  # fmt: skip


@dataclass(frozen=True)
class Ask:
    """A prompt; where it begins with a task, the answer is parsed, and must hold a place if asked.

    Without `shown` there is no image.
    """

    name: str
    prompt: str
    places: bool = False
    shown: bool = True

    @property
    def task(self) -> str | None:
        found = self.prompt.startswith("<")
        return self.prompt[: self.prompt.index(">") + 1] if found else None


ASKS = [
    Ask("caption", "<CAPTION>"),
    Ask("caption of another image", "<CAPTION>"),
    Ask("objects", "<OD>", places=True),
    Ask("text with regions", "<OCR_WITH_REGION>", places=True),
    Ask("phrases", "<CAPTION_TO_PHRASE_GROUNDING>a red dog near the small house", places=True),
    Ask("polygons", "<REFERRING_EXPRESSION_SEGMENTATION>the green tree", places=True),
    Ask("any objects", "<OPEN_VOCABULARY_DETECTION> two birds ", places=True),
    Ask("proposals", "<REGION_PROPOSAL>", places=True),
    Ask("region", "<REGION_TO_CATEGORY><loc_52><loc_332><loc_932><loc_774>"),
    Ask("plain text", "What is under the old house?"),
    Ask("no text", ""),
    Ask("text only", "Where is the sea?", shown=False),
]
#: rows that also run together: prompts of several lengths
BATCH = (7, 9, 4)


@dataclass
class Input:
    """An ask, its image, and what the model is fed of them: a batch of 1, or of more."""

    asks: list[Ask]
    images: list[str]
    feed: dict[str, torch.Tensor]


@dataclass
class Run:
    """What follows the start in each row, eos included; the least gap, or the scores of beams."""

    tokens: list[list[int]]
    margin: float = math.inf
    scores: list[float] = field(default_factory=list)


def load(name: str) -> Image.Image:
    return load_image(str(IMAGES / name))


def feed(processor: Florence2Processor, asks: list[Ask], images: list[str]) -> Input:
    """As users call the processor."""
    given = {"images": [load(name) for name in images]} if images else {}
    found = processor(
        text=[ask.prompt for ask in asks], **given, padding=len(asks) > 1, return_tensors="pt"
    )
    return Input(asks, images, dict(found))


def run(
    model: Florence2ForConditionalGeneration,
    way: str,
    given: Input,
    shake: Shaken | None = None,
    sessions: Sessions | None = None,
) -> Run:
    """One call; with sessions the numbers are theirs, and only the loop is transformers'."""
    dtype = next(model.parameters()).dtype
    fed = {k: v.to(dtype) if v.is_floating_point() else v for k, v in given.feed.items()}
    options = dict(WAYS[way])
    if shake:
        options["logits_processor"] = LogitsProcessorList([shake])
    if sessions:
        options |= {"encoder_outputs": sessions.encode(given.feed), "use_cache": False}
    model.generation_config = GenerationConfig(**tokens.IDS, **SETTINGS)
    with torch.inference_mode(), behind(model, sessions) if sessions else nullcontext():
        out = model.generate(**fed, **options, return_dict_in_generate=True, output_scores=True)
    rows = [ended(row) for row in out.sequences[:, 1:].tolist()]
    if out.get("sequences_scores") is not None:
        return Run(rows, scores=out.sequences_scores.tolist())
    gaps = [gap(out.scores[i][row]) for row, new in enumerate(rows) for i in range(len(new))]
    return Run(rows, margin=min(gaps))


def ended(row: list[int]) -> list[int]:
    """A row up to its eos: what follows is padding."""
    end = tokens.IDS["eos_token_id"]
    return row[: row.index(end) + 1] if end in row else row


class Judge:
    """Runs a model, and tells whether runs would be the same with other rounding."""

    def __init__(self, seed: int, processor: Florence2Processor) -> None:
        self.model, self.processor = make(seed), processor
        self.exact = in_double(self.model)

    def stable(self, way: str, given: Input) -> Run | None:
        """The run, or None if noise, other arithmetic or its own margin forbid to rely on it."""
        first = run(self.model, way, given)
        if first.margin < MARGIN or run(self.exact, way, given).tokens != first.tokens:
            return None
        shakes = [Shaken(seed, NOISE) for seed in (1, 2)] if first.scores else []
        shaken = (run(self.model, way, given, shake) for shake in shakes)
        return first if all(other.tokens == first.tokens for other in shaken) else None

    def fit(self, given: Input) -> list[Run] | None:
        """The runs of all ways, or None: one hangs on rounding, goes round or shows too little."""
        runs = []
        for way in WAYS:
            found = self.stable(way, given)
            if found is None or not all(map(speaks, found.tokens)):
                return None
            runs.append(found)
        for ask, name, row in zip(given.asks, given.images, runs[0].tokens, strict=False):
            if ask.places and not any(parse(self.processor, ask, name, row).values()):
                return None
        return runs

    def choose(self) -> list[tuple[Input, list[Run]]] | None:
        """For each ask the first image that nothing speaks against; None if there is none.

        Images that another ask has got come last.
        """
        chosen: list[tuple[Input, list[Run]]] = []
        names = list(NAMES)
        for ask in ASKS:
            for name in [*names] if ask.shown else [""]:
                given = feed(self.processor, [ask], [name] if ask.shown else [])
                runs = self.fit(given)
                if runs is not None:
                    chosen.append((given, runs))
                    break
            else:
                return None
            names.sort(key=lambda each: each == name)
        return chosen


def speaks(row: list[int]) -> bool:
    """Whether an answer holds text or places alone, and enough of them."""
    body = row[1:-1]
    return not tokens.SPECIAL & {*body} and len({*body}) >= min(DISTINCT, len(body)) > 1


def parse(processor: Florence2Processor, ask: Ask, name: str, row: Sequence[int]) -> Any:
    """What the processor reads in an answer: boxes and the like, or text."""
    text = processor.decode(row, skip_special_tokens=False)
    found = processor.post_process_generation(text=text, task=ask.task, image_size=load(name).size)
    return found[ask.task]


def describe(
    processor: Florence2Processor, way: str, given: Input, found: Run, row: int = 0
) -> JSON:
    """A row as expected.json has it."""
    ask, new, images = given.asks[row], found.tokens[row], given.images[row : row + 1]
    told: JSON = {
        "name": ask.name if way == "greedy" else f"{ask.name}, {way}",
        "prompt": ask.prompt, "images": images, "options": WAYS[way],
        "input_ids": given.feed["input_ids"][row][given.feed["attention_mask"][row] > 0].tolist(),
        "tokens": new,
        "text": processor.decode(new, skip_special_tokens=True),
        "answer": processor.decode(new, skip_special_tokens=False),
    }  # fmt: skip
    if ask.task:
        size = load(images[0]).size  # width, height
        told |= {"task": ask.task, "size": size, "parsed": parse(processor, ask, images[0], new)}
    if found.scores:
        return told | {"score": round(found.scores[row], 5)}
    return told | {"margin": round(found.margin, 5)}
