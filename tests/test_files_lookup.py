"""Embeddings from a table in a file, against NumPy's reading of the whole."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onnxgen.errors import ModelFileError, OptionError
from onnxgen.files.columns import Columns
from onnxgen.files.lookup import Reader, Rows, Table
from tests.embedding_tables import TOKENS, written


@pytest.fixture(params=["float32", "float16"])
def table(request, tmp_path: Path) -> tuple[Table, np.ndarray]:
    return written(tmp_path, request.param, turned=False)


@pytest.fixture(params=[Rows, Columns])
def reader(request, tmp_path: Path) -> Reader:
    return request.param(written(tmp_path, "float32", request.param is Columns)[0])


def test_rows_are_those_of_the_table(table):
    own, numbers = table
    tokens = np.array([[0, 639, 47], [47, 300, 0]])
    found = Rows(own).take(tokens)
    assert found.dtype == numbers.dtype
    assert np.array_equal(found, numbers[tokens])  # (2,3,H)


@pytest.mark.parametrize("wrong", [-1, TOKENS, 10**9])
def test_what_is_no_token_is_refused(reader, wrong):
    with pytest.raises(OptionError, match=f"no embedding for the token id {wrong}\nwanted: .* 639"):
        reader.take(np.array([[3, wrong]]))


def test_a_file_that_was_cut_is_told_of(table):
    own, numbers = table
    reader = Rows(own)
    os.truncate(own.path, own.offset + own.nbytes - 1)
    assert np.array_equal(reader.take(np.array([TOKENS - 2])), numbers[[TOKENS - 2]])
    with pytest.raises(ModelFileError, match="does not hold the embeddings that it held"):
        reader.take(np.array([0, TOKENS - 1]))


def test_a_file_that_is_not_there_or_too_short_is_told_of(reader):
    own, kind = reader.table, type(reader)
    for wrong in replace(own, path=own.path.with_name("none")), replace(own, offset=5101):
        with pytest.raises(ModelFileError, match="does not hold"):
            kind(wrong)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_the_file_is_closed_when_its_reader_goes(table):
    own, _ = table
    reader = Rows(own)
    assert own.path in open_files()
    del reader
    assert own.path not in open_files()


def open_files() -> set[Path]:
    """What the process has open; the listing's own number is gone by the time it is looked up."""
    return {number.resolve() for number in Path("/proc/self/fd").iterdir()}
