"""Tokens' embeddings, looked up in a model's file.

Letters: V tokens, H hidden size, N tokens that are read.
"""

import os
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxgen.errors import ModelFileError, OptionError


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers (V,H) of the NumPy type ``dtype``, in the file ``path`` from byte ``offset`` on.

    ``turned``: they lie there as (H,V).
    """

    path: Path
    offset: int
    tokens: int
    hidden: int
    dtype: str
    turned: bool = False

    @property
    def item(self) -> int:
        """Bytes of a number."""
        return np.dtype(self.dtype).itemsize

    @property
    def row_bytes(self) -> int:
        """Bytes from one row of the file to the next."""
        return (self.tokens if self.turned else self.hidden) * self.item

    @property
    def nbytes(self) -> int:
        """Bytes of the whole."""
        return self.tokens * self.hidden * self.item


class Reader:
    """Embeddings from ``table``, for any number of threads; the file is open as long as this lives.

    Raises:
        ModelFileError: the file cannot be read, or is shorter than the table says.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        try:
            file = table.path.open("rb")
        except OSError as error:
            raise self._changed() from error
        weakref.finalize(self, file.close)
        self._number = file.fileno()
        self._check_size()

    def take(self, tokens: NDArray[np.int64]) -> NDArray[Any]:
        """The embeddings (...,H) of ``tokens`` (...).

        Raises:
            ModelFileError: the file has become shorter.
            OptionError: the table has no such token.
        """
        table, wanted = self.table, tokens.ravel().tolist()
        if max(wanted) >= table.tokens or min(wanted) < 0:
            outside = next(token for token in wanted if not 0 <= token < table.tokens)
            raise OptionError(
                f"the model has no embedding for the token id {outside}",
                wanted=f"ids from 0 to {table.tokens - 1}",
            )
        return self._taken(wanted).reshape(*tokens.shape, table.hidden)

    def _taken(self, tokens: list[int]) -> NDArray[Any]:
        """The embeddings (N,H), or all their numbers, of ``tokens`` (N,), which the table has."""
        raise NotImplementedError

    def _read(self, starts: Iterable[int], size: int) -> NDArray[Any]:
        """The numbers that lie in ``size`` bytes of the file from each of ``starts`` on."""
        read, number = os.pread, self._number
        pieces = [read(number, size, start) for start in starts]
        data = b"".join(pieces)
        if len(data) < size * len(pieces):
            raise self._changed()
        return np.frombuffer(data, self.table.dtype)

    def _check_size(self) -> None:
        if os.fstat(self._number).st_size < self.table.offset + self.table.nbytes:
            raise self._changed()

    def _changed(self) -> ModelFileError:
        return ModelFileError(
            f"{self.table.path} does not hold the embeddings that it held",
            wanted="a file that stays as it is while its model is loaded",
            do="load the model again",
        )


class Rows(Reader):
    """A token's embedding is a row of the file.

    Reading leaves the file's pages to the system, where a mapping would count them as ours, 64 kB
    for each row.
    """

    def _taken(self, tokens: list[int]) -> NDArray[Any]:
        start, size = self.table.offset, self.table.row_bytes
        return self._read([start + token * size for token in tokens], size)
