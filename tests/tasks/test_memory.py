"""Hundreds of answers leave the process as large as it was."""

import gc

import psutil
import pytest

from tests.tasks.encoder_decoders import found, load


def resident() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


@pytest.mark.parametrize(
    "fixture",
    [f for f in found() if f.folder.name in {"vit-gpt2", "t5", "donut"}],
    ids=lambda f: f.folder.name,
)
def test_200_answers_in_a_row_leave_memory_flat(fixture):  # known problem P4
    model, inputs = load(fixture.folder, False), fixture.inputs()
    for i in range(50):
        model.generate(inputs[i % len(inputs)], max_new_tokens=8, num_beams=1 + i % 2)
    before = resident()
    for i in range(200):
        model.generate(inputs[i % len(inputs)], max_new_tokens=8, num_beams=1 + i % 2)
    # 10 kB an answer would be a leak; allocators move by less than a megabyte here.
    assert resident() - before < 2_000_000
