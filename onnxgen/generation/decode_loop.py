"""``decode_loop``: the driver for any forward function, with no model behind it.

For callers that bring their own step: a compiled function, another runtime, a toy in a test. The
caller has done the prefill, so ``cache`` holds the prompt but for ``first_token``.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from onnxgen.errors import OptionError

Forward = Callable[[Any, Any, Any, Any], tuple[Any, Any]]


def argmax(logits: Any) -> int:
    """The index of the largest of ``logits``, flattened; of equals the lowest."""
    return int(np.asarray(logits).reshape(-1).argmax())


def decode_loop(
    forward: Forward,
    *,
    cache: Any,
    params: Any,
    first_token: int,
    max_new_tokens: int,
    offset: int = 0,
    eos: int | Iterable[int] = (),
    select: Callable[[Any], int] = argmax,
    on_token: Callable[[int], None] | None = None,
) -> list[int]:
    """Decodes one token at a time with ``forward(token, offset, cache, params)``.

    ``forward`` gets the token as int32 (1,), its absolute position as an int32 scalar, the cache
    that it returned last and ``params``; it gives the logits of that position and the next cache.
    ``first_token`` is fed and not returned. ``on_token`` sees each new token before the stop test;
    a token in ``eos`` ends the loop and is returned. A budget of 0 or less gives an empty list
    without a call. Positions are not checked against the cache: its size is the caller's.

    OptionError for a forward that does not take four arguments.
    """
    _check_arity(forward)
    stop_ids = frozenset([eos] if isinstance(eos, int) else eos)
    tokens: list[int] = []
    token = first_token
    for position in range(offset, offset + max_new_tokens):
        fed = np.array([token], np.int32)  # (1,)
        logits, cache = forward(fed, np.int32(position), cache, params)
        token = int(select(logits))
        if on_token is not None:
            on_token(token)
        tokens.append(token)
        if token in stop_ids:
            break
    return tokens


def _check_arity(forward: Forward) -> None:
    try:
        inspect.signature(forward).bind(None, None, None, None)
    except TypeError as error:
        raise OptionError(
            f"forward cannot be called with four arguments: {error}",
            wanted="forward(token, offset, cache, params) -> (logits, cache)",
            do="wrap it in a function of these four",
        ) from error
    except ValueError:  # a built-in without a signature
        return
