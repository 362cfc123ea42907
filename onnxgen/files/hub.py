"""Models on the Hub, kept in the cache that all of its clients share.

One request finds the commit of a branch and the names of its files; a file that the commit's
snapshot already holds is never asked for again. The names are remembered beside the snapshot, so
that a copy cut short by a lost connection is known to be one.
"""

import json
import os
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from huggingface_hub import HfApi, constants, hf_hub_download

from onnxgen.errors import (
    HubError,
    ModelFileError,
    ModelNotFoundError,
    OnnxgenError,
    OptionError,
    UnsupportedModelError,
)
from onnxgen.files.external import inside, is_file
from onnxgen.files.hub_errors import Unreachable, translated
from onnxgen.files.policy import external_data_locations
from onnxgen.files.progress import Progress

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Place:
    """A repository at a revision, and the part of the cache that belongs to it."""

    repo: str
    revision: str | None = None
    token: str | bool | None = None
    cache_dir: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.revision is not None and not inside(self.revision):
            raise OptionError(
                f"{self.revision!r} is no revision", wanted="a branch, a tag or a commit"
            )

    @property
    def cache(self) -> Path:
        """The cache's folder for this repository."""
        root = constants.HF_HUB_CACHE if self.cache_dir is None else self.cache_dir
        return Path(root).expanduser().absolute() / f"models--{self.repo.replace('/', '--')}"

    @property
    def reference(self) -> Path:
        """The file that holds the commit of this revision."""
        return self.cache / "refs" / (self.revision or constants.DEFAULT_REVISION)

    @property
    def endpoint(self) -> str | None:
        """Read when needed: huggingface_hub reads it once, when it is imported."""
        return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None

    def snapshot(self, commit: str) -> Path:
        """The folder of a commit's files."""
        return self.cache / "snapshots" / commit

    def known_commit(self) -> str | None:
        """The commit, as far as that can be told without asking."""
        if self.revision is not None and _COMMIT.fullmatch(self.revision):
            return self.revision
        with suppress(OSError, ValueError):
            commit = self.reference.read_text("ascii").strip()
            return commit if _COMMIT.fullmatch(commit) else None
        return None


@dataclass(frozen=True, slots=True)
class Listing:
    """What a repository holds at a commit: file name -> bytes (0 where the Hub does not say)."""

    commit: str
    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Online:
    """A repository as a store: files are downloaded unless the cache holds them."""

    place: Place
    listing: Listing
    progress: Progress

    @property
    def source(self) -> str:
        """The repository's name."""
        return self.place.repo

    @property
    def folder(self) -> Path:
        """The snapshot, never resolved through its links."""
        return self.place.snapshot(self.listing.commit)

    def names(self) -> Collection[str]:
        """All files of the repository."""
        return self.listing.sizes

    def has(self, name: str) -> bool:
        """Whether the repository holds the file."""
        return name in self.listing.sizes

    def fetch(self, names: Sequence[str]) -> None:
        """Downloads what the snapshot lacks. HubError if that breaks off."""
        absent = [name for name in names if not is_file(self.folder / name)]
        if absent:
            remember(self.place, self.listing)
        self.progress.expect(sum(self.listing.sizes[name] for name in absent))
        for name in absent:
            with translated(self.place.repo, self.place.revision, name):
                hf_hub_download(
                    self.place.repo,
                    name,
                    revision=self.listing.commit,
                    token=self.place.token,
                    cache_dir=self.place.cache.parent,
                    endpoint=self.place.endpoint,
                    tqdm_class=self.progress.bar,
                )

    def missing(self, name: str, needed_by: str) -> OnnxgenError:
        """The error for a file that the repository lacks."""
        return ModelFileError(
            f"{self.source}: {needed_by} needs {name}, which the repository lacks",
            do="use another dtype or revision, or tell its owner",
        )


@dataclass(frozen=True, slots=True)
class Cached:
    """A snapshot as a store: what it lacks cannot be had."""

    place: Place
    commit: str
    listing: Listing | None
    reason: str  # why nothing can be asked for

    @property
    def source(self) -> str:
        """The repository's name."""
        return self.place.repo

    @property
    def folder(self) -> Path:
        """The snapshot, never resolved through its links."""
        return self.place.snapshot(self.commit)

    def names(self) -> Collection[str]:
        """All files of the repository if they were ever listed, else those that are here."""
        if self.listing is not None:
            return self.listing.sizes
        paths = (path for path in self.folder.rglob("*") if path.is_file())
        return sorted(path.relative_to(self.folder).as_posix() for path in paths)

    def has(self, name: str) -> bool:
        """Whether the file is here, a graph with all its external data."""
        return self._absent(name) is None

    def fetch(self, names: Sequence[str]) -> None:
        """Makes sure that the files are here."""
        for name in names:
            if not is_file(self.folder / name):
                raise self.missing(name, "the model")

    def missing(self, name: str, needed_by: str) -> OnnxgenError:
        """The error for a file that was never downloaded."""
        return ModelNotFoundError(
            f"{self.source}: {needed_by} needs {self._absent(name)}, which is not in the cache",
            wanted=f"the whole model in {self.folder}, as {self.reason}",
            do="run it once with a connection",
        )

    def _absent(self, name: str) -> str | None:
        """The file itself or the first part of its data, whichever is not here."""
        path = self.folder / name
        if not is_file(path):
            return name
        if name.endswith(".onnx"):
            # A broken graph has no known parts: whoever takes it will be told.
            with suppress(ModelFileError, UnsupportedModelError):
                for part in external_data_locations(path):
                    if not is_file(path.parent / part):
                        return (PurePosixPath(name).parent / part).as_posix()
        return None


@contextmanager
def repository(
    place: Place, *, offline: bool | None, progress: bool | None
) -> Iterator[Online | Cached]:
    """The repository, or its cached copy if offline or if the Hub cannot be reached.

    Once the caller is done without an error, the revision counts as downloaded.
    """
    listing = None
    if constants.HF_HUB_OFFLINE if offline is None else offline:
        cached = _cached(place, "offline mode asks for nothing")
    else:
        try:
            listing = _listing(place)
        except Unreachable as failure:
            cached = _fallback(place, failure)
    if listing is None:
        yield cached
        return
    with Progress(place.repo, progress) as shown:
        yield Online(place, listing, shown)
    remember(place, listing)
    if place.known_commit() != listing.commit:
        # Only now, not when the download begins: until then the last whole copy is the one to use.
        _write(place.reference, listing.commit)


def _cached(place: Place, reason: str) -> Cached:
    commit = place.known_commit()
    if commit is None or not place.snapshot(commit).is_dir():
        at = f" at revision {place.revision}" if place.revision else ""
        raise ModelNotFoundError(
            f"{place.repo}{at} is no folder here, and not in the cache {place.cache.parent}",
            wanted=f"a downloaded copy, as {reason}",
            do="run it once with a connection, or name another cache",
        )
    return Cached(place, commit, _remembered(place, commit), reason)


def _fallback(place: Place, failure: Unreachable) -> Cached:
    try:
        store = _cached(place, "the Hub cannot be reached")
    except ModelNotFoundError:
        raise failure.error from failure
    warnings.warn(
        f"{failure.error.found}; using the cached copy of {place.repo}", UserWarning, stacklevel=5
    )
    return store


def _listing(place: Place) -> Listing:
    """The files at the revision: one request, or none for a commit that was listed before."""
    commit = place.known_commit()
    if commit is not None and commit == place.revision:
        remembered = _remembered(place, commit)
        if remembered is not None:
            return remembered
    with translated(place.repo, place.revision):
        info = HfApi(endpoint=place.endpoint, token=place.token).model_info(
            place.repo,
            revision=place.revision,
            files_metadata=True,
            timeout=constants.HF_HUB_ETAG_TIMEOUT,
        )
    sizes = {f.rfilename: f.size or 0 for f in info.siblings or () if inside(f.rfilename)}
    if info.sha is None or not _COMMIT.fullmatch(info.sha):
        raise HubError(
            f"the answer about {place.repo} names no commit",
            do="check HF_ENDPOINT and the proxies in between",
        )
    return Listing(info.sha, sizes)


def _memory(place: Place, commit: str) -> Path:
    # Beside snapshots/ and refs/, where other clients of the cache look for nothing.
    return place.cache / ".onnxgen" / f"{commit}.json"


def remember(place: Place, listing: Listing) -> None:
    """Keeps the listing for later runs without a connection, or at a fixed commit."""
    path = _memory(place, listing.commit)
    if not path.exists():
        _write(path, json.dumps(listing.sizes))


def _remembered(place: Place, commit: str) -> Listing | None:
    try:
        sizes = json.loads(_memory(place, commit).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    sound = isinstance(sizes, dict) and all(
        inside(name) and isinstance(size, int) for name, size in sizes.items()
    )
    return Listing(commit, sizes) if sound else None


def _write(path: Path, text: str) -> None:
    """Writes a small file of the cache in one piece; a cache that cannot be written to is fine."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, "utf-8")
        part.replace(path)
