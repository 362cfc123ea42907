"""Files that are there as a whole or not at all, whenever the process ends."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name beside ``path`` to write to, which takes its place once the block is done.

    What a process that was killed left under that name, the next one writes over. A device or a
    pipe is written to directly.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    target = path.resolve() if path.is_symlink() else path
    part = target.with_name(f".{target.name[-60:]}.part")  # a name of any length has room for it
    try:
        yield part
        part.replace(target)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
