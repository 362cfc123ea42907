"""What is asked of the tiny Whisper models: arguments of `generate`, and on which clip."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

JSON = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One call of `generate`.

    `clips` is a name, a pool of names ("short", "long") of which the first is taken whose result
    neither rounding nor noise changes and `wants` accepts, or a tuple: these in one batch.
    `arguments` are those of transformers, with `prompt` for a text that becomes `prompt_ids` and
    `seed` for torch.manual_seed before the call. Of the thresholds in `either` the first that will
    do is taken too: how sure a model is depends on its weights.
    """

    name: str
    clips: str | tuple[str, ...]
    arguments: JSON = field(default_factory=dict)
    wants: Callable[[JSON], bool] = lambda _row: True
    either: tuple[JSON, ...] = ({},)


def rich(row: JSON) -> bool:
    return len(set(row["tokens"])) >= 10


def varied(row: JSON) -> bool:
    """More than one segment, and words in them."""
    return rich(row) and len(row["segments"]) >= 2


def falls_back(row: JSON) -> bool:
    """Some windows are tried again, others are not."""
    heat = [call["temperature"] > 0 for call in row["calls"]]
    kept = sum(not hot and not later for hot, later in pairwise([*heat, False]))
    return any(heat) and kept > 0


def skips(row: JSON) -> bool:
    """Some windows are taken for silence, others are not."""
    return len({call["skipped"] for call in row["calls"]}) == 2


STAMPS = {"return_timestamps": True}
UNSURE = tuple({"logprob_threshold": bound} for bound in (-0.5, -0.7, -0.4, -0.6))
CORE = [
    Case("plain", "short"),
    Case("timestamps", "short", STAMPS, varied),
    Case("beams", "short", {"num_beams": 5}),
    Case("beams with timestamps", "short", STAMPS | {"num_beams": 5}, rich),
    Case("long", "long", STAMPS, varied),
    Case("batch", ("short-0", "short-1", "silence"), STAMPS),
]
MORE = [
    Case("full window", "full", STAMPS),
    Case("plain full window", "full"),
    Case("silence", "silence", STAMPS),
    Case("plain silence", "silence"),
    Case("half a second", "tiny", STAMPS),
    Case("stops at max_new_tokens", "short", {"max_new_tokens": 7}),
    Case("stops at max_length", "short", STAMPS | {"max_length": 24}),
    Case("beams that like it short", "short", {"num_beams": 3, "length_penalty": 0.3}),
    Case("no repeated 2-grams", "short", STAMPS | {"no_repeat_ngram_size": 2}),
    Case("repetition penalty", "short", {"repetition_penalty": 1.5}),
    Case("prompt", "short", {"prompt": "the rain in Paris"}),
    Case("prompt with timestamps", "short", STAMPS | {"prompt": "the rain in Paris"}, varied),
    Case("long, beams", "long", STAMPS | {"num_beams": 5}, varied),
    Case("long, conditioned", "long", STAMPS | {"condition_on_prev_tokens": True}, varied),
    Case("long, conditioned beams", "long",
         STAMPS | {"condition_on_prev_tokens": True, "num_beams": 3}, rich),
    Case("long, prompt in each window", "long", STAMPS | {"prompt": "the rain"}, varied),
    Case("long, prompt that slides out", "long",
         STAMPS | {"prompt": "the rain", "condition_on_prev_tokens": True}, varied),
    Case("long, prompt before each history", "long",
         STAMPS | {"prompt": "the rain", "condition_on_prev_tokens": True,
                   "prompt_condition_type": "all-segments"}, varied),
    Case("long, thresholds without fallback", "long",
         STAMPS | {"temperature": [0.0], "compression_ratio_threshold": 1.35,
                   "logprob_threshold": -1.0}),
    Case("long, skips silence", "long",
         STAMPS | {"temperature": [0.0], "no_speech_threshold": 0.5}, skips, UNSURE),
    Case("long, skips silence with beams", "long",
         STAMPS | {"temperature": [0.0], "no_speech_threshold": 0.5, "num_beams": 3},
         skips, UNSURE),
    # so cold that the draw is the best token; the beams are given up for the rest of the clip
    Case("long, falls back from beams", "long",
         STAMPS | {"temperature": [0.0, 1e-4], "num_beams": 3}, falls_back, UNSURE),
    Case("long, falls back by compression", "long",
         STAMPS | {"temperature": [0.0, 1e-4], "compression_ratio_threshold": 1.5, "num_beams": 3},
         falls_back),
    Case("long, falls back while conditioned", "long",
         STAMPS | {"temperature": [0.0, 1e-4], "num_beams": 3, "condition_on_prev_tokens": True},
         falls_back, UNSURE),
    Case("fallback without timestamps", "short",
         {"temperature": [0.0, 1e-4], "logprob_threshold": -0.2, "num_beams": 5},
         lambda row: len(row["calls"]) > 1),
    Case("sampled", "short", STAMPS | {"temperature": 0.7, "seed": 0}),
    Case("long, falls back to samples", "long",
         STAMPS | {"temperature": [0.0, 0.2, 0.4, 0.6, 0.8, 1.0], "condition_on_prev_tokens": True,
                   "compression_ratio_threshold": 1.5, "seed": 0}, falls_back, UNSURE),
    Case("long batch", ("long-0", "long-1"), STAMPS),
    Case("long batch, conditioned", ("long-1", "long-0", "long-2"),
         STAMPS | {"condition_on_prev_tokens": True}),
]  # fmt: skip
LANGUAGE = [
    Case("language", "short", {"language": "fr"}),
    Case("language by its name", "short", STAMPS | {"language": "German"}, varied),
    Case("language by its token, translated", "short",
         STAMPS | {"language": "<|es|>", "task": "translate"}, varied),
    Case("task alone", "short", {"task": "translate"}),
    Case("a language for each", ("short-0", "short-1"), STAMPS | {"language": ["ja", "de"]}),
    Case("long, translated", "long", STAMPS | {"task": "translate"}, varied),
    # without languages 4.57.6 takes scores for log-probabilities once beams are given up
    Case("long, silence cancels fallback", "long",
         STAMPS | {"temperature": [0.0, 1e-4], "num_beams": 3, "no_speech_threshold": 0.5},
         lambda row: skips(row) and falls_back(row), UNSURE),
]  # fmt: skip
WORDS = STAMPS | {"return_token_timestamps": True}
TIMED = [
    Case("words", "short", WORDS, varied),
    Case("words without timestamps", "short", {"return_token_timestamps": True}),
    Case("words of beams", "short", WORDS | {"num_beams": 3}, rich),
    Case("words after a prompt", "short", WORDS | {"prompt": "the rain"}, varied),
    Case("words of a full window", "full", WORDS),
    Case("words of half a second", "tiny", WORDS),
    Case("words of silence", "silence", WORDS),
    Case("long, words", "long", WORDS, varied),
    Case("long, words, conditioned", "long", WORDS | {"condition_on_prev_tokens": True}, varied),
    Case("long, words of beams", "long", WORDS | {"num_beams": 3}, varied),
    Case("words of a batch", ("short-0", "short-1"), WORDS),
]  # fmt: skip
MOONSHINE = [
    Case("plain", "short", {"max_new_tokens": 24}, rich),
    Case("beams", "short", {"max_new_tokens": 24, "num_beams": 5}),
    Case("half a second", "tiny", {"max_new_tokens": 12}),
    Case("silence", "silence", {"max_new_tokens": 24}),
    Case("full window", "full", {"max_new_tokens": 40}),
    # as the model card has it: 6.5 tokens a second, the start token among them
    Case("tokens by the second", "short", {"max_length": "seconds"}),
    Case("tokens by half a second", "tiny", {"max_length": "seconds"}),
]
