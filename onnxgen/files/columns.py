"""Embeddings from a table that lies turned in a model's file, where a token is a column.

Letters: V tokens, H hidden size, h rows of a stripe, N tokens that are read.
"""

import mmap
import threading
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxgen.files.lookup import Reader, Table

READ = 20 << 10  # bytes of a table that are passed over in the time that reading one number takes
STRIPE = 4 << 20  # bytes that a pass holds at a time
KEPT = 16  # of so many columns one is kept, at first the lowest: tokenizers number by how common
# Seconds for one column, above which the system no longer has the file in memory.
SLOW = 0.05


class Columns(Reader):
    """A token's embedding is a column of the file.

    Those last used are kept. A few are read number by number; many in one pass over the table,
    whose pages are given back on the way. If the file turns out to be slow, all of it is kept.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        try:
            self._bytes = mmap.mmap(self._number, 0, access=mmap.ACCESS_READ)
            count = table.hidden * table.tokens
            numbers = np.frombuffer(self._bytes, table.dtype, count, table.offset)
        except (OSError, ValueError) as error:
            raise self._changed() from error
        self._mapped = numbers.reshape(table.hidden, table.tokens)  # (H,V)
        self._whole: NDArray[Any] | None = None  # (V,H)
        self._most, self._lock = table.tokens // KEPT, threading.Lock()
        # Column -> its numbers (H,); copies, so that those that go do not live on with others.
        self._held = dict(enumerate(map(np.copy, self._passed(np.arange(self._most)))))

    def _taken(self, tokens: list[int]) -> NDArray[Any]:
        with self._lock:
            if self._whole is not None:
                return self._whole[tokens]
            missing = [token for token in dict.fromkeys(tokens) if token not in self._held]
            if missing:
                self._held.update(zip(missing, map(np.copy, self._found(missing)), strict=True))
            for token in tokens:
                self._held[token] = self._held.pop(token)  # the last to go
            found = np.stack([self._held[token] for token in tokens])  # (N,H)
            while len(self._held) > self._most:
                del self._held[next(iter(self._held))]
        return found

    def _found(self, places: Sequence[int]) -> Sequence[NDArray[Any]]:
        """The columns at ``places`` (N,), each (H,), in the way that is sooner done."""
        if len(places) * self.table.hidden * READ > self.table.nbytes:
            return list(self._passed(np.array(places)))
        start = perf_counter()
        found = [self._column(place) for place in places]
        if perf_counter() - start > SLOW * len(places):
            self._whole = self._passed(np.arange(self.table.tokens))
        return found

    def _column(self, place: int) -> NDArray[Any]:
        """The column (H,) at ``place``, number by number."""
        table, item = self.table, self.table.item
        start = table.offset + place * item
        return self._read(range(start, start + table.nbytes, table.row_bytes), item)

    def _passed(self, places: NDArray[np.int64]) -> NDArray[Any]:
        """The columns at ``places`` (N,) as rows (N,H), from all of the table."""
        table = self.table
        self._check_size()  # touching what is not there would end the process
        found = np.empty((len(places), table.hidden), table.dtype)
        step = max(STRIPE // table.row_bytes, 1)
        for row in range(0, table.hidden, step):
            stripe = self._mapped[row : row + step]  # (h,V)
            found[:, row : row + step] = stripe.take(places, axis=1).T  # (N,h)
            start = table.offset + row * table.row_bytes
            page = start - start % mmap.PAGESIZE
            self._bytes.madvise(mmap.MADV_DONTNEED, page, start - page + stripe.nbytes)
        return found
