"""Thousands of generations and loads leave a process as it was: stress.py [--only PART].

Each generation takes a random model among the tiny fixtures of every kind, random options and a
random end: it is left to finish, cancelled by another thread at any moment, closed in the middle of
its stream, stopped by an error in a caller's function, or by a time limit. The parts:

one       so many generations in one thread
finished  the same in one thread, but those that would be cancelled are left to finish
threads   so many in eight threads that share the models, looked at whenever 40 are done and the
          threads are at rest
loads     so many loads of a tiny model, which is then let go

Judged at the end of each: what of ours is alive (buffers, bindings, decoders), threads and open
files are as many as at its start. Judged over its last two thirds: how the bytes grow that malloc
has given out, Python's objects among them, and how the resident set does. Either may by 3 times the
noise of its slope or 0.1 kB each, whichever is more.

Four things grow with use, but only up to a bound, which looks like a slope while it lasts. They are
kept out, the second and third by the environment EXACT. What 1,000 generations showed with and
without them:

- ONNX Runtime's telemetry, which onnxgen turns off, notes each run that fails or is terminated, and
  holds up to 0.5 MB of notes before it writes them to a file. 800 bare runs that are terminated
  show a saw: 3.3 kB each, and a fall after some 160; without telemetry nothing. With it "one", of
  whose generations a tenth is cancelled, had +0.45 kB in use each (noise 0.07), without -0.05
  (0.06).
- A thread's arena of glibc stays as large as its largest generation made it, 6 to 7 MB:
  malloc_trim() cuts the end of the main arena alone. "threads" had +7 to +10 kB resident each
  (noise 2), and of 3,000 the last 1,200 together 1 MB; with arenas that give back at once -1.3
  (0.7), with one arena for all -0.8 (0.5). In use it was flat.
- glibc keeps seven freed blocks of each size below 1 kB a thread, 200 kB, which count as given out.
  While they fill up, in thousands of generations, each seems to leave half a kB.
- Encoders let ONNX Runtime allocate their outputs. Memory of outputs that are held when a run ends
  goes back in the encoder's next one: up to 2.2 MB of whisper's after eight threads. settle() runs.

The exit code is 1 where something judged did not come back.
"""

import argparse
import ctypes
import gc
import os
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path

import numpy as np

import onnxgen
from onnxgen.graph import shapes
from onnxgen.runtime.binding import Binding
from onnxgen.runtime.decoder import Decoder
from onnxgen.runtime.device import Memory
from onnxgen.runtime.encoder import Encoded, Encoding
from onnxgen.runtime.group import Group
from onnxgen.runtime.scene import Scene
from onnxgen.runtime.session import Session
from onnxgen.tasks.request import Request

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from scripts.stress_jobs import KINDS, SOURCES, Job, jobs, model, path

EVERY = 10  # generations in one thread, or loads, from one look at the memory to the next
ROUND = 40  # the same in several threads
FLOOR = 0.1  # kB a generation: the resident set moves by pages of 4 kB
COUNTED = (Memory, Binding, Decoder, Group, Encoded, Encoding, Scene, Request, Session)
EXACT = {
    "PYTHONMALLOC": "malloc",  # which so knows of Python's objects
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.trim_threshold=131072",
}


# -- what is alive -------------------------------------------------------------------------------


def live() -> Counter[str]:
    """How many of our objects that hold memory of runs are alive, by kind."""
    gc.collect()
    return Counter(type(o).__name__ for o in gc.get_objects() if isinstance(o, COUNTED))


@dataclass(frozen=True)
class State:
    """What a process holds."""

    alive: Counter[str]
    threads: int
    files: int

    @classmethod
    def now(cls) -> "State":
        own = Path("/proc/self")
        return cls(live(), len(list((own / "task").iterdir())), len(list((own / "fd").iterdir())))

    def __str__(self) -> str:
        alive = ", ".join(f"{count} {name}" for name, count in sorted(self.alive.items()))
        return f"{alive}; {self.threads} threads, {self.files} open files"


class Mallinfo(ctypes.Structure):
    """What glibc's ``mallinfo2`` tells, in bytes, of all its arenas."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


@cache
def mallinfo() -> Callable[[], Mallinfo] | None:
    """glibc's ``mallinfo2``; None in another C library, or an older glibc."""
    found = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if found is not None:
        found.restype = Mallinfo
    return found


def used_kb() -> float:
    """Bytes that malloc has given out and not got back, in kB; the resident set without glibc.

    Python's own objects are among them where it runs as EXACT says, which main() sees to.
    Two caches with a bound of their own are emptied before: of shapes (1,024 of them), and
    CPython's of attributes, whose 4,096 places keep the names that were asked for.
    """
    shapes._shape.cache_clear()
    if sys.version_info < (3, 13):  # where it is deprecated
        sys._clear_type_cache()
    gc.collect()
    ask = mallinfo()
    if ask is None:
        return resident_kb()
    told = ask()
    return (told.uordblks + told.hblkhd) / 1000


def fill_kept() -> None:
    """NumPy keeps up to seven freed blocks of each size below 1,024 bytes: has it keep them all."""
    blocks = [np.empty(size, np.uint8) for size in range(1024) for _ in range(7)]
    del blocks


def resident_kb() -> float:
    """The resident set of this process without what Python and malloc keep for later (Linux)."""
    gc.collect()
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4.096


@dataclass(frozen=True, slots=True)
class Sample:
    """What malloc has given out and what is resident, in kB, after so many are done."""

    done: int
    used: float
    resident: float

    @classmethod
    def now(cls, done: int) -> "Sample":
        return cls(done, used_kb(), resident_kb())


@dataclass(frozen=True)
class Growth:
    """The slope of a line in kB a generation, and its standard error."""

    each: float
    noise: float


def growth(done: list[int], kb: list[float]) -> Growth:
    """How ``kb`` grows with ``done`` over the last two thirds.

    By a line through the medians of twelve blocks: an allocator moves in jumps that come back.
    """
    first = len(kb) // 3
    blocks = np.array_split(np.arange(first, len(kb)), min(12, len(kb) - first))
    if len(blocks) < 3:
        return Growth(0.0, 0.0)
    x = np.array([np.mean(np.array(done)[block]) for block in blocks])
    y = np.array([np.median(np.array(kb)[block]) for block in blocks])
    x = x - x.mean()
    line = float(x @ y / (x @ x))
    rest = y - y.mean() - line * x
    return Growth(line, float(np.sqrt(rest @ rest / (len(x) - 2) / (x @ x))))


# -- many of them --------------------------------------------------------------------------------


def generations(count: int, threads: int, seed: int, cancels: bool = True) -> list[Sample]:
    """Runs so many jobs; the memory now and then, while none runs.

    Without ``cancels`` those that would be cancelled are left to finish.
    """
    source, ends, samples = islice(jobs(seed), count), Counter[str](), []
    with ThreadPoolExecutor(threads) as pool:
        while batch := list(islice(source, EVERY if threads == 1 else ROUND)):
            if not cancels:
                batch = [replace(job, end=job.end.replace("cancel", "whole")) for job in batch]
            ends.update((map if threads == 1 else pool.map)(Job.run, batch))
            if threads > 1:
                settle()
            samples.append(Sample.now(ends.total()))
    print("  " + ", ".join(f"{number} {how}" for how, number in sorted(ends.items())))
    return samples


LOADED = ("llama", "genai-llama", "llama-pair")


def loads(count: int) -> list[Sample]:
    """Loads a tiny model and lets it go, so many times."""
    samples = []
    for index in range(count):
        own = onnxgen.load(path(LOADED[index % len(LOADED)]), threads=1)
        if index % 3 == 0:
            own.generate([5, 6, 7], max_new_tokens=2)
        del own
        if index % EVERY == 0:
            samples.append(Sample.now(index))
    return samples


def most(noise: float) -> float:
    """What may grow, in kB each, by the noise of its slope."""
    return max(3 * noise, FLOOR)


def part(title: str, run: Callable[[], list[Sample]]) -> bool:
    """Runs one part and prints what it left; whether all is as before."""
    before = State.now()
    print(f"{title}\n  start: {before}", flush=True)
    samples = run()
    after = State.now()
    print(f"  end:   {after}")
    done, sound = [sample.done for sample in samples], after == before
    for name in ("used", "resident"):
        kb = [getattr(sample, name) for sample in samples]
        twelfths = (np.median(block) for block in np.array_split(kb, min(12, len(kb))))
        print(f"  {name}, MB: " + " ".join(f"{median / 1000:.2f}" for median in twelfths))
        own = growth(done, kb)
        bound = most(own.noise)
        print(f"  {name}: {own.each:+.3f} kB each, noise {own.noise:.3f}; at most {bound:.3f}")
        sound &= own.each <= bound
    print("  as before" if sound else "  NOT as before", flush=True)
    return sound


def settle() -> None:
    """A short generation of each model: then all is there that it keeps, and no more."""
    for name, kind in KINDS.items():
        source, options = SOURCES[kind](name, np.random.default_rng(3))
        model(name).generate(source, max_new_tokens=3, **options)


def warm(count: int, threads: int) -> None:
    """What is kept for good is there: models, tokenizers, vision sessions, trials of graphs."""
    settle()
    fill_kept()
    generations(count, 1, 1_000)
    generations(count, threads, 1_001)


PARTS = ("one", "finished", "threads", "loads")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, help="this part alone")
    parser.add_argument("--count", type=int, default=1000, help="generations, or loads, of a part")
    parser.add_argument("--threads", type=int, default=8, help="of the part threads")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    exact = os.environ | EXACT
    if os.environ != exact:
        os.execve(sys.executable, [sys.executable, *sys.argv], exact)
    count, threads, seed, good = args.count, args.threads, args.seed, True
    warm(max(count // 10, 10), threads)
    for name in [args.only] if args.only else PARTS:
        if name == "loads":
            loads(9)
            good &= part(f"{count} loads", partial(loads, count))
            continue
        several = threads if name == "threads" else 1
        title = f"{name}: {count} generations, threads: {several}"
        good &= part(title, partial(generations, count, several, seed, name != "finished"))
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
