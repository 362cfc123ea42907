"""The works of bench_peers.py: which prompts, how many new tokens, and by whom.

Random prompts tell the speed at a given length, texts whether the tokens are the same.
"""

import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
OURS = "onnxgen"
RAGGED = range(16, 129, 16)  # lengths of the prompts of a batch
COPIED = 300  # new tokens of a text that is copied
LONGEST = 1000  # no fixed prompt has more tokens
KINDS = ("prompts", "texts", "copying", "batch")

TEXTS = (
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having "
    "nothing to do: once or twice she had peeped into the book her sister was reading,",
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, "
    "must be in want of a wife. However little known the feelings or views of such a man may be",
    "Call me Ishmael. Some years ago, never mind how long precisely, having little or no money in "
    "my purse, and nothing particular to interest me on shore, I thought I would sail about",
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Once upon a time there was a clockmaker who",
    "To bake bread you need flour, water, salt and",
    "Water boils at 100 degrees because",
    "1, 1, 2, 3, 5, 8, 13,",
    "Dear Sir or Madam,\n\nI am writing to",
    "The three laws of motion say that",
    "SELECT name, age FROM people WHERE",
    "Q: Why is the sky blue?\nA:",
    "Der Hund läuft über die Straße und",
    "In the year 1492",
    "<html>\n<head>\n<title>",
    "The most important thing about sleep is",
    "Photosynthesis is the process by which",
    "- apples\n- pears\n-",
    "She opened the letter, read it twice, and",
)
# A text to be rewritten with one word changed, shown by a few such changes: a small model of 4 bits
# does not copy on demand.
VERSION = (
    "The harbour of {} lies where the river meets the sea. Every morning, long before the sun "
    "comes over the hills, the fishermen carry their nets to the boats and row out in silence. "
    "They know each rock and each current, and they speak little, because voices travel far over "
    "still water. When they come back, the market is already open. Women in blue aprons sort the "
    "catch on wooden tables: herring, cod, two kinds of crab, and now and then a salmon that has "
    "lost its way.\n\n"
)
COPY = "".join(map(VERSION.format, ("Linden", "Marlow", "Tarn", "Oxley", "Brent")))
COPY += "The harbour of Selwick"

Ids = list[int]


@dataclass(frozen=True)
class Entrant:
    """Who does a work: batches of prompts, with options of onnxgen's."""

    label: str
    peer: str
    batches: list[list[Ids]]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def prompts(self) -> list[Ids]:
        return [prompt for batch in self.batches for prompt in batch]

    @property
    def plain(self) -> bool:
        """Whether its tokens are those that others are judged by."""
        return self.peer == OURS and not self.options and len(self.batches[0]) == 1


@dataclass(frozen=True)
class Work:
    """What is measured; the first entrant is the one that the others are compared with."""

    name: str
    new: int
    entrants: list[Entrant]
    repeats: int


@dataclass(frozen=True)
class Plan:
    """What is to be measured: kinds of work, prompt lengths, new tokens, guesses, rounds."""

    kinds: Sequence[str]
    contexts: Sequence[int]
    new: int
    lookup: int
    repeats: int

    @property
    def capacity(self) -> int:
        """Tokens of the longest prompt and answer."""
        return max(*self.contexts, LONGEST) + max(self.new, COPIED)


def works(folder: Path, peers: Sequence[str], reference: bool, plan: Plan) -> Iterator[Work]:
    """What ``peers`` do with the model in ``folder``; ``reference``: one of them tells the tokens.

    Only models without one, whose speed is the question, copy and run batches.
    """
    resolve = importlib.import_module("onnxgen.files").resolve
    kind = importlib.import_module("onnxgen.text.tokenizer").Tokenizer
    tokenizer = kind.from_files(resolve(folder))
    size = tokenizer.backend.get_vocab_size()
    chosen = np.random.default_rng(0)
    new, repeats = plan.new, plan.repeats

    def random(length: int) -> Ids:
        return list(chosen.integers(10, size - 10, length).tolist())

    for context in plan.contexts if "prompts" in plan.kinds else ():
        prompt = [[random(context)]]
        yield Work(f"prompt {context}", new, [Entrant(p, p, prompt) for p in peers], repeats)
    texts = [[tokenizer.encode(text)] for text in TEXTS[: None if reference else 3]]
    if "texts" in plan.kinds:
        yield Work(f"{len(texts)} texts", new // 2, [Entrant(p, p, texts) for p in peers], 1)
    if reference:
        return
    guesses = {"prompt_lookup_num_tokens": plan.lookup}
    copied = [[tokenizer.encode(COPY)]]
    for name, prompts, count in ("copying", copied, COPIED), ("not copying", texts, new // 2):
        lookup = Entrant(f"{OURS}, lookup", OURS, prompts, guesses)
        plain = Entrant(f"{OURS}, plain", OURS, prompts)
        if "copying" in plan.kinds:
            yield Work(name, count, [lookup, plain], repeats)
    rows = [random(length) for length in reversed(RAGGED)]
    batch = [Entrant(p, p, [rows]) for p in peers if p in (OURS, "genai")]
    batch.append(Entrant(f"{OURS}, 1 row", OURS, [rows[:1]]))
    if "batch" in plan.kinds:
        yield Work(f"ragged batch of {len(rows)}", new, batch, repeats)
