"""The helpers behind the commands: Ctrl-C in native code, a clock for long work, sizes."""

import hashlib
import os
import signal
import sys
import threading
import time

import pytest

from onnxgen.cli import output
from onnxgen.cli.answers import interruptible, statistics
from onnxgen.errors import CancelledError
from onnxgen.generation.results import Generation, Timings
from tests.cli.running import python


@pytest.fixture
def default_interrupt():
    """Ctrl-C as at a terminal, also where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_cancels_while_native_code_runs(default_interrupt):
    cancelled: list[float] = []
    ended = 0.0
    sender = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    watched = interruptible(lambda: cancelled.append(time.monotonic()))
    with pytest.raises(KeyboardInterrupt), watched:  # noqa: PT012
        sender.start()
        try:
            hashlib.pbkdf2_hmac("sha256", b"x", b"y", 1_000_000)  # one call, without the GIL
        finally:
            ended = time.monotonic()
    assert len(cancelled) == 1
    assert cancelled[0] < ended - 0.1


def test_a_cancelled_run_is_an_interrupt(default_interrupt):
    with pytest.raises(KeyboardInterrupt), interruptible(lambda: None):
        raise CancelledError("the request was cancelled")


def test_other_threads_have_no_signals():
    done = []

    def work():
        with interruptible(lambda: None):
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


def test_interruptible_leaves_no_trace(default_interrupt):
    before = threading.active_count()
    with interruptible(lambda: None):
        pass
    assert threading.active_count() == before
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize(("terminal", "seconds", "shown"), [(1, 0.3, 1), (1, 0, 0), (0, 0.3, 0)])
def test_long_work_shows_at_a_terminal(terminal, seconds, shown, monkeypatch, capsys):
    monkeypatch.setattr(output, "PATIENCE_S", 0.1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: bool(terminal))
    with output.waiting("loading it"):
        time.sleep(seconds)
    out, err = capsys.readouterr()
    assert ("loading it 00:0" in err, out) == (bool(shown), "")
    assert err.rpartition("\r")[2].strip() == ""  # and is wiped out


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (46_080_000, "46.1 MB"), (2.5e12, "2,500.0 GB")],
)
def test_sizes(count, text):
    assert output.size(count) == text


def test_statistics_count_all_rows():
    def answer(count, total_ms):
        return Generation("", tuple(range(count)), "length", 3, Timings(100.0, (), total_ms))

    line = statistics([answer(21, 1100.0), answer(11, 600.0)])  # 30 tokens in the second after
    assert line.startswith("32 tokens, 30.0 tok/s after the first, first token 100 ms, 6 prompt ")
    assert statistics([answer(1, 100.0)]).startswith("1 tokens, first token 100 ms, 3 prompt ")


def test_characters_that_a_terminal_lacks_are_escaped():
    code, out, _ = python("""
import sys
sys.stdout.reconfigure(encoding="ascii")
from onnxgen.cli import output
output.tolerate_encoding()
output.line("caf\\u00e9")
""")
    assert (code, out) == (0, "caf\\xe9\n")
