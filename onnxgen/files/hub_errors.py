"""Errors of huggingface_hub as errors of this package.

Their own texts are not passed on: they hold whole URLs, which can be signed.
"""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub import errors as hf
from huggingface_hub import file_download

from onnxgen.errors import HubError, ModelNotFoundError, OnnxgenError

# The base of its HTTP client's errors, which differs between releases (requests, httpx, httpx2);
# OSError covers the file system, RuntimeError the native Xet client, ValueError broken JSON.
_FAILURES: tuple[type[Exception], ...] = (
    *(base for base in hf.HfHubHTTPError.__bases__ if issubclass(base, Exception)),
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
)

_WHERE = "HF_ENDPOINT and the proxies in between"
_TOKEN = "pass a token, set HF_TOKEN or run `hf auth login`"


class Unreachable(Exception):  # noqa: N818 - a signal between two functions, never seen by users
    """The Hub gave no answer, or none but that it is down; ``error`` is what to tell the user."""

    def __init__(self, error: HubError) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def translated(repo: str, revision: str | None, name: str | None = None) -> Iterator[None]:
    """Turns errors of a listing, or of the download of the file ``name``, into ours.

    Raises:
        Unreachable: a listing got no answer.
        HubError: a download broke off, or access is refused.
        ModelNotFoundError: no such repository, revision or file.
    """
    logger = logging.getLogger(file_download.__name__)
    logger.addFilter(_without_queries)
    try:
        yield
    except OnnxgenError:
        raise
    except _FAILURES as error:
        cause: BaseException = error
        if isinstance(error, hf.LocalEntryNotFoundError) and error.__cause__ is not None:
            cause = error.__cause__
        known = _refused(cause, repo) or _absent(cause, repo, revision, name)
        if known is not None:
            raise known from error
        if name is None:
            raise Unreachable(_no_answer(cause, repo)) from error
        raise _broken_off(cause, repo, name) from error
    finally:
        logger.removeFilter(_without_queries)


def _without_queries(record: logging.LogRecord) -> bool:
    """Takes the signatures off the URLs that huggingface_hub logs when it tries again."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            arg.partition("?")[0] if isinstance(arg, str) and arg.startswith("http") else arg
            for arg in record.args
        )
    return True


def _refused(error: BaseException, repo: str) -> OnnxgenError | None:
    if isinstance(error, hf.GatedRepoError):
        return HubError(
            f"{repo} is gated: the Hub gives it only to those who accepted its terms",
            do=f"accept them at https://huggingface.co/{repo}, then {_TOKEN}",
        )
    if isinstance(error, hf.LocalTokenNotFoundError):
        return HubError("a saved token is asked for, but there is none", do=_TOKEN)
    if isinstance(error, hf.RepositoryNotFoundError):
        return ModelNotFoundError(
            f"{repo} is no folder here, and on the Hub it does not exist or is private",
            wanted="a folder, an .onnx file, or a Hub repository owner/name",
            do=f"check the name; if the repository is private, {_TOKEN}",
        )
    if _status(error) in (401, 403):
        return HubError(
            f"the Hub refuses access to {repo} (HTTP {_status(error)})",
            do=f"{_TOKEN}; one that is given already may have expired or lack the right to read",
        )
    return None


def _absent(
    error: BaseException, repo: str, revision: str | None, name: str | None
) -> OnnxgenError | None:
    if isinstance(error, hf.HFValidationError):
        return ModelNotFoundError(
            f"no folder {repo!r}, and no repository can have that name",
            wanted="a folder, an .onnx file, or a Hub repository owner/name",
        )
    if isinstance(error, hf.RevisionNotFoundError):
        return ModelNotFoundError(
            f"{repo} has no revision {revision!r}", wanted="a branch, a tag or a commit"
        )
    if isinstance(error, hf.EntryNotFoundError) and _status(error) == 404:
        return ModelNotFoundError(
            f"{repo} lists the file {name}, but does not give it", do="try again later"
        )
    status = _status(error)
    if name is None and status is not None and 400 <= status < 500 and status not in (408, 429):
        return HubError(
            f"the Hub does not know what to make of {repo} (HTTP {status})", do=f"check {_WHERE}"
        )
    return None


def _no_answer(error: BaseException, repo: str) -> HubError:
    if isinstance(error, hf.OfflineModeIsEnabled):
        return HubError("HF_HUB_OFFLINE forbids asking the Hub", do="unset it")
    return HubError(
        f"the Hub cannot be reached ({_cause(error)})",
        do=f"check the connection and {_WHERE}, or the name: there is no folder {repo} here",
    )


def _broken_off(error: BaseException, repo: str, name: str) -> HubError:
    what = f"the download of {name} from {repo} broke off"
    code = error.errno if isinstance(error, OSError) else None
    if code in (errno.ENOSPC, errno.EDQUOT):
        return HubError(f"{what}: the disk is full", do="make room, or name another cache")
    if code in (errno.EACCES, errno.EPERM, errno.EROFS):
        return HubError(f"{what}: the cache cannot be written", do="name another cache")
    return HubError(
        f"{what} ({_cause(error)})", do="run it again; files that are complete are kept"
    )


def _cause(error: BaseException) -> str:
    status = _status(error)
    return type(error).__name__ if status is None else f"HTTP {status}"


def _status(error: BaseException) -> int | None:
    return error.response.status_code if isinstance(error, hf.HfHubHTTPError) else None
