"""Random texts of fields, beside transformers' own reading of them."""

import random
from types import SimpleNamespace

import pytest

from onnxgen.tasks.markup import to_json

pytestmark = pytest.mark.oracle
ADDED = {"<yes/>", "<no/>"}


def token2json(text):
    from transformers import DonutProcessor

    tokenizer = SimpleNamespace(get_added_vocab=lambda: dict.fromkeys(ADDED, 0))
    holder = SimpleNamespace(tokenizer=tokenizer)
    holder.token2json = lambda *a, **k: DonutProcessor.token2json(holder, *a, **k)
    return holder.token2json(text)


def text(rng, depth=0):
    """A few fields, some of them broken."""
    parts = []
    for _ in range(rng.randint(0, 4)):
        name = rng.choice("abc")
        inside = (
            text(rng, depth + 1)
            if depth < 2 and rng.random() < 0.4
            else rng.choice(["1", " x ", "one<sep/>two", "<yes/>", "<no/><sep/>z", ""])
        )
        begin = f"<s_{name}>" if rng.random() < 0.95 else ""
        end = f"</s_{name}>" if rng.random() < 0.9 else ""
        parts += [begin, inside, end, rng.choice(["", "", " ", "<sep/>", "word"])]
    return "".join(parts)


def test_as_transformers_reads_them():
    rng = random.Random(0)
    for _ in range(3000):
        own = text(rng)
        assert to_json(own, ADDED) == token2json(own), own
