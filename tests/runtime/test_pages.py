"""Moving memory to huge pages, on memory of the tests' own."""

import math
import mmap
from contextlib import contextmanager

import numpy as np
import pytest

import onnxgen
from onnxgen.runtime import pages
from onnxgen.runtime.pages import apart, moved_to_huge, regions
from onnxgen.tasks import loading
from tests.fixture_models import FIXTURES

MB = 1 << 20
MAPS = """\
55d0c0000000-55d0c0400000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000200000 rw-p 00000000 00:00 0
7f0000200000-7f0000400000 r--p 00000000 08:01 77                         /lib/libm.so.6
7f0000400000-7f0000600000 rw-p 00200000 08:01 77                         /models/model onnx.data
7f0000600000-7f0000800000 ---p 00000000 00:00 0
7ffc00000000-7ffc00200000 rw-p 00000000 00:00 0                          [stack]
"""
SMAPS = """\
55d0c0000000-55d0c0400000 rw-p 00000000 00:00 0                          [heap]
Size:               4096 kB
Rss:                3072 kB
VmFlags: rd wr mr mw me ac
7f0000400000-7f0000600000 rw-p 00200000 08:01 77                         /models/model.onnx.data
Rss:                2048 kB
7f0000000000-7f0000200000 rw-p 00000000 00:00 0
Rss:                   0 kB
"""


def write(memory: mmap.mmap, step: int) -> tuple[np.ndarray, int]:
    """The memory with a number in every page, or in every ``step``-th byte; and its address."""
    array = np.frombuffer(memory, np.uint8)
    array[::step] = np.arange(len(array[::step])) % 251 + 1
    return array, array.ctypes.data


def told(address: int) -> dict[str, int]:
    """What the system says of the region around ``address``, in bytes."""
    found: dict[str, int] = {}
    inside = False
    for line in (pages.PROC / "smaps").read_text().splitlines():
        head, *rest = line.split()
        if not head.endswith(":"):
            start, end = (int(part, 16) for part in head.split("-"))
            inside = start <= address < end
        elif inside and rest[-1:] == ["kB"]:
            found[head] = 1024 * int(rest[0])
    return found


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """Moving may take as long as it takes; systems differ a lot there."""
    monkeypatch.setattr(pages, "SHARE", math.inf)


needs_huge_pages = pytest.mark.skipif(not pages._size(), reason="the system has no huge pages")


def test_anonymous_memory_alone_is_told():
    heap, anonymous = (0x55D0C0000000, 0x55D0C0400000), (0x7F0000000000, 0x7F0000200000)
    assert regions(MAPS) == [(heap, 0), (anonymous, 0)]
    assert regions(SMAPS) == [(heap, 0.75), (anonymous, 0)]


def test_names_of_files_may_be_any_bytes(monkeypatch, tmp_path):
    line = MAPS.splitlines()[3].encode().replace(b"model onnx", b"\xff\x85\xe2\x80\xa8 - x: ")
    (tmp_path / "maps").write_bytes(line + b"\n" + MAPS.encode())
    monkeypatch.setattr(pages, "PROC", tmp_path)
    assert regions(pages._read("maps")) == regions(MAPS)


@pytest.mark.parametrize(
    ("spans", "taken", "left"),
    [
        ([(0, 10)], [], [(0, 10)]),
        ([(0, 10)], [(0, 10)], []),
        ([(0, 10)], [(2, 4)], [(0, 2), (4, 10)]),
        ([(0, 10), (20, 30)], [(5, 25)], [(0, 5), (25, 30)]),
        ([(0, 30)], [(0, 5), (10, 12), (29, 40)], [(5, 10), (12, 29)]),
        ([(5, 9)], [(0, 5), (9, 12)], [(5, 9)]),
    ],
)
def test_what_is_new(spans, taken, left):
    assert apart(spans, taken) == left


def block(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


@needs_huge_pages
def test_what_is_written_meanwhile_moves():
    with moved_to_huge():
        with block(64 * MB) as gone:
            gone[0] = 1
        array, address = write(block(64 * MB), 512)
        held, before = array.copy(), told(address)
    after = told(address)
    assert after["AnonHugePages:"] - before["AnonHugePages:"] >= 56 * MB
    assert after["Rss:"] - before["Rss:"] <= 2 * MB
    np.testing.assert_array_equal(array, held)


@needs_huge_pages
def test_what_was_there_before_stays():
    kept, address = write(block(64 * MB), 512)
    before = told(address)["AnonHugePages:"]
    with moved_to_huge():
        new, _ = write(block(32 * MB), 512)
    # Both may have become one region, of which the new part alone has moved.
    assert told(address)["AnonHugePages:"] - before <= 32 * MB
    assert kept[0] == new[0] == 1


@needs_huge_pages
def test_room_that_is_hardly_used_is_not_filled():
    with moved_to_huge():
        array, address = write(block(64 * MB), 4 * MB)
        before = told(address)["Rss:"]
    assert told(address)["Rss:"] - before <= 4 * MB
    assert array[0] == 1


@needs_huge_pages
def test_little_is_left_alone():
    with moved_to_huge():
        array, address = write(block(8 * MB), 512)
        before = told(address)["AnonHugePages:"]
    assert told(address)["AnonHugePages:"] == before
    assert array[0] == 1


@needs_huge_pages
def test_moving_ends_with_its_time(monkeypatch):
    monkeypatch.setattr(pages, "SHARE", 0)
    with moved_to_huge():
        array, address = write(block(64 * MB), 512)
        before = told(address)["AnonHugePages:"]
    assert told(address)["AnonHugePages:"] - before <= 4 * MB
    assert array[0] == 1


@pytest.mark.parametrize("huge", [True, False])
def test_loading_moves_unless_it_is_told_not_to(monkeypatch, huge):
    moves = []

    @contextmanager
    def noted():
        yield
        moves.append("moved")

    monkeypatch.setattr(loading, "moved_to_huge", noted)
    assert onnxgen.load(FIXTURES / "models/genai-llama", huge_pages=huge).generate([5, 6]).tokens
    assert moves == ["moved"] * huge


def test_an_error_within_comes_out():
    with pytest.raises(ZeroDivisionError), moved_to_huge():
        1 / 0  # noqa: B018


@pytest.mark.parametrize("missing", ["SIZE", "PROC"])
def test_systems_that_tell_nothing(monkeypatch, tmp_path, missing):
    monkeypatch.setattr(pages, missing, tmp_path / "nothing")
    with moved_to_huge():
        array = np.ones(64 * MB, np.uint8)
    assert array.all()
