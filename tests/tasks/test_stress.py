"""A hundred generations of every kind and end, and some loads: nothing of ours stays behind.

scripts/stress.py runs thousands of them, and looks at the resident set too.
"""

import numpy as np
import pytest

from scripts import stress


@pytest.fixture(scope="module", autouse=True)
def warmed():
    stress.warm(10, 4)


@pytest.mark.parametrize("threads", [1, 8])
def test_buffers_threads_and_files_are_as_before(threads):
    before = stress.State.now()
    stress.generations(60, threads, seed=5)
    assert stress.State.now() == before


def test_models_are_let_go_as_a_whole():
    stress.loads(3)
    before = stress.State.now()
    stress.loads(9)
    assert stress.State.now() == before


def test_what_stays_behind_is_seen():
    before, kept = stress.State.now(), []
    for job, _ in zip(stress.jobs(5), range(3), strict=False):
        kept.append(stress.model("llama").model.start(8))
        job.run()
    assert stress.State.now() != before
    assert stress.State.now().alive["Decoder"] == before.alive["Decoder"] + 3
    kept.clear()
    assert stress.State.now() == before


def test_a_slope_is_that_of_the_last_two_thirds():
    rng = np.random.default_rng(0)
    settled = [1000 + min(i, 30) * 50 + float(rng.normal(0, 5)) for i in range(90)]
    growth, noise = stress.slope(settled)
    assert abs(growth) < 3 * noise
    leaking = [kb + 20 * i for i, kb in enumerate(settled)]
    growth, noise = stress.slope(leaking)
    assert growth == pytest.approx(20 / stress.EVERY, rel=0.05)
    assert growth - 3 * noise > 1.5


def test_memory_in_use_is_seen_to_the_byte():
    if stress.mallinfo() is None:
        pytest.skip("another C library than glibc")
    before = stress.used_kb()
    kept = np.zeros(64_000, np.uint8)
    assert stress.used_kb() - before == pytest.approx(64, abs=2)
    del kept
    assert stress.used_kb() - before == pytest.approx(0, abs=2)
