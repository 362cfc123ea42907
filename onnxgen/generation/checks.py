"""Values of options, checked once when what they configure is built; never in the hot loop."""

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from onnxgen.errors import OptionError
from onnxgen.generation.protocol import Ints

# Factors beyond these take float32 scores of any real model to infinity or to zero.
SMALLEST, LARGEST = 1e-30, 1e30


def whole(name: str, value: Any, least: int = 0) -> int:
    """``value`` as an int of ``least`` or more; OptionError for all else."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise OptionError(f"{name} is {value!r}", wanted=f"a whole number of {least} or more")
    return int(value)


def number(name: str, value: Any, low: float, high: float) -> float:
    """``value`` as a float from ``low`` to ``high``, both included; OptionError for all else."""
    real = isinstance(value, int | float | np.integer | np.floating)
    if isinstance(value, bool) or not real or not low <= value <= high:
        raise OptionError(f"{name} is {value!r}", wanted=f"a number from {low:g} to {high:g}")
    return float(value)


def share(name: str, value: Any) -> float:
    """``value`` as a float between 0 and 1, both excluded; OptionError for all else."""
    checked = number(name, value, 0, 1)
    if checked in (0, 1):
        raise OptionError(f"{name} is {value!r}", wanted="a number between 0 and 1, both excluded")
    return checked


def factor(name: str, value: Any) -> float:
    """``value`` if it is a float above 0. An int is an error, as in transformers."""
    checked = float(value) if isinstance(value, float | np.floating) else 0.0
    if not SMALLEST <= checked <= LARGEST:
        wanted = f"a float above 0 with its point, such as 1.2 ({SMALLEST:g} to {LARGEST:g})"
        raise OptionError(f"{name} is {value!r}", wanted=wanted)
    return checked


def finite(name: str, value: Any) -> float:
    """``value`` if it is a float from -1e30 to 1e30; OptionError for all else."""
    checked = float(value) if isinstance(value, float | np.floating) else np.inf
    if not abs(checked) <= LARGEST:
        raise OptionError(f"{name} is {value!r}", wanted="a finite float with its point")
    return checked


def token_ids(name: str, ids: Any, vocab_size: int, *, empty: bool = False) -> Ints:
    """One id or several as an array; OptionError for what is no id below ``vocab_size``."""
    if isinstance(ids, str | bytes) or not isinstance(ids, int | np.integer | Iterable):
        raise OptionError(f"{name} is {ids!r}", wanted="token ids")
    try:
        array = np.atleast_1d(np.asarray(list(ids) if isinstance(ids, Iterable) else ids))
    except (TypeError, ValueError) as error:  # ragged lists, an array without axes
        raise OptionError(f"{name} holds what is no id", wanted="token ids") from error
    if not array.size and empty:
        return np.zeros(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not array.size:
        raise OptionError(f"{name} is empty or holds what is no id", wanted="token ids")
    outside = array[(array < 0) | (array >= vocab_size)]
    if outside.size:
        raise OptionError(
            f"{name} holds the token id {outside[0]}", wanted=f"ids from 0 to {vocab_size - 1}"
        )
    return array.astype(np.int64)


def reachable(ids: Collection[int], vocab_size: int) -> Ints:
    """Those of the stop ids that the model can choose; a list of them may name others."""
    return np.array(sorted(i for i in ids if i < vocab_size), np.int64)
