"""Embeddings from a turned table in a file, against NumPy's reading of the whole."""

import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from onnxgen.errors import ModelFileError
from onnxgen.files import columns
from onnxgen.files.columns import Columns
from onnxgen.files.lookup import Table
from tests.embedding_tables import HIDDEN, TOKENS, written


@pytest.fixture(params=["float32", "float16"])
def table(request, tmp_path: Path) -> tuple[Table, np.ndarray]:
    return written(tmp_path, request.param, turned=True)


def refused(*_):
    raise AssertionError("read in the other way")


@pytest.mark.parametrize(
    ("price", "other"), [(0, "_passed"), (1 << 40, "_column")], ids=["by number", "in one pass"]
)
@pytest.mark.parametrize("stripe", [1, 5000, 1 << 20])
def test_columns_are_those_of_the_table(table, price, other, stripe, monkeypatch):
    monkeypatch.setattr(columns, "READ", price)
    monkeypatch.setattr(columns, "STRIPE", stripe)
    own, numbers = table
    reader = Columns(own)
    monkeypatch.setattr(Columns, other, refused)
    places = np.array([[0, 639, 47], [47, 300, 0]])
    found = reader.take(places)
    assert found.dtype == numbers.dtype
    assert np.array_equal(found, numbers[places])  # (2,3,H)


def test_many_are_read_in_one_pass_and_few_by_number(table, monkeypatch):
    own, numbers = table
    monkeypatch.setattr(columns, "READ", own.nbytes // HIDDEN // 4)  # four columns take as long
    for count, other in (4, "_passed"), (5, "_column"):
        reader, places = Columns(own), np.arange(100, 100 + count)
        with monkeypatch.context() as patch:
            patch.setattr(Columns, other, refused)
            assert np.array_equal(reader.take(places), numbers[places])


def reads(monkeypatch) -> list[int]:
    """Grows by the place of each number that is read by itself."""
    made, read = [], os.pread
    monkeypatch.setattr(columns, "READ", 0)
    monkeypatch.setattr(os, "pread", lambda *where: (made.append(where[2]), read(*where))[1])
    return made


def test_the_lowest_are_there_from_the_start(table, monkeypatch):
    own, numbers = table
    reader, made = Columns(own), reads(monkeypatch)
    most = TOKENS // columns.KEPT
    assert np.array_equal(reader.take(np.arange(most)), numbers[:most])
    assert not made


def test_the_latest_used_are_kept_and_no_more(table, monkeypatch):
    own, numbers = table
    reader, made = Columns(own), reads(monkeypatch)
    most = TOKENS // columns.KEPT
    for place in range(100, 100 + most - 1):
        reader.take(np.array([3, place]))
    assert len(made) == HIDDEN * (most - 1)
    kept = np.array([3, *range(100, 100 + most - 1)])
    assert np.array_equal(reader.take(kept), numbers[kept])
    assert len(made) == HIDDEN * (most - 1)  # all of these were there
    assert np.array_equal(reader.take(np.array([4])), numbers[[4]])
    assert len(made) == HIDDEN * most  # which had made room


def test_more_than_are_kept_can_be_taken_at_once(table):
    own, numbers = table
    places = np.random.default_rng(1).integers(0, TOKENS, 2000)
    reader = Columns(own)
    for _ in range(2):
        assert np.array_equal(reader.take(places), numbers[places])


def test_a_slow_file_is_read_once(table, monkeypatch):
    own, numbers = table
    reader = Columns(own)
    monkeypatch.setattr(columns, "SLOW", -1)
    monkeypatch.setattr(columns, "READ", 0)
    assert np.array_equal(reader.take(np.array([300])), numbers[[300]])
    monkeypatch.setattr(os, "pread", refused)
    every = np.arange(TOKENS)[None]
    assert np.array_equal(reader.take(every), numbers[every])


@pytest.mark.parametrize("price", [0, 1 << 40], ids=["by number", "in one pass"])
def test_a_file_that_was_cut_is_told_of(table, price, monkeypatch):
    own, _ = table
    reader = Columns(own)
    monkeypatch.setattr(columns, "READ", price)
    os.truncate(own.path, 5001 + own.nbytes - 1)
    with pytest.raises(ModelFileError, match="does not hold the embeddings that it held"):
        reader.take(np.array([TOKENS - 1]))


def test_threads_share_a_reader(table):
    own, numbers = table
    reader, wrong = Columns(own), []

    def work(seed: int) -> None:
        chosen = np.random.default_rng(seed)
        for _ in range(100):
            places = chosen.integers(0, TOKENS, (2, chosen.integers(1, 9)))
            if not np.array_equal(reader.take(places), numbers[places]):
                wrong.append(places)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_pass_gives_its_pages_back(tmp_path):
    rows, wide = 64, 1 << 18  # 64 MB
    path = tmp_path / "large"
    np.ones((rows, wide), np.float32).tofile(path)
    reader = Columns(Table(path, 0, wide, rows, "float32", turned=True))
    assert (reader.take(np.arange(0, wide, 1000)) == 1).all()
    lines = Path("/proc/self/smaps").read_text().partition(str(path))[2].splitlines()
    resident = next(line for line in lines if line.startswith("Rss:"))
    assert int(resident.split()[1]) < 1 << 10  # kB
