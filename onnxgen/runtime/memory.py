"""How much memory a request may take, and how much it will: asked once, before it begins.

What is estimated are the caches at their full length and the logits, which grow with the request
and dwarf the rest; activations of single operators are not known from the graph. So an allocation
may fail all the same: it ends in the same error.

Letters: B rows, S tokens of the longest prompt, C capacity, V vocabulary.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onnxgen.errors import OutOfMemoryError
from onnxgen.graph.decoder import DecoderGraph, Logits, Mode
from onnxgen.graph.shapes import ITEM_BYTES

SMALL = 16 << 20  # a request below this is not worth asking the system for
DO = "lower max_new_tokens, num_beams or the number of prompts, or shorten them"


def estimate(graph: DecoderGraph, rows: int, capacity: int, prompt: int, chunk: int) -> int:
    """Bytes that ``rows`` (B) of up to ``capacity`` (C) tokens take at most, on their device.

    ``prompt`` (S) is the longest, run in pieces whose logits take ``chunk`` bytes, or whole if that
    is 0. Several rows are copied where one of them leaves or beams change places.
    """
    copies = 1 if rows == 1 else 2
    caches = sum(slot.row_bytes(slot.room(capacity)) for slot in graph.caches)
    if graph.mode is not Mode.IN_PLACE:
        caches *= 2  # past and present
    states = 2 * sum(slot.row_bytes(0) for slot in graph.states)
    vocab = (graph.vocab_size or 0) * ITEM_BYTES.get(graph.logits.dtype, 4)
    last = rows * vocab
    # Without a cache those of one step are there until those of the next are.
    whole = last * (2 * capacity if graph.mode is Mode.NONE else prompt)
    if graph.logits_kind is not Logits.FULL or "keep" in graph.inputs:
        whole = last
    elif chunk and graph.mode is not Mode.NONE:
        whole = min(whole, max(chunk, 16 * last))
    ids = 3 * 8 * rows * capacity  # with masks and positions
    return copies * rows * (caches + states) + whole + 2 * last + ids


def check(needed: int, rows: int, capacity: int, limit: float | None) -> None:
    """OutOfMemoryError if ``needed`` bytes are more than ``limit``, or than the system has free."""
    if limit is None and needed <= SMALL:
        return
    free = available() if limit is None else limit
    if free is None or needed <= free:
        return
    raise OutOfMemoryError(
        f"{rows} rows of up to {capacity} tokens take {size(needed)} at most",
        wanted=f"no more than the {size(free)} that "
        + ("are free" if limit is None else "memory_limit allows"),
        do=DO + "; memory_limit of onnxgen.load sets another bound",
    )


def available() -> int | None:
    """Bytes that this process may still take; None where the system does not say.

    The least of what the machine has free, what its control group leaves, and what the limit of
    the address space leaves.
    """
    found = [free for free in (_machine(), _group(), _address_space()) if free is not None]
    return max(min(found), 0) if found else None


def _machine() -> int | None:
    """Free memory, with what the system would give back for it, and swap (Linux)."""
    with suppress(OSError, ValueError, IndexError):
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return 1024 * sum(
            int(fields.get(name, "0").split()[0]) for name in ("MemAvailable", "SwapFree")
        )
    return None


def _address_space() -> int | None:
    """What RLIMIT_AS leaves."""
    with suppress(ImportError, OSError, ValueError):
        import resource  # not on Windows

        bound, _ = resource.getrlimit(resource.RLIMIT_AS)
        if bound != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            return bound - pages * os.sysconf("SC_PAGE_SIZE")
    return None


def _group() -> int | None:
    """What the limits of the control group, and of those around it, leave (Linux)."""
    free = []
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            number, names, place = line.split(":", 2)
            if number == "0":
                root, files = Path("/sys/fs/cgroup"), ("memory.max", "memory.current")
            elif "memory" in names.split(","):
                root = Path("/sys/fs/cgroup/memory")
                files = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            else:
                continue
            own = root / place.lstrip("/")
            for folder in (own, *own.parents):
                free += _left(folder, *files)
                if folder == root:
                    break
    return min(free, default=None)


def _left(folder: Path, bound: str, used: str) -> list[int]:
    """What one control group leaves; empty where it sets no limit."""
    with suppress(OSError, ValueError):  # "max"
        limit, taken = int((folder / bound).read_text()), int((folder / used).read_text())
        with suppress(OSError, ValueError, IndexError):  # files read before are given back
            stat = (folder / "memory.stat").read_text()
            taken -= int(stat.split("inactive_file ", 1)[1].split()[0])
        return [limit - taken]
    return []


@contextmanager
def enough(doing: str) -> Iterator[None]:
    """Turns a failed allocation within into OutOfMemoryError; ``doing`` says at what."""
    try:
        yield
    except OutOfMemoryError:
        raise
    except MemoryError as error:
        raise OutOfMemoryError(f"the memory was not enough to {doing}", do=DO) from error


def size(count: float) -> str:
    """A number of bytes for people."""
    return f"{count / 1e9:,.2f} GB" if count >= 1e8 else f"{count / 1e6:,.1f} MB"
