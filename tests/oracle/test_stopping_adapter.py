"""The adapter of criteria answers as transformers' classes do, in the calls of their tests."""

import subprocess
import sys
import time

import numpy as np
import pytest

from tests.text.goldens import FIXTURES

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def ours():
    from tests.oracle import stopping_adapter

    return stopping_adapter


@pytest.fixture(scope="module")
def theirs():
    from transformers.generation import stopping_criteria

    return stopping_criteria


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(FIXTURES / "tokenizers" / "gpt2")


def ids(*rows):
    import torch

    return torch.tensor(rows)


def test_all_names_are_transformers(ours, theirs):
    assert all(hasattr(theirs, name) for name in ours.NAMES)


@pytest.mark.parametrize("length", [5, 9, 10, 11])
def test_lengths(ours, theirs, length):
    given = ids([7] * length, [3] * length)
    found = [each.MaxLengthCriteria(max_length=10)(given, None) for each in (ours, theirs)]
    assert found[0].tolist() == found[1].tolist() == [length >= 10] * 2


def test_times(ours):
    given = ids([1, 2], [3, 4])
    assert not ours.MaxTimeCriteria(max_time=60.0)(given, None).any()
    past = ours.MaxTimeCriteria(max_time=60.0, initial_timestamp=time.time() - 61)
    assert past(given, None).tolist() == [True, True]
    soon = ours.MaxTimeCriteria(max_time=0.01)
    time.sleep(0.02)
    assert soon(given, None).all()


@pytest.mark.parametrize("eos", [0, [0], [0, 2]])
def test_stop_ids(ours, theirs, eos):
    given = ids([5, 0], [5, 1], [0, 5], [1, 2])
    found = [each.EosTokenCriteria(eos_token_id=eos)(given, None) for each in (ours, theirs)]
    assert found[0].tolist() == found[1].tolist() == [True, False, False, eos == [0, 2]]


@pytest.mark.parametrize(
    ("stops", "texts"),
    [
        ("stop", ["so we stop", "stop it", "nonstop", "topper", "sto", "st op", "unstoppable"]),
        (["the end", "."], ["this is the end", "The end", "done.", "this is the en", "..."]),
        (["a"], ["a", "baa", "cab", "abc", "b"]),
        (["<|endoftext|>"], ["no<|endoftext|>", "no"]),
    ],
)
def test_stop_strings(ours, theirs, tokenizer, stops, texts):
    ended = []
    for text in texts:
        given = ids(tokenizer(text, add_special_tokens=False)["input_ids"])
        found = [
            each.StopStringCriteria(tokenizer=tokenizer, stop_strings=stops)(given, None)
            for each in (ours, theirs)
        ]
        assert found[0].tolist() == found[1].tolist(), text
        ended += found[0].tolist()
    assert len(set(ended)) == 2  # some texts end and some go on


def test_lists_end_a_row_if_any_of_them_does(ours, tokenizer):
    given = ids([1, 2, 0], [1, 2, 3])
    several = ours.StoppingCriteriaList(
        [ours.MaxLengthCriteria(max_length=4), ours.EosTokenCriteria(eos_token_id=0)]
    )
    assert several(given, None).tolist() == [True, False]
    assert several(ids([1, 2, 3, 4]), None).tolist() == [True]
    assert not ours.StoppingCriteriaList()(given, None).any()


def test_validation_fills_in_a_length_and_warns_of_another(ours):
    ten = ours.StoppingCriteriaList([ours.MaxLengthCriteria(10)])
    assert ours.validate_stopping_criteria(ten, 10).max_length == 10
    with pytest.warns(UserWarning, match="max_length"):
        ours.validate_stopping_criteria(ten, 11)
    nothing = ours.StoppingCriteriaList()
    assert ours.validate_stopping_criteria(nothing, 11).max_length == 11
    assert len(nothing) == 0


FILE = """
import time
import unittest
import torch
from transformers.generation import (
    EosTokenCriteria, MaxLengthCriteria, MaxTimeCriteria, StoppingCriteriaList, StopStringCriteria,
    validate_stopping_criteria,
)

class Calls(unittest.TestCase):
    def test_calls(self):
        made = [MaxLengthCriteria(max_length=3), MaxTimeCriteria(max_time=9.0)]
        criteria = StoppingCriteriaList(made)
        for each in (criteria, *made, EosTokenCriteria(eos_token_id=0)):
            self.assertEqual(type(each).__module__, "__main__")  # the program's
        self.assertFalse(all(criteria(torch.ones(2, 2, dtype=torch.long), torch.ones(2, 2))))
        self.assertTrue(all(criteria(torch.ones(2, 3, dtype=torch.long), torch.ones(2, 3))))
        with self.assertWarns(UserWarning):
            validate_stopping_criteria(criteria, 4)
        late = MaxTimeCriteria(max_time=0.1, initial_timestamp=time.time() - 0.2)
        self.assertTrue(all(late(torch.ones(2, 2, dtype=torch.long), None)))

    def test_tables(self):
        words = ["last", "top", "topper", "s", "p"]
        found = StopStringCriteria._stop_string_get_matching_positions(
            token_list=words, token_indices=list(range(5)), stop_strings=["stop"]
        )
        self.assertEqual(len(found), 2)
"""


def test_transformers_names_are_replaced_for_a_file(tmp_path):
    """In a process of its own, since the names stay replaced."""
    path = tmp_path / "test_given.py"
    path.write_text(FILE)
    command = [sys.executable, "-m", "tests.oracle.stopping_adapter", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_rows_of_random_ids(ours, theirs):
    rng = np.random.default_rng(0)
    for _ in range(50):
        given = ids(*rng.integers(0, 6, (4, 7)).tolist())
        for name, value in [("MaxLengthCriteria", 7), ("EosTokenCriteria", [1, 4])]:
            found = [getattr(each, name)(value)(given, None) for each in (ours, theirs)]
            assert found[0].tolist() == found[1].tolist()
