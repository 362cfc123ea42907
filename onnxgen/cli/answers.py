"""Carrying out a request for a person who watches, waits and may press Ctrl-C."""

import argparse
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onnxgen.cli import output
from onnxgen.errors import CancelledError

if TYPE_CHECKING:
    from onnxgen.generation.results import Generation
    from onnxgen.tasks.request import Request


def may_stream(args: argparse.Namespace, request: "Request") -> bool:
    """Whether an answer is shown while it comes: one row, settled token by token."""
    single = request.beams == 1 and request.copies == 1
    return single and not args.no_stream and not args.json


def stream(request: "Request", said: list[str] | None = None) -> None:
    """Prints the answer of a request with one prompt while it comes, and a line break.

    ``said`` gets what was printed, also where an error or Ctrl-C cuts the answer short.
    """
    said = [] if said is None else said
    with interruptible(request.cancel):
        try:
            for piece in request.pieces():
                said.append(piece.text)
                output.write(piece.text)
        except BaseException:
            if any(said):
                output.line()
            raise
    output.line()


def finish(request: "Request") -> None:
    """Runs a request to its end in silence; several prompts show their progress on stderr."""
    from tqdm import tqdm

    several = len(request.rows) > 1
    show = None if several else True  # None: where stderr is a terminal
    bar = tqdm(total=len(request.rows), unit="prompt", leave=False, disable=show)
    with bar, interruptible(request.cancel):
        for step in request.steps():
            bar.update(sum(reason is not None for reason in step.finish_reasons))


@contextmanager
def interruptible(cancel: Callable[[], None]) -> Iterator[None]:
    """Within the block Ctrl-C also calls ``cancel``, at once, and KeyboardInterrupt ends it.

    Python acts on a signal only between two of its own steps, and a long prompt is a single call
    into ONNX Runtime. The signal's number, though, arrives on a socket at once, where a thread
    waits for it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals belong to the main thread
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)

    def watch() -> None:
        while numbers := ours.recv(64):
            if signal.SIGINT in numbers:
                cancel()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    except CancelledError:
        raise KeyboardInterrupt from None
    finally:
        signal.set_wakeup_fd(before)
        theirs.close()
        watcher.join()
        ours.close()


def as_json(result: "Generation") -> dict[str, Any]:
    """An answer in JSON types; times are milliseconds."""
    timings = result.timings
    told = {
        "sequence_score": result.sequence_score,
        "token_logprobs": result.token_logprobs,
        "top_logprobs": result.top_logprobs,
    }
    return {
        "text": result.text,
        "tokens": list(result.tokens),
        "finish_reason": result.finish_reason,
        "prompt_tokens": result.prompt_tokens,
        **{name: value for name, value in told.items() if value is not None},
        "timings": {
            "prefill_ms": round(timings.prefill_ms, 3),
            "per_token_ms": [round(lap, 3) for lap in timings.per_token_ms],
            "total_ms": round(timings.total_ms, 3),
            "tokens_per_second": round(timings.tokens_per_second, 3),
        },
    }


def statistics(results: "Sequence[Generation]", selection: object = "") -> str:
    """One line on a run, all of its rows together: speed, memory, and what chose the tokens."""
    count = sum(len(result.tokens) for result in results)
    first = max(result.timings.prefill_ms for result in results)
    later_ms = max(result.timings.total_ms for result in results) - first
    parts = [f"{count} tokens"]
    if later_ms > 0:
        parts.append(f"{1000 * (count - len(results)) / later_ms:.1f} tok/s after the first")
    parts.append(f"first token {first:.0f} ms")
    parts.append(f"{sum(result.prompt_tokens for result in results)} prompt tokens")
    if peak := peak_memory():
        parts.append(f"peak memory {output.size(peak)}")
    if guesses := results[0].speculation:
        parts.append(
            f"{guesses.accepted} of {guesses.proposed} guesses true in {guesses.steps} runs"
        )
    if str(selection):
        parts.append(f"selection by {selection}")
    return ", ".join(parts)


def peak_memory() -> int | None:
    """The most bytes that this process ever had in memory; None on Windows."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
