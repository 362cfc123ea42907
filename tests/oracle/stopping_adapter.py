"""onnxgen's ways to end a row under the names and with the tensors of transformers.generation.

Runs transformers' own tests against them, from a checkout at the version of the oracle:

    python -m tests.oracle.stopping_adapter CHECKOUT/tests/generation/test_stopping_criteria.py

What these ask of the inside of ``StopStringCriteria``, two static methods of its tables, meets
transformers' own, for onnxgen has no such tables.

Letters: R rows, L ids so far.
"""

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np
import pytest
import torch
import transformers.generation
from transformers.generation import stopping_criteria

from onnxgen.generation.loop import Clock, Row
from onnxgen.generation.stopping import Criterion, any_of, stop_strings
from onnxgen.text.loading import Loaded
from onnxgen.text.token_bytes import token_bytes
from onnxgen.text.tokenizer import Tokenizer

FOREVER = 1 << 40
THEIRS = stopping_criteria.StopStringCriteria


class Adapted:
    """What ends rows of onnxgen's, called as transformers' criteria are."""

    def ends(self, ids: np.ndarray) -> bool:
        """Whether a row ends that has come to ``ids`` (L,)."""
        raise NotImplementedError

    def __call__(self, input_ids: torch.Tensor, scores: Any, **others: Any) -> torch.Tensor:
        """Which (R,) of ``input_ids`` (R,L) end."""
        ended = [self.ends(row) for row in input_ids.cpu().numpy()]
        return torch.tensor(ended, device=input_ids.device)


def pushed(
    ids: np.ndarray,
    budget: int = FOREVER,
    stop_ids: frozenset[int] = frozenset(),
    criterion: Criterion | None = None,
) -> bool:
    """Whether a row that takes the last of ``ids`` (L,) as its next token ends with it."""
    row = Row(0, ids[:-1].tolist(), budget, stop_ids, criterion)
    row.push(int(ids[-1]))
    return row.finish_reason is not None


class MaxLengthCriteria(Adapted):
    """A row's budget: what the length leaves behind its prompt, one token at least."""

    def __init__(self, max_length: int, max_position_embeddings: int | None = None) -> None:
        self.max_length = max_length

    def ends(self, ids: np.ndarray) -> bool:
        return pushed(ids, budget=max(self.max_length - len(ids) + 1, 1))


class MaxTimeCriteria(Adapted):
    """A request's clock."""

    def __init__(self, max_time: float, initial_timestamp: float | None = None) -> None:
        self.clock = Clock(max_time)
        if initial_timestamp is not None:
            self.clock._ticks[0] -= time.time() - initial_timestamp

    def ends(self, ids: np.ndarray) -> bool:
        self.clock.tick()
        return self.clock.expired()


class EosTokenCriteria(Adapted):
    """A row's stop ids."""

    def __init__(self, eos_token_id: int | list[int] | torch.Tensor) -> None:
        self.stop_ids = frozenset(np.atleast_1d(np.array(eos_token_id)).tolist())

    def ends(self, ids: np.ndarray) -> bool:
        return pushed(ids, stop_ids=self.stop_ids)


class StopStringCriteria(Adapted):
    """Stop strings, by the bytes of tokens."""

    _stop_string_get_matching_positions = staticmethod(THEIRS._stop_string_get_matching_positions)
    _stop_string_create_embedding_vec = staticmethod(THEIRS._stop_string_create_embedding_vec)

    def __init__(self, tokenizer: Any, stop_strings: str | Sequence[str]) -> None:
        self.criterion = _stops(tokenizer, stop_strings)

    def ends(self, ids: np.ndarray) -> bool:
        return pushed(ids, criterion=self.criterion)


def _stops(tokenizer: Any, texts: str | Sequence[str]) -> Criterion:
    loaded = Loaded(tokenizer.backend_tokenizer, {}, "left", clean_up=False, whisper=False)
    return stop_strings(texts, token_bytes(Tokenizer(loaded)))


class StoppingCriteriaList(list, Adapted):
    """Any of several, as one."""

    def ends(self, ids: np.ndarray) -> bool:
        criterion = any_of([each.ends for each in self])
        return criterion is not None and criterion(ids)

    @property
    def max_length(self) -> int | None:
        """That of the last that has one."""
        lengths = [each.max_length for each in self if isinstance(each, MaxLengthCriteria)]
        return lengths[-1] if lengths else None


def validate_stopping_criteria(
    criteria: StoppingCriteriaList, max_length: int
) -> StoppingCriteriaList:
    """Criteria that surely end; rows of onnxgen's have one budget, which nothing contradicts."""
    found = copy(criteria)
    if found.max_length is None:
        found.append(MaxLengthCriteria(max_length))
    elif found.max_length != max_length:
        warnings.warn("the criteria have another max_length", UserWarning, stacklevel=2)
    return found


NAMES: dict[str, Callable[..., Any]] = {
    made.__name__: made
    for made in (
        MaxLengthCriteria,
        MaxTimeCriteria,
        EosTokenCriteria,
        StopStringCriteria,
        StoppingCriteriaList,
        validate_stopping_criteria,
    )
}


def main(arguments: list[str]) -> int:
    """Runs pytest on the file named first, with these names in place of transformers'."""
    for name, made in NAMES.items():
        for module in (transformers, transformers.generation, stopping_criteria):
            if hasattr(module, name):
                setattr(module, name, made)
    return pytest.main(["-o", "addopts=", "-p", "no:cacheprovider", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
