"""A stream of pieces in chunks, for whoever pays for each message."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from onnxgen.generation.checks import whole

T = TypeVar("T")


def chunked(pieces: Iterable[T], size: int, *, first_at_once: bool = True) -> Iterator[list[T]]:
    """Lists of ``size`` of ``pieces``, each as soon as it is full; the last may be shorter.

    With ``first_at_once`` the first piece comes by itself, so that nobody waits for a whole chunk
    to see that an answer has begun. The chunks joined are the stream, whatever the size.
    OptionError for a size below 1.
    """
    return _chunks(pieces, whole("size", size, 1), first_at_once)


def _chunks(pieces: Iterable[T], size: int, first_at_once: bool) -> Iterator[list[T]]:
    chunk: list[T] = []
    full = 1 if first_at_once else size
    for piece in pieces:
        chunk.append(piece)
        if len(chunk) == full:
            yield chunk
            chunk, full = [], size
    if chunk:
        yield chunk
