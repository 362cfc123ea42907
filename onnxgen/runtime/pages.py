"""Weights on huge pages, where Linux has them.

Each step reads all weights once. On pages of 4 kB the processor looks up where these lie more
often than it remembers, and on a virtual machine each look is several: up to a tenth of a step.
Most distributions give pages of 2 MB to those alone who ask (``madvise``), which ONNX Runtime does
not. So what a model's loading leaves behind is moved to such pages, once, at the end. That takes
half a millisecond each, but several where a hypervisor has to find the memory first, so there is a
limit.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter

PROC = Path("/proc/self")
SIZE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
COLLAPSE, HUGE_PAGE = 25, 14  # advice of linux/mman.h
LEAST = 16 << 20  # bytes; less is found fast on small pages, too
SHARE = 0.5  # of the time that loading took: so long may moving go on
FULL = 0.95  # moving fills a page up, so what is mostly empty stays: stacks, reserved room

Span = tuple[int, int]  # addresses: first, and behind the last


@contextmanager
def moved_to_huge() -> Iterator[None]:
    """Moves to huge pages what the process allocates meanwhile, if that is much and they exist."""
    size, begin = _size(), perf_counter()
    if not size:
        yield
        return
    before = [span for span, _ in regions(_read("maps"))]
    yield
    after = [span for span, _ in regions(_read("maps"))]
    if sum(end - start for start, end in apart(after, before)) < LEAST:
        return
    now = perf_counter()
    end = now + SHARE * (now - begin)
    full = [span for span, held in regions(_read("smaps")) if held >= FULL]
    _move(apart(full, before), size, end)


def regions(text: str) -> list[tuple[Span, float]]:
    """The anonymous private memory that ``maps`` or ``smaps`` tell of, and how much of it is held.

    The share is 0 in ``maps``, which does not tell.
    """
    found: list[tuple[Span, float]] = []
    wanted = False
    for line in filter(None, text.split("\n")):  # a path may have other ends of lines
        head, *rest = line.split()
        if not head.endswith(":"):
            wanted = rest[0] == "rw-p" and rest[4:] in ([], ["[heap]"])
            if wanted:
                start, end = (int(address, 16) for address in head.split("-"))
                found.append(((start, end), 0.0))
        elif wanted and head == "Rss:":
            (start, end), _ = found[-1]
            found[-1] = (start, end), 1024 * int(rest[0]) / (end - start)
    return found


def apart(spans: list[Span], taken: list[Span]) -> list[Span]:
    """What of ``spans`` is in none of ``taken``; both in order, as the system lists them."""
    found = []
    for start, end in spans:
        for low, high in taken:
            if low < end and high > start:
                found.append((start, low))
                start = high
        found.append((start, end))
    return [(start, end) for start, end in found if start < end]


def _size() -> int:
    """Bytes of a huge page; 0 where there is none."""
    with suppress(OSError, ValueError):
        if sys.platform == "linux":
            return int(SIZE.read_text())
    return 0


def _read(name: str) -> str:
    with suppress(OSError):
        return (PROC / name).read_text("utf-8", "replace")  # paths may be any bytes
    return ""


def _move(spans: list[Span], size: int, end: float) -> None:
    """Moves pages of ``size`` bytes until it is ``end``; Linux before 6.1 may do it later."""
    madvise = ctypes.CDLL(None).madvise
    for start, stop in spans:
        for page in range(-(-start // size), stop // size):
            if perf_counter() > end:
                return
            place = ctypes.c_void_p(page * size), ctypes.c_size_t(size)
            if madvise(*place, COLLAPSE):
                madvise(*place, HUGE_PAGE)
