"""What the commands print: answers on stdout, everything else on stderr.

A closed pipe shows as BrokenPipeError, which ``main`` turns into a silent end.
"""

import json
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from onnxgen.errors import OnnxgenError, OptionError

PATIENCE_S = 2.0  # work that takes longer says what it is doing


def write(text: str) -> None:
    """``text`` to stdout, at once."""
    if text:
        sys.stdout.write(text)
        sys.stdout.flush()


def line(text: str = "") -> None:
    """``text`` and a line break to stdout, at once."""
    write(text + "\n")


def json_text(value: Any) -> str:
    """``value`` as JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def from_json(text: str) -> Any:
    """What a text in JSON says."""
    return json.loads(text)


def json_line(value: Any) -> None:
    """``value`` as JSON on one line of stdout."""
    line(json_text(value))


def on_one_line(text: str) -> str:
    """``text`` with its line breaks written as \\r and \\n."""
    return text.replace("\r", "\\r").replace("\n", "\\n")


def note(text: str) -> None:
    """``text`` to stderr, for the person at the terminal."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def report(error: OnnxgenError) -> None:
    """An error of ours to stderr: what was found, wanted and to do, a line each."""
    if debugging():
        traceback.print_exception(error)
    note("onnxgen: error: " + str(error).replace("\n", "\n  "))


def report_of(name: str, error: OnnxgenError) -> None:
    """An error about one of several inputs to stderr, where the others go on."""
    if debugging():
        traceback.print_exception(error)
    told = str(error) if name in str(error) else f"{name}: {error}"
    note("onnxgen: error: " + told.replace("\n", "\n  "))


def report_unexpected(error: Exception) -> None:
    """An error that should not be: where it happened, but not its text, which may quote input."""
    if debugging():
        traceback.print_exception(error)
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if Path(__file__).parents[1] in Path(f.filename).parents]
    where = f" in {Path(ours[-1].filename).name}, line {ours[-1].lineno}" if ours else ""
    note(
        f"onnxgen: error: unexpected {type(error).__name__}{where}\n"
        "  to do: set ONNXGEN_DEBUG=1 to see the traceback, and report it"
    )


def debugging() -> bool:
    """Whether the user asks for tracebacks."""
    return os.environ.get("ONNXGEN_DEBUG", "") not in ("", "0")


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Warnings as one line each on stderr, without file names and source lines."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        note("onnxgen: warning: " + " ".join(str(message).split()))

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


@contextmanager
def waiting(title: str) -> Iterator[None]:
    """Shows ``title`` and a clock on stderr while the block takes long, if that is a terminal."""
    done = threading.Event()

    def show() -> None:
        if done.wait(PATIENCE_S):
            return
        from tqdm import tqdm

        with tqdm(desc=title, bar_format="{desc} {elapsed}", leave=False) as clock:
            while not done.wait(0.5):
                clock.refresh()

    thread = threading.Thread(target=show, daemon=True)
    if sys.stderr.isatty():
        thread.start()
    try:
        yield
    finally:
        done.set()
        if thread.ident is not None:
            thread.join()


def read_stdin() -> str:
    """All of stdin but its last line break. OptionError if that is no text."""
    return "".join(stdin_lines()).removesuffix("\n")


def stdin_lines() -> Iterator[str]:
    """The lines of stdin as they come. OptionError if one is no text."""
    try:
        yield from sys.stdin
    except UnicodeDecodeError as error:
        raise OptionError("stdin is no text", wanted="UTF-8") from error


def flush() -> None:
    """Brings out what stdout still holds, so that a closed pipe shows now."""
    sys.stdout.flush()


def discard() -> None:
    """Lets the interpreter end in silence after the reader of stdout went away."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def tolerate_encoding() -> None:
    """Characters that a terminal's encoding lacks are escaped, not an error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def size(count: float) -> str:
    """A number of bytes for people, in powers of 1,000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:,.0f} B" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    raise AssertionError
