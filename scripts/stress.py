"""Thousands of generations and loads leave a process as it was: stress.py [--only PART].

Each generation takes a random model among the tiny fixtures of every kind, random options and a
random end: it is left to finish, cancelled by another thread at any moment, closed in the middle of
its stream, stopped by an error in a caller's function, or by a time limit. The parts:

one         so many generations in one thread
finished    the same in one thread, but those that would be cancelled are left to finish
threads     so many in eight threads that share the models, looked at whenever 40 are done and the
            threads are at rest
terminated  bare sessions of ONNX Runtime whose runs are terminated; nothing is judged
loads       so many loads of a tiny model, which is then let go

Judged at the end of each: what of ours is alive (buffers, bindings, decoders), threads and open
files are as many as at its start. Judged over its last two thirds: how the resident set grows,
which may be 3 times the noise of the slope or 0.1 kB a generation, whichever is more, and in
"finished" the same of the bytes that malloc has given out, Python's objects among them. In "loads"
it is these bytes alone that are judged, against what bare sessions on the same files leave.

Where runs are cancelled the bytes in use may grow, and are printed but not judged. "terminated"
looks for what ONNX Runtime alone leaves of such runs; a thousand showed +0.15 kB each, within the
noise of 0.19. Known to end as not as before: "one" (resident +0.38 kB each, noise 0.12, where
"finished" had -0.10) and "threads" (resident +7.3, noise 1.8; in use +0.2, noise 1.4).

The exit code is 1 where something judged did not come back.
"""

import argparse
import ctypes
import gc
import math
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
from typing import Any
from unittest import mock

import numpy as np
import onnxruntime

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
# So that malloc knows of Python's objects, and takes back what is freed: glibc keeps seven freed
# blocks of each size below 1 kB a thread, which count as given out. They are 200 kB, and while they
# fill up, which takes thousands of generations, each seems to leave half a kB.
EXACT = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}


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


@dataclass(frozen=True)
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


Made = list[tuple[tuple[Any, ...], dict[str, Any]]]  # arguments of sessions


def sessions_of(run: Callable[[], object]) -> Made:
    """The arguments of all sessions of ONNX Runtime that ``run`` makes."""
    made: Made = []
    plain = onnxruntime.InferenceSession

    def record(*args: Any, **options: Any) -> Any:
        made.append((args, options))
        return plain(*args, **options)

    with mock.patch.object(onnxruntime, "InferenceSession", record):
        run()
    return made


def bare_sessions(count: int, made: Made) -> list[Sample]:
    """The sessions that so many loads make and nothing else; ``made``: those of one round."""
    samples = []
    for index in range(count):
        if index % len(LOADED) == 0:
            for args, options in made:
                onnxruntime.InferenceSession(*args, **options)
        if index % EVERY == 0:
            samples.append(Sample.now(index))
    return samples


def terminated(count: int, made: Made) -> list[Sample]:
    """So many runs that are told to end at once, of bare sessions in turn."""
    samples = []
    sessions = [onnxruntime.InferenceSession(*args, **options) for args, options in made]
    feeds = [{port.name: ones(port) for port in own.get_inputs()} for own in sessions]
    for index in range(count):
        options = onnxruntime.RunOptions()
        options.log_severity_level = 4
        options.terminate = True
        try:
            sessions[index % len(made)].run(None, feeds[index % len(made)], options)
        except Exception as error:
            if "terminate" not in str(error):
                raise
        if index % EVERY == 0:
            samples.append(Sample.now(index))
    return samples


def ones(port: Any) -> np.ndarray[Any, Any]:
    """An array that an input of a session takes; its open sizes are 1."""
    kind = port.type.removeprefix("tensor(").removesuffix(")")
    shape = [size if isinstance(size, int) else 1 for size in port.shape]
    return np.ones(shape, {"float": "float32", "double": "float64"}.get(kind, kind))


Bound = Callable[[float], float]  # the growth that may be, by its noise; in kB each


def flat(noise: float) -> float:
    return max(3 * noise, FLOOR)


def part(
    title: str, run: Callable[[], list[Sample]], used: Bound | None, resident: Bound | None
) -> tuple[bool, Growth]:
    """Runs one part and prints what it left; whether all came back, and the growth in use.

    ``used``, ``resident``: what these may grow by; None where that is not judged.
    """
    before = State.now()
    print(f"{title}\n  start: {before}", flush=True)
    samples = run()
    after = State.now()
    print(f"  end:   {after}")
    done, sound = [sample.done for sample in samples], after == before
    found = []
    for name, bound in (("used", used), ("resident", resident)):
        kb = [getattr(sample, name) for sample in samples]
        twelfths = (np.median(block) for block in np.array_split(kb, min(12, len(kb))))
        print(f"  {name}, MB: " + " ".join(f"{median / 1000:.2f}" for median in twelfths))
        own = growth(done, kb)
        most = None if bound is None else bound(own.noise)
        judged = "not judged" if most is None else f"at most {most:.3f}"
        print(f"  {name}: {own.each:+.3f} kB each, noise {own.noise:.3f}; {judged}")
        sound &= most is None or own.each <= most
        found.append(own)
    print("  as before" if sound else "  NOT as before", flush=True)
    return sound, found[0]


def first(name: str, own: Any) -> None:
    """A short generation, after which all is there that ``own``, the model ``name``, keeps."""
    source, options = SOURCES[KINDS[name]](name, np.random.default_rng(3))
    own.generate(source, max_new_tokens=3, **options)


def warm(count: int, threads: int) -> None:
    """What is kept for good is there: models, tokenizers, vision sessions, trials of graphs."""
    for name in KINDS:
        first(name, model(name))
    fill_kept()
    generations(count, 1, 1_000)
    generations(count, threads, 1_001)


def judge_loads(count: int) -> bool:
    """Loads beside what ONNX Runtime alone leaves of their sessions."""
    loads(9)
    made = sessions_of(lambda: loads(len(LOADED)))
    title = f"the {len(made)} sessions of each {len(LOADED)} of {count} loads, and nothing else"
    alone, left = part(title, lambda: bare_sessions(count, made), None, None)

    def most(noise: float) -> float:
        return left.each + 3 * math.hypot(noise, left.noise)

    return part(f"{count} loads", lambda: loads(count), most, None)[0] and alone


def show_terminated(count: int) -> bool:
    """Terminated runs of all sessions that the fixtures need; nothing of ours runs meanwhile."""
    made = sessions_of(lambda: [first(name, onnxgen.load(path(name), threads=1)) for name in KINDS])
    title = f"terminated: {count} runs of {len(made)} bare sessions in turn"
    return part(title, lambda: terminated(count, made), None, None)[0]


PARTS = ("one", "finished", "threads", "terminated", "loads")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, help="this part alone")
    parser.add_argument("--count", type=int, default=1000, help="generations, or loads, of a part")
    parser.add_argument("--threads", type=int, default=8, help="of the part threads")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if os.environ.get("PYTHONMALLOC") != "malloc":
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | EXACT)
    count, threads, seed, good = args.count, args.threads, args.seed, True
    warm(max(count // 10, 10), threads)
    for name in [args.only] if args.only else PARTS:
        if name == "terminated":
            good &= show_terminated(count)
        elif name == "loads":
            good &= judge_loads(count)
        else:
            several, cancels = threads if name == "threads" else 1, name != "finished"
            title = f"{name}: {count} generations, threads: {several}"
            run = partial(generations, count, several, seed, cancels)
            good &= part(title, run, None if cancels else flat, flat)[0]
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
