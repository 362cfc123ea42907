"""One line of progress for a download of many files."""

import sys
from types import TracebackType
from typing import Any

from tqdm import tqdm


class Progress:
    """A bar on stderr over all bytes of a download; silent where stderr is no terminal.

    ``show`` True or False decides that instead. ``bar`` is what a downloader takes as its class of
    bars: each of them moves this one.
    """

    def __init__(self, title: str, show: bool | None) -> None:
        hidden = not sys.stderr.isatty() if show is None else not show
        self._title, self._hidden = title, hidden
        self._line: tqdm[Any] | None = None
        self.bar = _share_of(self)

    def expect(self, size: int) -> None:
        """Adds ``size`` bytes to come. The line appears with the first of them."""
        if not size or self._hidden:
            return
        if self._line is None:
            self._line = tqdm(
                desc=self._title, total=0, unit="B", unit_scale=True, unit_divisor=1024
            )
        self._line.total = (self._line.total or 0) + size
        self._line.refresh()

    def advance(self, size: float) -> None:
        """Moves the line by ``size`` bytes; backwards where a file begins anew."""
        if self._line is not None:
            self._line.update(size)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._line is not None:
            self._line.close()


def _share_of(progress: Progress) -> "type[tqdm[Any]]":
    class Share(tqdm):  # type: ignore[type-arg]  # only its stubs are generic
        """An invisible bar of one file."""

        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__(disable=True)

        def update(self, n: float | None = 1) -> bool | None:
            progress.advance(n or 0)
            return None

        def update_transfer(self, n: float | None = 1) -> None:
            """Xet counts bytes on the wire beside bytes on disk; these are the ones shown."""

    return Share
