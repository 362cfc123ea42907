"""A request that would take more memory than there is ends before it begins, and costs nothing.

Where the estimate is too low and an allocation fails, the error is of the same kind; either way the
next small request succeeds.

Letters: L layers, H heads, D head size, B rows, C capacity, V vocabulary.
"""

import json
import math
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import onnxgen
from onnxgen.errors import OnnxgenError, OptionError, OutOfMemoryError
from onnxgen.runtime import memory
from scripts.stress import live
from scripts.stress_jobs import model
from tests.fixture_models import FIXTURES

ROOT = Path(__file__).resolve().parents[2]
MODELS = FIXTURES / "models"


def sizes(name):
    config = json.loads((MODELS / name / "config.json").read_text())
    heads = config.get("num_key_value_heads") or config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return config["num_hidden_layers"], heads, size, config["vocab_size"]


@pytest.mark.parametrize("rows", [1, 3])
def test_the_estimate_of_a_growing_cache_is_that_on_paper(rows):
    """Keys and values, past and present, float32; twice where rows may be copied."""
    layers, heads, size, vocab = sizes("llama")
    bare = onnxgen.load(MODELS / "llama", rewrites=False, threads=1).model
    assert bare.graph.mode == "append"
    capacity, prompt = 100, 60
    caches = rows * capacity * layers * heads * size * 4 * 2 * 2 * (1 if rows == 1 else 2)
    logits = rows * prompt * vocab * 4
    rest = 2 * rows * vocab * 4 + 3 * 8 * rows * capacity
    assert bare.needs(rows, capacity, prompt) == caches + logits + rest


def test_a_shared_buffer_is_one_and_a_graph_without_cache_reads_all_again():
    shared, none = model("genai-llama").model, model("llama-nocache").model
    facts = shared.graph.caches
    own = sum(slot.row_bytes(100) for slot in facts)
    assert own <= shared.needs(1, 100, 1) <= own + 3 * 4 * shared.vocab_size + 100 * 24
    assert none.needs(1, 100, 1) >= 100 * none.vocab_size * 4  # the last step's logits


def test_what_is_taken_stays_below_the_estimate():
    """The memories that a request really makes, summed up while it runs."""
    for name in ("llama", "genai-llama", "gemma3_text", "genai-lfm2", "llama-nocache"):
        own = model(name)
        for options in ({}, {"num_beams": 3}):
            request = own.request([[5] * 40, [6] * 40], None, {"max_new_tokens": 20, **options})
            made = []
            init = memory_init(made)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("onnxgen.runtime.device.Memory.__init__", init)
                request.answers()
            rows = 2 * options.get("num_beams", 1)
            assert 0 < max(made) <= own.model.needs(rows, 59, 40), name


def memory_init(made):
    """``Memory.__init__`` that notes in ``made`` how many bytes are alive after each."""
    import weakref

    from onnxgen.runtime.device import Memory

    init, alive = Memory.__init__, weakref.WeakSet()

    def counted(self, *arguments, **keywords):
        init(self, *arguments, **keywords)
        alive.add(self)
        made.append(sum(one.nbytes for one in alive))

    return counted


@pytest.mark.parametrize(
    "options",
    [
        {"max_new_tokens": 10**9},
        {"max_new_tokens": 10**15},
        {"max_new_tokens": 2 * 10**7, "num_beams": 200},
        {"max_new_tokens": 10**8, "output_scores": True},
        {"max_new_tokens": 10**8, "guidance_scale": 1.5},
    ],
    ids=str,
)
def test_what_cannot_fit_is_refused_before_anything_is_made(options, monkeypatch):
    own = model("bloom")  # nothing in it bounds the length of its answers
    before = live()
    monkeypatch.setattr("onnxgen.runtime.device.Memory.__init__", None)
    with pytest.raises(OutOfMemoryError, match=r"rows of up to .*\n.*free\n.*max_new_tokens"):
        own.generate([5, 6, 7], eos_token_id=None, **options)
    assert live() == before


def test_the_bound_may_be_set_and_turned_off():
    own = onnxgen.load(MODELS / "bloom", threads=1, memory_limit=300_000)
    need = own.model.needs(1, 3 + 8 - 1, 3)
    assert need < 300_000 < own.model.needs(1, 3 + 500 - 1, 3)
    assert len(own.generate([5, 6, 7], max_new_tokens=8, eos_token_id=None).tokens) == 8
    with pytest.raises(OutOfMemoryError, match="memory_limit allows"):
        own.generate([5, 6, 7], max_new_tokens=500, eos_token_id=None)
    free = onnxgen.load(MODELS / "bloom", threads=1, memory_limit=math.inf)
    free.request([[5, 6, 7]], None, {"max_new_tokens": 10**9})
    for wrong in (0, -1, math.nan, "1GB", True):
        with pytest.raises(OptionError, match="memory_limit"):
            onnxgen.load(MODELS / "bloom", memory_limit=wrong)


def test_a_kept_cache_with_room_is_not_asked_for_again(monkeypatch):
    own, cache = model("bloom"), onnxgen.Cache()
    options = {"max_new_tokens": 100, "eos_token_id": None, "cache": cache}
    first = own.generate([5, 6, 7], **options)
    monkeypatch.setattr(own.model, "memory_limit", 1)
    own.generate([5, 6, 7, first.tokens[0]], **{**options, "max_new_tokens": 20})
    with pytest.raises(OutOfMemoryError):
        own.generate([5, 6, 7], **{**options, "max_new_tokens": 500})


def test_a_failed_allocation_is_our_error_wherever_it_is(monkeypatch):
    own = model("llama")
    whole = own.generate([5, 6, 7], max_new_tokens=4).tokens
    for place in (
        "onnxgen.runtime.device.Memory.__init__",
        "onnxgen.runtime.session.Cancel.options",
        "onnxgen.generation.choosing.Chooser.__call__",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, failing)
            with pytest.raises(OutOfMemoryError) as caught:
                own.generate([5, 6, 7], max_new_tokens=4)
            assert isinstance(caught.value, MemoryError)
            assert isinstance(caught.value, OnnxgenError)
        assert own.generate([5, 6, 7], max_new_tokens=4).tokens == whole


def failing(*arguments, **keywords):
    raise MemoryError("Unable to allocate 8.00 TiB")


# -- what the system has -------------------------------------------------------------------------


def test_the_least_of_what_limits_say_counts(monkeypatch, tmp_path):
    for machine, group, space, least in [
        (9, None, None, 9), (9, 5, None, 5), (9, 5, 2, 2), (None, None, None, None), (9, -4, 8, 0),
    ]:  # fmt: skip
        monkeypatch.setattr(memory, "_machine", lambda value=machine: value)
        monkeypatch.setattr(memory, "_group", lambda value=group: value)
        monkeypatch.setattr(memory, "_address_space", lambda value=space: value)
        assert memory.available() == least


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({"memory.max": "1000", "memory.current": "600"}, [400]),
        ({"memory.max": "max", "memory.current": "600"}, []),
        (
            {
                "memory.max": "1000\n",
                "memory.current": "600\n",
                "memory.stat": "anon 1\ninactive_file 250\nslab 3\n",
            },
            [650],
        ),
        ({}, []),
    ],
)
def test_what_a_control_group_leaves(files, left, tmp_path):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert memory._left(tmp_path, "memory.max", "memory.current") == left


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="Linux")
def test_the_system_says_something_between_nothing_and_its_whole_memory():
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < memory.available() <= 2 * total


# -- a process that may take little --------------------------------------------------------------

CHILD = """
import json, math, resource, sys
import onnxgen
from onnxgen.errors import OutOfMemoryError

folder, room, limit, options, prompt = sys.argv[1], *map(json.loads, sys.argv[2:6])
model = onnxgen.load(folder, threads=1, memory_limit=math.inf if limit == "off" else limit)
small = {"max_new_tokens": 5, "eos_token_id": None}
before = model.generate([5, 6, 7], **small).tokens
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + room, size + room))
told = []
for _ in range(3):
    try:
        model.generate([prompt[0]] * prompt[1], eos_token_id=None, **options)
        told.append("")
    except OutOfMemoryError as error:
        told.append(str(error))
    assert model.generate([5, 6, 7], **small).tokens == before
print(json.dumps(told))
"""


def child(room, limit, options, prompt=(5, 10)):
    words = (json.dumps(value) for value in (room, limit, options, prompt))
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(MODELS / "bloom"), *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


needs_limits = pytest.mark.skipif(not hasattr(resource, "RLIMIT_AS"), reason="Linux")
MB = 1 << 20


@needs_limits
def test_a_request_beyond_the_address_space_is_refused_and_a_small_one_succeeds():
    told = child(200 * MB, None, {"max_new_tokens": 10**6})
    assert all("1 rows of up to 1000009 tokens" in text for text in told)
    assert all("free" in text and "max_new_tokens" in text for text in told)


@needs_limits
def test_a_cache_that_cannot_be_allocated_is_our_error_and_a_small_one_succeeds():
    told = child(200 * MB, "off", {"max_new_tokens": 10**7})
    assert all("the memory was not enough to answer" in text for text in told)


@needs_limits
def test_activations_that_cannot_be_allocated_are_our_error_and_a_small_one_succeeds():
    """Attention's scores over 6,000 tokens at once, (H,S,S) float32."""
    told = child(100 * MB, "off", {"max_new_tokens": 2}, (5, 6_000))
    assert all("ran out of memory while running" in text for text in told)
