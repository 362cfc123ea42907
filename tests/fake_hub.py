"""A small Hub on the loopback address, which answers huggingface_hub as the real one does.

Repositories have commits and branches; small files come from the Hub itself, large ones
(``LFS_BYTES`` and more) by a redirect to a second host, as from the real content network. Every
request is recorded. Faults can be planned: dropped connections, answers of a given status.
"""

import hashlib
import json
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

LFS_BYTES = 10_000
PIECE = 50_000  # bytes that go out at once


@dataclass
class Repository:
    """Commits by hash, branches by name; ``token`` opens a private or gated repository."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    token: str | None = None
    gated: bool = False
    withheld: set[str] = field(default_factory=set)  # listed, but not to be had


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    authorization: str | None
    start: int  # first byte asked for

    @property
    def kind(self) -> str:
        return "list" if self.path.startswith("/api/models/") else self.method.lower()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client that did not wait
            super().handle_error(*args)


class FakeHub:
    """The server; use as a context manager."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[Request] = []
        self.drops: dict[str, list[int]] = {}  # file -> bytes to send before each break
        self.status: int | None = None  # answers everything with this
        self.pace = 0.0  # seconds to wait after each piece of a file
        self.sent = 0  # bytes of files so far
        self.silent = threading.Event()  # while set, answers nothing
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def commit(self, repo: str, files: dict[str, bytes], branch: str = "main") -> str:
        """Makes ``files`` the whole content of ``branch``; returns the commit's hash."""
        repository = self.repositories.setdefault(repo, Repository())
        number = f"{repo} {len(repository.commits)}"
        sha = hashlib.sha1(number.encode()).hexdigest()
        repository.commits[sha] = dict(files)
        repository.branches[branch] = sha
        return sha

    def fetched(self) -> list[str]:
        """Names of the files whose content was asked for, in order."""
        paths = [request.path for request in self.requests if request.kind == "get"]
        # /owner/name/resolve/revision/file, or /cdn/commit/file
        return [path.split("/", 3 if path.startswith("/cdn/") else 5)[-1] for path in paths]

    def kinds(self) -> list[str]:
        """``list``, ``head`` or ``get`` of each request so far."""
        return [request.kind for request in self.requests]

    def __enter__(self) -> "FakeHub":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or each answer waits 40 ms for the client's ACK

        def log_message(self, *_: object) -> None: ...

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            path = unquote(url.path)
            start = int(self.headers.get("Range", "bytes=0-")[6:].split("-")[0])
            authorization = self.headers.get("Authorization")
            hub.requests.append(Request(self.command, path, authorization, start))
            while hub.silent.is_set():
                time.sleep(0.01)
            if hub.status is not None:
                self.fail(hub.status)
            elif path.startswith("/cdn/"):
                _, _, sha, name = path.split("/", 3)
                self.cdn(sha, name, start)
            elif path.startswith("/api/models/"):
                repo, _, revision = path.removeprefix("/api/models/").partition("/revision/")
                self.listing(repo, revision or "main", parse_qs(url.query))
            else:
                repo, _, rest = path.removeprefix("/").partition("/resolve/")
                revision, _, name = rest.partition("/")
                self.file(repo, revision, name, start)

        def listing(self, repo: str, revision: str, query: dict[str, list[str]]) -> None:
            repository, sha = self.opened(repo, revision, listing=True)
            if sha is None:
                return
            siblings = []
            for name, content in repository.commits[sha].items():
                entry = {"rfilename": name}
                if query.get("blobs"):
                    entry |= {"size": len(content), "blobId": _git_sha(content)}
                siblings.append(entry)
            answer = {"_id": "0", "id": repo, "modelId": repo, "sha": sha, "siblings": siblings}
            self.reply(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

        def file(self, repo: str, revision: str, name: str, start: int) -> None:
            repository, sha = self.opened(repo, revision, listing=False)
            if sha is None:
                return
            headers = {"X-Repo-Commit": sha}
            content = repository.commits[sha].get(name)
            if content is None or name in repository.withheld:
                self.fail(404, "EntryNotFound", "Entry not found", sha)
            elif len(content) < LFS_BYTES:
                self.reply(200, content, headers | {"ETag": f'"{_git_sha(content)}"'}, start, name)
            else:
                digest = hashlib.sha256(content).hexdigest()
                headers |= {
                    "X-Linked-Etag": f'"{digest}"',
                    "X-Linked-Size": str(len(content)),
                    # Another name of this host, so that a client takes it for another host.
                    "Location": f"http://localhost:{hub.port}/cdn/{sha}/{name}?Signature=SECRET",
                }
                self.reply(302, b"", headers)

        def cdn(self, sha: str, name: str, start: int) -> None:
            commits = {k: v for r in hub.repositories.values() for k, v in r.commits.items()}
            self.reply(200, commits[sha][name], {"ETag": '"cdn"'}, start, name)

        def opened(
            self, repo: str, revision: str, *, listing: bool
        ) -> tuple[Repository, str | None]:
            """The repository and the commit asked for; None after a refusal was sent."""
            repository = hub.repositories.get(repo, Repository())
            token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            public = repository.token is None or (repository.gated and listing)
            sha = repository.branches.get(revision, revision)
            if repo not in hub.repositories or not (public or token == repository.token):
                if repository.gated:
                    message = f"Access to model {repo} is restricted."
                    self.fail(403 if token else 401, "GatedRepo", message)
                else:
                    self.fail(404 if token else 401, "RepoNotFound", "Repository not found")
                return repository, None
            if sha not in repository.commits:
                self.fail(404, "RevisionNotFound", f"Invalid rev id: {revision}")
                return repository, None
            return repository, sha

        def fail(
            self, status: int, code: str = "", message: str = "", commit: str | None = None
        ) -> None:
            headers = {"X-Error-Code": code, "X-Error-Message": message} if code else {}
            if commit:
                headers["X-Repo-Commit"] = commit
            self.reply(status, b"", headers)

        def reply(
            self,
            status: int,
            body: bytes,
            headers: dict[str, str],
            start: int = 0,
            name: str = "",
        ) -> None:
            total = len(body)
            if start:
                status, body = 206, body[start:]
                headers = headers | {"Content-Range": f"bytes {start}-{total - 1}/{total}"}
            self.send_response(status)
            for key, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            if hub.drops.get(name):
                self.wfile.write(body[: hub.drops[name].pop(0)])
                self.wfile.flush()
                self.close_connection = True
                self.connection.shutdown(2)
            elif not name:
                self.wfile.write(body)
            else:
                for begin in range(0, len(body), PIECE):
                    self.wfile.write(body[begin : begin + PIECE])
                    hub.sent += len(body[begin : begin + PIECE])
                    time.sleep(hub.pace)

    return Handler


def _git_sha(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
