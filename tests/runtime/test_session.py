"""What sessions do to the process around them."""

import os
import subprocess
import sys

import onnxruntime
import pytest

import onnxgen
from onnxgen.runtime import session
from onnxgen.runtime.session import Session
from tests.fixture_models import FIXTURES

PROGRAM = """
import sys
import onnxgen
onnxgen.load(sys.argv[1], rewrites=False).generate([1, 2, 3], max_new_tokens=2)
print(5e-324 == 0)
"""


def test_the_callers_thread_still_knows_denormal_numbers():
    command = [sys.executable, "-c", PROGRAM, str(FIXTURES / "models/genai-llama")]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "False\n"


FAILING = """
import sys
import numpy as np
import onnxgen
model = onnxgen.load(sys.argv[1]).model
for _ in range(40):  # each an event for telemetry, where that is on
    switch = onnxgen.Cancel()
    decoder = model.start(8, cancel=switch)
    decoder.step(np.array([[5, 6]]), np.array([2]))
    switch._options[False].terminate = True
    try:
        decoder.step(np.array([[5]]), np.array([1]))
    except onnxgen.errors.SessionError:
        print("failed")
"""


def test_nothing_is_kept_for_telemetry(tmp_path):
    """Builds that have it keep events and a device's id below the home until they are sent."""
    told = ("CI", "ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    own = {name: value for name, value in os.environ.items() if name not in told}
    command = [sys.executable, "-c", FAILING, str(FIXTURES / "models/genai-llama")]
    ended = subprocess.run(
        command, capture_output=True, text=True, env=own | {"HOME": str(tmp_path)}
    )
    assert ended.stdout == 40 * "failed\n", ended.stderr
    assert not list(tmp_path.rglob("*"))


def test_telemetry_of_a_runtime_that_was_there_is_turned_off(monkeypatch):
    calls = []
    monkeypatch.setattr(onnxruntime, "disable_telemetry_events", lambda: calls.append(1))
    session._quieten.cache_clear()
    session.require_onnxruntime()
    session.require_onnxruntime()  # once: a caller may turn it on again
    assert calls == [1]


@pytest.fixture
def large(monkeypatch):
    """Whether each run from now on gives back what its activations took."""
    run, given = Session.run, []

    def noted(own, binding, cancel, large=False):
        given.append(large)
        run(own, binding, cancel, large)

    monkeypatch.setattr(Session, "run", noted)
    return given


def test_long_prompts_give_their_memory_back(large):
    """And short ones and single steps, whose activations are small, do not lose time with it."""
    model = onnxgen.load(FIXTURES / "models/llama")
    for prompt in ([5] * 65, [5] * 64):
        model.generate(prompt, max_new_tokens=2, eos_token_id=None)
    assert large == [True, False, False, False]


def test_an_encoder_and_what_projects_its_states_give_their_memory_back(large):
    """But for one row that is like the one before: the next would want the same again."""
    model = onnxgen.load(FIXTURES / "models/marian", threads=1)
    one, two = [5, 6, 7], [[5, 6, 7], [8, 9, 10]]
    for source, given in (
        (one, [True, False, False, False]),
        (one, [False, False, False, False]),
        ([5, 6], [True, False, False, False]),
        (two, [True, True, False, False]),
        (two, [True, True, False, False]),
    ):
        large.clear()
        model.generate(source, max_new_tokens=3, min_new_tokens=3)
        assert large == given, source


TAKEN = """
import sys
import onnxruntime as ort
kind = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
place = ort.OrtMemoryInfo("Cpu", kind, 0, ort.OrtMemType.DEFAULT)
when = sys.argv[2]
if when == "before":
    ort.create_and_register_allocator(place, None)
import onnxgen
model = onnxgen.load(sys.argv[1])
if when == "after":
    ort.create_and_register_allocator(place, None)
print(model.generate([5, 6], max_new_tokens=3).tokens)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_others_may_have_an_arena_for_the_process_too(when):
    folder = FIXTURES / "models/llama"
    command = [sys.executable, "-c", TAKEN, str(folder), when]
    ended = subprocess.run(command, capture_output=True, text=True)
    model = onnxgen.load(folder)
    options = model.model.first.ort.get_session_options()
    assert options.get_session_config_entry("session.use_env_allocators") == "1"
    assert ended.stdout == f"{model.generate([5, 6], max_new_tokens=3).tokens}\n", ended.stderr
