"""A call that is cancelled, closed, timed out or broken off by an error leaves nothing behind.

Its buffers and sequences are gone, the model answers as before, and calls of other threads on the
same model never notice.
"""

import signal
import threading
import time

import numpy as np
import pytest

import onnxgen
from onnxgen.errors import CancelledError, LogitsError, OptionError
from onnxgen.runtime.session import Session
from onnxgen.tasks.request import Request
from scripts.stress import live
from scripts.stress_jobs import CallersError, model, tokens
from tests.fixture_models import FIXTURES

# Every cache mode, states, no cache, an un-merged pair; what has encoders; what sees and hears.
SOURCES = {
    "llama": [[5, 6, 7], [8, 9, 10, 11, 12]],
    "genai-llama": [[5, 6, 7], [8, 9, 10, 11, 12]],
    "gemma3_text": [[5, 6, 7], [8, 9, 10, 11, 12]],
    "genai-lfm2": [[5, 6, 7], [8, 9, 10, 11, 12]],
    "llama-nocache": [[5, 6, 7]],
    "llama-pair": [[5, 6, 7]],
    "t5": [[5, 6, 7], [8, 9]],
    "vit-gpt2": str(FIXTURES / "models/vit-gpt2/images/0.png"),
    "whisper": np.sin(np.arange(8000)).astype(np.float32) / 2,
    "moonshine": np.sin(np.arange(8000)).astype(np.float32) / 2,
    "smolvlm": "<image>What is in this picture?",
}
MORE = {"smolvlm": {"images": [str(FIXTURES / "images/photo.jpg")]}}
SPEECH = ("whisper", "moonshine")
FEW = {"max_new_tokens": 8}
each_model = pytest.mark.parametrize("name", SOURCES)


def generate(name, **options):
    return tokens(model(name).generate(SOURCES[name], **FEW | MORE.get(name, {}) | options))


@pytest.fixture
def same(request):
    """A context that checks that the model answers as before, and that nothing new is alive."""

    def check(name, broken):
        whole = generate(name)
        before = live()
        broken()
        assert live() == before
        assert generate(name) == whole

    return check


def cancelling_run(monkeypatch, switch, number):
    """Has the ``number``-th run of a session from now on be cancelled before it begins."""
    run, left = Session.run, [number]

    def counted(self, binding, cancel, large=False):
        left[0] -= 1
        if not left[0]:
            switch.cancel()
        run(self, binding, cancel, large)

    monkeypatch.setattr(Session, "run", counted)


@each_model
@pytest.mark.parametrize(("number", "beams"), [(1, 1), (2, 2), (4, 1)])
def test_a_run_that_is_cancelled_frees_everything(name, number, beams, same, monkeypatch):
    def broken():
        switch = onnxgen.Cancel()
        with monkeypatch.context() as patch:
            cancelling_run(patch, switch, number)
            with pytest.raises(CancelledError):
                generate(name, num_beams=beams, cancel=switch)

    same(name, broken)


@pytest.mark.parametrize("more", ["guidance", "draft", "cache", "chunks"])
def test_whatever_else_runs_is_cancelled_too(more, same, monkeypatch):
    """The unconditional decoder, the assistant, a kept cache, a prompt in pieces."""
    cache = onnxgen.Cache()
    options = {
        "guidance": {"guidance_scale": 1.5},
        "draft": {"assistant_model": model("llama")},
        "cache": {"cache": cache},
        "chunks": {"prefill_chunk_size": 1},
    }[more]
    own = model("llama")
    whole = own.generate([5, 6, 7], **FEW).tokens

    def broken():
        for number in range(1, 8):
            switch = onnxgen.Cancel()
            with monkeypatch.context() as patch:
                cancelling_run(patch, switch, number)
                with pytest.raises(CancelledError):
                    own.generate([5, 6, 7], cancel=switch, **FEW, **options)
        assert cache.tokens == []

    same("llama", broken)
    if more == "cache":
        for _ in range(2):
            assert own.generate([5, 6, 7], cache=cache, **FEW).tokens == whole
        assert cache.tokens == [5, 6, 7, *whole[:-1]]


@each_model
def test_a_switch_that_was_thrown_lets_nothing_start(name, same):
    def broken():
        switch = onnxgen.Cancel()
        switch.cancel()
        with pytest.raises(CancelledError):
            generate(name, cancel=switch)

    same(name, broken)


def test_one_switch_ends_several_calls_and_no_other():
    own, switch, ended = model("llama"), onnxgen.Cancel(), []
    whole = own.generate([5, 6, 7], max_new_tokens=100, eos_token_id=None).tokens
    started = threading.Barrier(4)

    def cancelled():
        stream = own.stream([5, 6, 7], max_new_tokens=100, eos_token_id=None, cancel=switch)
        next(stream)
        started.wait()
        time.sleep(0.05)
        with pytest.raises(CancelledError):
            list(stream)
        ended.append("cancelled")

    def whole_one():
        stream = own.stream([5, 6, 7], max_new_tokens=100, eos_token_id=None)
        first = next(stream)
        started.wait()
        ended.append((first.token, *(piece.token for piece in stream)))

    threads = [threading.Thread(target=cancelled) for _ in range(2)]
    threads.append(threading.Thread(target=whole_one))
    for thread in threads:
        thread.start()
    started.wait()
    switch.cancel()
    for thread in threads:
        thread.join()
    assert sorted(ended, key=str) == [whole, "cancelled", "cancelled"]


def test_a_signal_handler_may_throw_the_switch():
    """Also while the same thread is making the run options, whose lock it then holds."""
    switch = onnxgen.Cancel()
    before = signal.signal(signal.SIGUSR1, lambda *_: switch.cancel())
    try:
        with switch._lock:
            signal.raise_signal(signal.SIGUSR1)
        with pytest.raises(CancelledError):
            generate("llama", cancel=switch)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_is_no_switch_is_refused():
    for wrong in (True, threading.Event(), "now"):
        with pytest.raises(OptionError, match=r"cancel is a .*\n.*onnxgen\.Cancel"):
            generate("llama", cancel=wrong)


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in SPEECH])
@pytest.mark.parametrize("pieces", [0, 2])
def test_a_stream_that_is_closed_early_frees_everything(name, pieces, same):
    options = {"num_beams": 1, **FEW, **MORE.get(name, {})}

    def broken():
        stream = model(name).stream(SOURCES[name], **options)
        for _ in range(pieces):
            next(stream)
        stream.close()
        assert stream.gi_frame is None  # done with, though still referred to
        source = SOURCES[name]
        sources = [source] if isinstance(source, str) else source
        request = model(name).request(sources, None, options)
        held = request.pieces()
        for _ in range(pieces):
            next(held)
        held.close()
        counted = live()
        assert counted["Group"] == counted["Decoder"] == counted["Binding"] == 0  # not the request
        assert counted["Encoding"] == counted["Encoded"] == 0

    same(name, broken)


@each_model
@pytest.mark.parametrize(
    ("error", "calls", "beams"),
    [(CallersError, 0, 1), (CallersError, 3, 2), (KeyboardInterrupt, 2, 1)],
)
def test_an_error_in_a_callers_function_comes_out_as_it_is(name, error, calls, beams, same):
    """The second row's processor fails after some steps; Ctrl-C may come anywhere."""

    def broken():
        left = [calls]

        def process(ids, scores):
            left[0] -= 1
            if left[0] < 0:
                raise error
            return scores

        with pytest.raises(error):
            generate(name, logits_processor=[process], num_beams=beams)

    same(name, broken)


@pytest.mark.parametrize("what", ["stopping_criteria", "prefix_allowed_tokens_fn", "proposer"])
def test_errors_in_other_functions_too(what, same):
    def fail(*arguments):
        if np.size(arguments[-1]) > 5:
            raise CallersError
        return {"stopping_criteria": False, "proposer": []}.get(what, [4, 5, 6])

    def broken():
        given = [fail] if what == "stopping_criteria" else fail
        with pytest.raises(CallersError):
            model("llama").generate([5, 6, 7], **{what: given}, **FEW)

    same("llama", broken)


@each_model
@pytest.mark.parametrize("number", [1, 4])
def test_ctrl_c_within_a_run_frees_everything(name, number, same, monkeypatch):
    def broken():
        run, left = Session.run, [number]

        def interrupted(self, binding, cancel, large=False):
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            run(self, binding, cancel, large)

        with monkeypatch.context() as patch:
            patch.setattr(Session, "run", interrupted)
            with pytest.raises(KeyboardInterrupt):
                generate(name)

    same(name, broken)


@each_model
def test_a_time_limit_ends_an_answer_and_frees_everything(name, same):
    def broken():
        for beams in (1, 2):
            answers = generate(name, max_time=0.0, num_beams=beams)
            # Whisper's segments leave out what stands between timestamps.
            assert all(len(own) == 1 for own in answers) or name in SPEECH

    same(name, broken)


def test_one_row_that_fails_names_itself_and_frees_all(same):
    def broken():
        def ban(ids, scores):
            return np.full_like(scores, -np.inf) if len(ids) == 7 else scores

        with pytest.raises(LogitsError, match=r"row 1 .* step 3"):
            generate("llama", logits_processor=[ban])

    same("llama", broken)


def test_other_threads_answer_as_alone_while_calls_are_cancelled():
    own, wrong, stop = model("genai-llama"), [], threading.Event()
    options = {"max_new_tokens": 20, "eos_token_id": None}
    whole = own.generate([5, 6, 7], **options).tokens

    def answer():
        while not stop.is_set():
            found = own.generate([5, 6, 7], **options).tokens
            if found != whole:
                wrong.append(found)

    threads = [threading.Thread(target=answer) for _ in range(2)]
    for thread in threads:
        thread.start()
    cancelled = 0
    for number in range(60):
        switch = onnxgen.Cancel()
        timer = threading.Timer(0.0005 * (number % 10), switch.cancel)
        timer.start()
        try:
            own.generate([8, 9, 10, 11], cancel=switch, max_new_tokens=100, eos_token_id=None)
        except CancelledError:
            cancelled += 1
        timer.join()
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert cancelled > 10


def test_a_request_may_be_cancelled_before_it_runs():
    request = model("llama").request([[5, 6, 7]], None, FEW)
    assert isinstance(request, Request)
    request.cancel()
    with pytest.raises(CancelledError):
        request.answers()
