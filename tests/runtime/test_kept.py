"""Logits that stay where they are: parts join in the order of their rows, and rows are picked."""

import numpy as np
import pytest

from onnxgen.runtime.device import Device
from onnxgen.runtime.kept import joined
from tests.fixture_models import found, padded

DEVICE = Device()


def part(rows, dtype):
    """Rows whose logits (3,) are ten times their number, and the next two."""
    values = (10 * np.array(rows)[:, None] + np.arange(3)).astype(np.float32)
    words = (values.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bfloat16" else None
    held = values.astype(dtype) if words is None else words
    memory = DEVICE.memory(held.nbytes)
    memory.array(held.shape, held.itemsize)[...] = held.view(f"u{held.itemsize}")
    return np.array(rows), memory


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_parts_join_in_the_order_of_their_rows(dtype):
    whole = joined([part([1, 4], dtype), part([0], dtype), part([2, 3], dtype)], DEVICE, 3, dtype)
    assert whole.host().tolist() == [[10 * i, 10 * i + 1, 10 * i + 2] for i in range(5)]
    assert whole.host().dtype == np.float32
    assert whole[np.array([4, 4, 0])].host()[:, 0].tolist() == [40, 40, 0]


def test_one_part_is_not_copied():
    rows, memory = part([0, 1], "float32")
    assert joined([(rows, memory)], DEVICE, 3, "float32").memory is memory


@pytest.mark.parametrize("fixture", found("handmade"), ids=lambda f: f.name)
def test_steps_keep_the_logits_that_they_would_give(fixture):
    rows = [fixture.prompts[i] for i in (2, 0, 1)]
    model = fixture.model()
    plain, keeping = model.start(40), model.start(40)
    tokens, lengths = padded(rows)
    for _ in range(3):
        expected = plain.step(tokens, lengths).copy()
        kept = keeping.step_kept(tokens, lengths)
        assert np.array_equal(kept.host(), expected)
        tokens, lengths = expected.argmax(-1)[:, None], np.ones(3, np.int64)
