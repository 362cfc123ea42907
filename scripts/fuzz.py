"""Mutants of tiny models' files: each loads and generates, or ends in an error of onnxgen's.

    python scripts/fuzz.py --mutants 5000 --seed 0 --kind all

Mutants run in batches, each in a child process with little memory and ten seconds for each mutant.
A crash, a hang or an exception of another kind is a failure; its seed, given as ``--seed N
--mutants 1``, makes the same mutant again.
"""

import argparse
import contextlib
import faulthandler
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
KINDS = {
    "model": ("model.onnx",),
    "config": (
        "config.json",
        "generation_config.json",
        "tokenizer_config.json",
        "genai_config.json",
    ),
    "tokenizer": ("tokenizer.json",),
    "template": ("chat_template.jinja",),
    "processor": ("preprocessor_config.json", "processor_config.json"),
}
SOURCES = ("genai-llama", "gpt2")  # small ones: a shared buffer, a growing cache
SENSES = ("whisper", "vit-gpt2", "smolvlm", "qwen2-vl")  # those that have a processor
PHOTO = ROOT / "fixtures/images/photo.jpg"
SECONDS, MEMORY, BATCH = 10, 4 << 30, 250

# ---------------------------------------------------------------- mutants

Mutate = Callable[[random.Random, bytes], bytes]


def flip(draw: random.Random, data: bytes) -> bytes:
    """A few bytes become others."""
    out = bytearray(data)
    for _ in range(draw.randint(1, 8)):
        out[draw.randrange(len(out))] = draw.randrange(256)
    return bytes(out)


def cut(draw: random.Random, data: bytes) -> bytes:
    """The end, or a piece, is gone."""
    start = draw.randrange(len(data))
    end = len(data) if draw.random() < 0.3 else start + draw.randint(1, 64)
    return data[:start] + data[end:]


def copy(draw: random.Random, data: bytes) -> bytes:
    """A piece stands elsewhere too, in place of what was there or beside it."""
    start, size, place = draw.randrange(len(data)), draw.randint(1, 64), draw.randrange(len(data))
    piece = data[start : start + size]
    return data[:place] + piece + data[place + (size if draw.random() < 0.5 else 0) :]


def extreme(draw: random.Random, data: bytes) -> bytes:
    """A number on the wire becomes a very large one."""
    place = draw.randrange(len(data))
    vast = draw.choice((b"\xff" * 9 + b"\x01", b"\xff\xff\xff\xff\x07", b"\x80\x80\x40", b"\x00"))
    return data[:place] + vast + data[place + draw.randint(1, 4) :]


def edit(draw: random.Random, data: bytes) -> bytes:
    """A sound graph that says something else: other wires, operators, dims and numbers."""
    import onnx

    with contextlib.suppress(Exception):  # what is no graph any more
        model = onnx.ModelProto.FromString(data)
        for _ in range(draw.randint(1, 4)):
            _edit(draw, model.graph)
        return bytes(model.SerializeToString())
    return data


def _edit(draw: random.Random, graph: Any) -> None:
    nodes, ports = graph.node, [*graph.input, *graph.output]
    node, other = draw.choice(nodes), draw.choice(nodes)
    number = draw.choice((-1, 0, 1, 2, 7, 2**20, 2**31 - 1, 2**31, 2**40, 2**63 - 1, -(2**63)))
    what = draw.randrange(9)
    if what == 0 and node.input:
        names = [*other.output, *other.input, *(port.name for port in ports)]
        node.input[draw.randrange(len(node.input))] = draw.choice(names)
    elif what == 1:
        node.op_type = other.op_type
    elif what == 2:
        nodes.remove(node)
    elif what == 3 and node.attribute:
        attribute = draw.choice(node.attribute)
        attribute.i, attribute.f = number, float(number)
        attribute.ints[:] = [number] * draw.randint(0, 3)
    elif what == 4:
        port = draw.choice(ports)
        port.type.tensor_type.elem_type = draw.randrange(30)
    elif what == 5:
        dims = draw.choice(ports).type.tensor_type.shape.dim
        if dims and draw.random() < 0.7:
            draw.choice(dims).dim_value = number
        else:
            dims.add().dim_param = draw.choice(("batch_size", "2 * batch", "heads", "", "a+b"))
    elif what == 6:
        port, port_2 = draw.choice(ports), draw.choice(ports)
        port.name, port_2.name = port_2.name, port.name
    elif what == 7:
        small = [t for t in graph.initializer if 0 < len(t.raw_data) <= 64]
        if small:
            tensor = draw.choice(small)
            tensor.raw_data = flip(draw, tensor.raw_data)
    else:
        graph.initializer.remove(draw.choice(graph.initializer))


def value(draw: random.Random, data: bytes) -> bytes:
    """A value in JSON becomes one of another type, or leaves."""
    tree = json.loads(data)
    places: list[tuple[Any, Any]] = []
    rest: list[Any] = [tree]
    while rest:
        part = rest.pop()
        entries = part.items() if isinstance(part, dict) else enumerate(part)
        for key, inner in entries:
            places.append((part, key))
            if isinstance(inner, dict | list):
                rest.append(inner)
    # Most of a tokenizer is its vocabulary: what stands near the top is drawn as often.
    few = [(part, key) for part, key in places if not isinstance(part, list) and len(part) < 40]
    for _ in range(draw.randint(1, 3)):
        part, key = draw.choice(few or places) if draw.random() < 0.3 else draw.choice(places)
        odd: tuple[Any, ...] = (
            None, True, -1, 0, 2**31, 2**63, 10**30, 1e308, -0.5, float("inf"), "", "7", "é" * 50,
            "\0", [], [[]], {}, {"a": 1}, [-1], [2**40], ["x"] * 3, "{{", "<unk>", "../../x",
        )  # fmt: skip
        with contextlib.suppress(IndexError, KeyError):
            if draw.random() < 0.1:
                del part[key]
            else:
                part[key] = draw.choice(odd)
    return json.dumps(tree).encode()


def word(draw: random.Random, data: bytes) -> bytes:
    """A piece of a template more, or in place of another."""
    pieces = (
        "{{", "}}", "{%", "%}", "{% for m in messages %}", "{% endfor %}", "{% if x %}", "messages",
        "{{ messages[0].content.foo.bar }}", "{{ ''.__class__ }}", "|length", "{{ 10**10 }}",
        "{{ 'a' * 10**9 }}", "{% for i in range(10**5) %}{% for j in range(10**5) %}x",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ raise_exception('no') }}",
        "{{ messages|tojson }}", "{{ 1 // 0 }}", "{{ bos_token + 1 }}", "{{ none.x }}", "\0", "é",
        "{{ range(10**9)|list }}", "{% set x = namespace(a=1) %}{% set x.a = x %}{{ x }}",
        "{{ 'x'.center(10**10) }}", "{{ '%1000000000d' % 1 }}", "{{ 9**9**9 }}",
    )  # fmt: skip
    place = draw.randrange(len(data) + 1)
    return data[:place] + draw.choice(pieces).encode() + data[place + draw.choice((0, 0, 4)) :]


MUTATIONS: dict[str, tuple[Mutate, ...]] = {
    "model": (edit, edit, edit, edit, flip, cut, copy, extreme),
    "config": (value, value, value, value, flip, cut),
    "tokenizer": (value, value, value, flip, cut, copy),
    "template": (word, word, word, flip, cut),
    "processor": (value, value, value, value, flip, cut),
}


@dataclass(frozen=True)
class Mutant:
    """What a seed makes of a model: one file with other content."""

    seed: int
    source: str
    kind: str
    name: str

    @classmethod
    def of(cls, seed: int, kind: str) -> "Mutant":
        """The mutant of ``seed``; ``kind`` "all" draws one."""
        draw = random.Random(f"{seed} {kind}")
        drawn = draw.choice(list(KINDS)) if kind == "all" else kind
        sources = SENSES if drawn == "processor" else SOURCES
        source = ROOT / "fixtures/models" / draw.choice(sources)
        names = [name for name in KINDS[drawn] if (source / name).exists()]
        return cls(seed, source.name, drawn, draw.choice(names))

    def build(self, folder: Path) -> None:
        """Puts the model into ``folder``."""
        source = ROOT / "fixtures/models" / self.source
        unread = shutil.ignore_patterns("expected.json", "images", "*.npz")
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=unread)
        draw = random.Random(f"{self.seed} {self.kind} {self.name}")
        data = (folder / self.name).read_bytes()
        for _ in range(draw.randint(1, 2)):
            with contextlib.suppress(ValueError):  # what is no JSON any more
                data = draw.choice(MUTATIONS[self.kind])(draw, data) or b"\0"
        (folder / self.name).write_bytes(data)


# ---------------------------------------------------------------- in the child


def use(model: Any) -> None:
    """One request of each sort that a model of its task takes."""
    import numpy as np

    from onnxgen.tasks.image_text_to_text import ImageTextToText
    from onnxgen.tasks.image_to_text import ImageToText
    from onnxgen.tasks.speech_to_text import SpeechToText

    if isinstance(model, SpeechToText):
        hum = np.sin(np.arange(8_000) / 10, dtype=np.float32)  # (T,)
        model.generate({"array": hum, "sampling_rate": 16_000}, max_new_tokens=3)
    elif isinstance(model, ImageToText):
        model.generate(PHOTO, max_new_tokens=3)
    elif isinstance(model, ImageTextToText):
        prompt, keywords = model.about([PHOTO])
        model.generate(prompt, max_new_tokens=3, **keywords)
    else:
        model.generate([1, 2, 3], max_new_tokens=3)
        model.generate("ab", max_new_tokens=3)
        model.generate([{"role": "user", "content": "ab"}], max_new_tokens=3)


def attempt(folder: Path) -> str:
    """How one mutant ends: "runs", the class of our error, or what should not have come."""
    import onnxgen

    try:
        use(onnxgen.load(folder, threads=1))
    except onnxgen.OnnxgenError as error:
        return type(error).__name__
    except BaseException as error:
        traceback.print_exc()
        return f"FOREIGN {type(error).__name__}"
    return "runs"


def child(seeds: list[int], kind: str) -> None:
    """Runs the mutants of ``seeds``, one line for each; a timer ends one that hangs."""
    import warnings

    import PIL.Image  # noqa: F401 - as the next one, before the memory is short

    import onnxgen.tasks.loading  # noqa: F401

    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for seed in seeds:
        print("begin", seed, flush=True)
        # Ends the process from a thread of its own, whatever holds the interpreter's lock.
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        with tempfile.TemporaryDirectory() as place:
            Mutant.of(seed, kind).build(Path(place))
            start = time.monotonic()
            outcome = attempt(Path(place))
            took = time.monotonic() - start
        faulthandler.cancel_dump_traceback_later()
        print("end", seed, "hang" if took > SECONDS else outcome, flush=True)


# ---------------------------------------------------------------- in the parent


def batch(seeds: list[int], kind: str) -> dict[int, str]:
    """Seed -> how its mutant ended, in one or, after a crash, several child processes."""
    ended: dict[int, str] = {}
    while rest := [seed for seed in seeds if seed not in ended]:
        given = json.dumps([rest, kind])
        done = subprocess.run(
            [sys.executable, __file__, "--child", given],
            capture_output=True,
            text=True,
            errors="replace",
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            timeout=SECONDS * len(rest) + 60,
        )
        begun = None
        for line in done.stdout.splitlines():
            what, _, told = line.partition(" ")
            number, _, outcome = told.partition(" ")
            if what == "begin":
                begun = int(number)
            elif what == "end":
                ended[int(number)], begun = outcome, None
        if any(outcome.startswith("FOREIGN") for outcome in ended.values()) or begun is not None:
            sys.stderr.write(done.stderr[-6000:])
        if begun is not None:
            hung = "Timeout (" in done.stderr
            ended[begun] = "hang" if hung else f"CRASH {done.returncode}"
        elif done.returncode:
            raise RuntimeError(f"a child failed by itself:\n{done.stderr[-2000:]}")
    return ended


def failed(outcome: str) -> bool:
    """Whether a mutant should not have ended so."""
    return outcome == "hang" or outcome.startswith(("FOREIGN", "CRASH"))


def fuzz(mutants: int, seed: int, kind: str) -> dict[int, str]:
    """Seed -> how its mutant ended."""
    ended: dict[int, str] = {}
    seeds = list(range(seed, seed + mutants))
    for start in range(0, mutants, BATCH):
        ended |= batch(seeds[start : start + BATCH], kind)
    return ended


def main() -> int:
    """Fuzzes as the command line says; 1 if a mutant failed."""
    parser = argparse.ArgumentParser(description="Mutants of a tiny model's files")
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the first; the others follow")
    parser.add_argument("--kind", choices=[*KINDS, "all"], default="all")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*json.loads(options.child))
        return 0
    start = time.monotonic()
    ended = fuzz(options.mutants, options.seed, options.kind)
    for outcome, count in Counter(ended.values()).most_common():
        print(f"{count:6} {outcome}")
    bad = {seed: outcome for seed, outcome in ended.items() if failed(outcome)}
    for seed, outcome in bad.items():
        print(f"seed {seed}: {outcome} ({Mutant.of(seed, options.kind)})")
    print(f"{len(ended)} mutants, {len(bad)} failed, {time.monotonic() - start:.0f} s")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
