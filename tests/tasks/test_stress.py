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


def test_what_is_not_to_be_cancelled_is_not(capsys):
    stress.generations(30, 1, seed=5, cancels=False)
    assert "cancelled" not in capsys.readouterr().out


def test_growth_is_that_of_the_last_two_thirds():
    rng = np.random.default_rng(0)
    done = list(range(0, 900, 10))
    settled = [1000 + min(n, 300) * 5 + float(rng.normal(0, 5)) for n in done]
    found = stress.growth(done, settled)
    assert abs(found.each) < stress.most(found.noise)
    found = stress.growth(done, [kb + 2 * n for n, kb in zip(done, settled, strict=True)])
    assert found.each == pytest.approx(2, rel=0.05)
    assert found.each > stress.most(found.noise)


@pytest.mark.parametrize("grows", ["used", "resident", None])
def test_a_part_is_as_before_where_neither_memory_grows(grows):
    used, resident = (2.0 * (grows == name) for name in ("used", "resident"))
    samples = [stress.Sample(n, 1000 + used * n, 5000 + resident * n) for n in range(0, 900, 10)]
    assert stress.part("a part", lambda: samples) == (grows is None)


def test_memory_in_use_is_seen_to_the_byte():
    if stress.mallinfo() is None:
        pytest.skip("another C library than glibc")
    before = stress.used_kb()
    kept = np.zeros(64_000, np.uint8)
    assert stress.used_kb() - before == pytest.approx(64, abs=2)
    del kept
    assert stress.used_kb() - before == pytest.approx(0, abs=2)
