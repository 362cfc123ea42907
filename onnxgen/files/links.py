"""Which files belong to a model's folder: what its links may lead to.

A folder that came from somewhere else may hold links to files of its reader. A symbolic link must
end in the folder; the links of a Hub cache, from a snapshot into the blobs of its own repository,
are the exception. A hard link has no outside: the file lies here, and under another name too.
Package managers, caches and image layers link files so, all of them readable by everybody. What
is not, a key for instance, is refused.
"""

import stat
from pathlib import Path

from onnxgen import wire
from onnxgen.errors import ModelFileError


def check(path: Path, folder: Path) -> None:
    """ModelFileError unless ``path`` is a plain file of ``folder``, or of the Hub cache around it.

    A ``path`` that leads nowhere is not judged: whoever needs it says what is missing.
    """
    try:
        real, home = path.resolve(strict=True), folder.resolve()
        status = real.stat()
    except FileNotFoundError:
        return
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle, names too long
        raise ModelFileError(f"{path} cannot be read", wanted="a plain file") from error
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(f"{path} is no plain file", do="copy or download the model again")
    blobs = _blobs(home)
    if blobs is not None and real.is_relative_to(blobs):
        return
    if not real.is_relative_to(home):
        raise ModelFileError(
            f"{path} is a link that leaves its folder",
            wanted="files in the model's own folder, or in a Hub cache",
            do="do not trust this model; or copy the file there, if the link is yours",
        )
    if status.st_nlink > 1 and not status.st_mode & stat.S_IROTH:
        raise ModelFileError(
            f"{path} is a hard link to a private file",
            wanted="files of the model alone, or that everybody may read",
            do="do not trust this model; or copy the file, if the link is yours",
        )


def refuse_pointer(path: Path) -> None:
    """ModelFileError if ``path`` stands for a file that git-lfs did not fetch."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read ({error.strerror})") from error
    if wire.is_lfs_pointer(head):
        raise ModelFileError(
            f"{path} is a git-lfs pointer, not the file itself", do="run `git lfs pull`"
        )


def _blobs(home: Path) -> Path | None:
    """Where the files of the Hub snapshot lie that ``home`` is or is in; None for no snapshot."""
    for inner in (home, *home.parents):
        snapshots = inner.parent
        if snapshots.name == "snapshots" and snapshots.parent.name.startswith("models--"):
            return snapshots.parent / "blobs"
    return None
