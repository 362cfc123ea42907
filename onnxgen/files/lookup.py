"""Tokens' embeddings, looked up in a model's file.

Letters: V tokens, H hidden size, N tokens that are read.
"""

import os
import weakref
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


class Rows:
    """The rows of ``table``, for any number of threads.

    Reading leaves the file's pages to the system, where a mapping would count them as ours, 64 kB
    for each row.

    Raises:
        ModelFileError: the file cannot be read, or is shorter than the table says.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._number = opened(table, self)
        if os.fstat(self._number).st_size < table.offset + table.nbytes:
            raise short(table)

    def take(self, tokens: NDArray[np.int64]) -> NDArray[Any]:
        """The embeddings (...,H) of ``tokens`` (...).

        Raises:
            ModelFileError: the file has become shorter.
            OptionError: the table has no such token.
        """
        table, read, number = self.table, os.pread, self._number
        size, start, wanted = table.row_bytes, table.offset, tokens.ravel().tolist()
        if max(wanted) >= table.tokens or min(wanted) < 0:
            outside = next(token for token in wanted if not 0 <= token < table.tokens)
            raise OptionError(
                f"the model has no embedding for the token id {outside}",
                wanted=f"ids from 0 to {table.tokens - 1}",
            )
        data = b"".join([read(number, size, start + token * size) for token in wanted])
        if len(data) < len(wanted) * size:
            raise short(table)
        return np.frombuffer(data, table.dtype).reshape(*tokens.shape, table.hidden)


def opened(table: Table, owner: object) -> int:
    """The number of the open file of ``table``, which is closed when ``owner`` goes.

    Raises:
        ModelFileError: there is none.
    """
    try:
        file = table.path.open("rb")
    except OSError as error:
        raise short(table) from error
    weakref.finalize(owner, file.close)
    return file.fileno()


def short(table: Table) -> ModelFileError:
    """What is raised where the file holds less than ``table`` says."""
    return ModelFileError(
        f"{table.path} does not hold the embeddings that it held",
        wanted="a file that stays as it is while its model is loaded",
        do="load the model again",
    )
