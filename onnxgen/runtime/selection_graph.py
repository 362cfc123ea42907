"""The graph that chooses tokens from logits: its steps, and how they are written as nodes.

A step does what the processor or warper of the same name does to scores on the host; bans are -inf
there too. Operators are those that ONNX Runtime has on every device.

Letters: B rows, I prompts, N beams of a prompt (B = I × N), V vocabulary, W sorted scores,
K candidates, L ids so far.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

FLOAT, DOUBLE, INT64, BOOL = (
    TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.BOOL
)  # fmt: skip

# Ties with the last of top-k stay open too; so many of them count in what is sorted behind it.
TIES = 64
# ONNX Runtime's running sum is quadratic on CUDA, so longer ones are taken in blocks.
BLOCK = 1024


class Nodes:
    """A graph in the making: each method adds nodes and returns the name of their output."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.open_at_most = vocab_size  # scores of a row that are not banned, but for ties
        self.inputs: dict[str, Any] = {}
        self.outputs: list[Any] = []
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """One node with one output."""
        return self.ops(kind, *inputs, outputs=1, **attributes)[0]

    def ops(self, kind: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """One node with several outputs."""
        names = [f"n{len(self._nodes)}_{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def constant(self, values: NDArray[Any]) -> str:
        """An array that is part of the graph."""
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(values, name))
        return name

    def number(self, value: float) -> str:
        """A float32 constant."""
        return self.constant(np.array(value, np.float32))

    def whole(self, *values: int) -> str:
        """A vector of int64 constants."""
        return self.constant(np.array(values, np.int64))

    def input(self, name: str, elem_type: int, dims: Sequence[str | int]) -> str:
        """An input of the graph; asked for twice it is the same."""
        if name not in self.inputs:
            self.inputs[name] = helper.make_tensor_value_info(name, elem_type, list(dims))
        return name

    def output(self, name: str, value: str, elem_type: int, dims: Sequence[str | int]) -> None:
        """Makes ``value`` an output of the graph."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, elem_type, list(dims)))

    def cast(self, value: str, elem_type: int) -> str:
        """``value`` as another type."""
        return self.op("Cast", value, to=elem_type)

    def over_row(self, kind: str, values: str) -> str:
        """A reduction of (B,W) to (B,1)."""
        return self.op(kind, values, self.whole(1), keepdims=1)

    def count(self, condition: str) -> str:
        """How many of each row are true: (B,W) to (B,1), float32, which is exact below 2**24."""
        return self.over_row("ReduceSum", self.cast(condition, FLOAT))

    def top(self, values: str, count: int) -> tuple[str, str]:
        """The best (B,K) in falling order and where they are; of equals the first."""
        best, places = self.ops("TopK", values, self.whole(count), outputs=2, axis=1)
        return best, places

    def at(self, values: str, places: str) -> str:
        """Of each row of (B,W) what is at ``places`` (B,n)."""
        return self.op("GatherElements", values, places, axis=1)

    def ban(self, condition: str, scores: str) -> str:
        """``scores`` (B,V), banned where ``condition`` holds."""
        return self.op("Where", condition, self.number(-np.inf), scores)

    def peak(self, scores: str) -> str:
        """The best of each row (B,1); NaN where there is one, which reductions may overlook."""
        broken = self.over_row("ReduceMax", self.cast(self.op("IsNaN", scores), FLOAT))  # (B,1)
        best = self.over_row("ReduceMax", scores)
        return self.op("Where", self.cast(broken, BOOL), self.number(np.nan), best)

    def powers(self, scores: str, peak: str) -> str:
        """exp(scores - peak), exactly 0 for bans."""
        powers = self.op("Exp", self.op("Sub", scores, peak))
        return self.op("Where", self.banned(scores), self.number(0), powers)

    def banned(self, scores: str) -> str:
        """Which of ``scores`` are bans; NaN is none, and stays to be found."""
        return self.op("Equal", scores, self.number(-np.inf))

    def total(self, powers: str) -> str:
        """The sum (B,1) of ``powers`` (B,W), rounded once."""
        return self.cast(self.over_row("ReduceSum", self.cast(powers, DOUBLE)), FLOAT)

    def normaliser(self, scores: str) -> str:
        """What makes each row log-probabilities when taken off, (B,1)."""
        peak = self.over_row("ReduceMax", scores)
        return self.op("Add", peak, self.op("Log", self.total(self.powers(scores, peak))))

    def log_softmax(self, scores: str) -> str:
        """Log-probabilities of ``scores`` (B,V); a NaN makes its row NaN."""
        peak = self.peak(scores)
        shifted = self.op("Sub", scores, peak)
        return self.op("Sub", shifted, self.op("Log", self.total(self.powers(scores, peak))))

    def before(self, values: str, width: int) -> str:
        """The sums (B,W) of what stands before each of ``values`` (B,W), a floating type."""
        if width <= BLOCK:
            return self.op("CumSum", values, self.whole(1), exclusive=1)
        blocks = -(-width // BLOCK)
        pads = self.whole(0, 0, 0, blocks * BLOCK - width)
        split = self.op("Reshape", self.op("Pad", values, pads), self.whole(-1, blocks, BLOCK))
        inside = self.op("CumSum", split, self.whole(2), exclusive=1)
        totals = self.op("ReduceSum", split, self.whole(2), keepdims=1)
        offsets = self.op("CumSum", totals, self.whole(1), exclusive=1)
        joined = self.op("Reshape", self.op("Add", inside, offsets), self.whole(-1, blocks * BLOCK))
        return self.op("Slice", joined, self.whole(0), self.whole(width), self.whole(1))

    def bytes(self, name: str) -> bytes:
        """The finished model."""
        inputs = list(self.inputs.values())
        graph = helper.make_graph(self._nodes, name, inputs, self.outputs, self._constants)
        opsets = [helper.make_opsetid("", 18)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        return bytes(model.SerializeToString())


@dataclass(frozen=True, slots=True)
class Bias:
    """Adds a number to the score of each of some ids."""

    values: tuple[tuple[int, float], ...]

    def write(self, nodes: Nodes, scores: str) -> str:
        """The nodes of this step; ``scores`` and what is returned are (B,V)."""
        added = np.zeros(nodes.vocab_size, np.float32)
        for token, value in self.values:
            added[token] = value
        return nodes.op("Add", scores, nodes.constant(added))


@dataclass(frozen=True, slots=True)
class Ban:
    """Bans ``ids``: always, or in rows for which the flag ``when`` is set."""

    ids: tuple[int, ...]
    when: str = ""

    def write(self, nodes: Nodes, scores: str) -> str:
        """See :class:`Bias`."""
        mask = np.zeros(nodes.vocab_size, np.bool_)
        mask[list(self.ids)] = True
        banned = nodes.constant(mask)
        if self.when:
            banned = nodes.op("And", nodes.input(self.when, BOOL, ("B", 1)), banned)
        return nodes.ban(banned, scores)


@dataclass(frozen=True, slots=True)
class Force:
    """Leaves nothing but ``ids``, with equal scores, to rows for which ``when`` is set."""

    ids: tuple[int, ...]
    when: str

    def write(self, nodes: Nodes, scores: str) -> str:
        """See :class:`Bias`."""
        forced = np.full(nodes.vocab_size, -np.inf, np.float32)
        forced[list(self.ids)] = 0
        flag = nodes.input(self.when, BOOL, ("B", 1))
        return nodes.op("Where", flag, nodes.constant(forced), scores)


@dataclass(frozen=True, slots=True)
class Repetition:
    """Makes every id of the row less likely, once however often it is there."""

    penalty: float

    def write(self, nodes: Nodes, scores: str) -> str:
        """See :class:`Bias`. Ids that are no scores' places were replaced, see ``Selector``."""
        ids = nodes.input("ids", INT64, ("B", "L"))
        penalty = nodes.number(self.penalty)
        old = nodes.at(scores, ids)  # (B,L)
        negative = nodes.op("Less", old, nodes.number(0))
        less, more = nodes.op("Mul", old, penalty), nodes.op("Div", old, penalty)
        new = nodes.op("Where", negative, less, more)
        new = nodes.op("Where", nodes.input("has_ids", BOOL, ("B", 1)), new, old)
        return nodes.op("ScatterElements", scores, ids, new, axis=1)


@dataclass(frozen=True, slots=True)
class Temperature:
    """Divides the scores."""

    value: float

    def write(self, nodes: Nodes, scores: str) -> str:
        """See :class:`Bias`."""
        return nodes.op("Div", scores, nodes.number(self.value))


@dataclass(frozen=True, slots=True)
class TopK:
    """Keeps the ``count`` best, and all that equal the last of these."""

    count: int

    def write(self, nodes: Nodes, scores: str) -> str:
        """See :class:`Bias`."""
        count = min(self.count, nodes.vocab_size)
        border = nodes.over_row("ReduceMin", nodes.top(scores, count)[0])
        nodes.open_at_most = min(nodes.open_at_most, count + TIES)
        return nodes.ban(nodes.op("Less", scores, border), scores)


@dataclass(frozen=True, slots=True)
class TopP:
    """Keeps the fewest best whose probabilities reach ``mass``, and at least ``keep``.

    Drops from the least likely on while the sum stays within 1 - ``mass``; of equals the first.
    """

    mass: float
    keep: int = 1

    def write(self, nodes: Nodes, scores: str) -> str:
        """See :class:`Bias`."""
        width = nodes.open_at_most
        ranked, _ = nodes.top(scores, width)  # (B,W)
        powers = nodes.powers(ranked, nodes.over_row("ReduceMax", ranked))
        shares = nodes.cast(nodes.op("Div", powers, nodes.total(powers)), DOUBLE)
        whole = nodes.over_row("ReduceSum", shares)
        tails = nodes.cast(nodes.op("Sub", whole, nodes.before(shares, width)), FLOAT)
        staying = nodes.count(nodes.op("Greater", tails, nodes.number(1 - self.mass)))
        staying = nodes.op("Max", staying, nodes.number(min(self.keep, width)))  # (B,1)
        last = nodes.cast(nodes.op("Sub", staying, nodes.number(1)), INT64)
        border = nodes.at(ranked, last)
        better = nodes.op("Greater", scores, border)
        equal = nodes.op("Equal", scores, border)
        # Of those at the border the first go, so many that what stays is right.
        surplus = nodes.op("Sub", nodes.op("Add", nodes.count(better), nodes.count(equal)), staying)
        passed = nodes.before(nodes.cast(equal, FLOAT), nodes.vocab_size)
        first = nodes.op("And", equal, nodes.op("Less", passed, surplus))
        return nodes.ban(nodes.op("Or", nodes.op("Less", scores, border), first), scores)


@dataclass(frozen=True, slots=True)
class MinP:
    """Keeps what has ``least`` times the probability of the best, and the ``keep`` best."""

    least: float
    keep: int = 1

    def write(self, nodes: Nodes, scores: str) -> str:
        """See :class:`Bias`."""
        powers = nodes.powers(scores, nodes.over_row("ReduceMax", scores))
        shares = nodes.op("Div", powers, nodes.total(powers))
        limit = nodes.op("Mul", nodes.over_row("ReduceMax", shares), nodes.number(self.least))
        dropping = nodes.op("Less", shares, limit)
        if self.keep > 1:
            best, _ = nodes.top(scores, min(self.keep, nodes.vocab_size))
            border = nodes.over_row("ReduceMin", best)
            dropping = nodes.op("And", dropping, nodes.op("Less", scores, border))
        return nodes.ban(dropping, scores)


@dataclass(frozen=True, slots=True)
class Renormalise:
    """Turns scores into log-probabilities."""

    def write(self, nodes: Nodes, scores: str) -> str:
        """See :class:`Bias`. A row of nothing but bans stays what it is."""
        return nodes.ban(nodes.banned(scores), nodes.log_softmax(scores))


SelectionStep = (
    Bias | Ban | Force | Repetition | Temperature | TopK | TopP | MinP | Renormalise
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionSpec:
    """What is done to logits, and what is told of the scores they become.

    ``steps`` follow one another. ``draws``: noise is an input, and the race of the exponential
    distribution chooses instead of the best score. ``candidates``: how many of the best scores,
    with their ids, are told. ``logprobs``: whether what turns scores into log-probabilities is.

    ``beams`` above 0: the steps act on log-probabilities, and of each prompt's N × V sums with
    what its beams had before, ``candidates`` are chosen.
    """

    steps: tuple[SelectionStep, ...] = ()
    draws: bool = False
    candidates: int = 0
    logprobs: bool = False
    beams: int = 0


def selection_graph(spec: SelectionSpec, vocab_size: int, elem_type: int) -> bytes:
    """The model that does ``spec`` to logits (B,V) of ``elem_type``."""
    nodes = Nodes(vocab_size)
    scores = nodes.input("logits", elem_type, ("B", vocab_size))
    if elem_type != FLOAT:
        scores = nodes.cast(scores, FLOAT)
    if spec.beams:
        scores = nodes.log_softmax(scores)
    for step in spec.steps:
        scores = step.write(nodes, scores)
    tell = _tell_beams if spec.beams else _tell_rows
    tell(nodes, spec, scores)
    return nodes.bytes("selection")


def _race(nodes: Nodes, scores: str, peak: str, width: int | str) -> str:
    """The pace of each of ``scores`` (B,W): the fastest is drawn. Bans never are."""
    noise = nodes.input("noise", FLOAT, ("R", width))
    pace = nodes.op("Div", nodes.powers(scores, peak), noise)
    return nodes.op("Where", nodes.banned(scores), nodes.number(-1), pace)


def _tell_rows(nodes: Nodes, spec: SelectionSpec, scores: str) -> None:
    vocab, peak = nodes.vocab_size, nodes.peak(scores)
    running = _race(nodes, scores, peak, vocab) if spec.draws else scores
    tokens = nodes.op("ArgMax", running, axis=1, keepdims=1)  # (B,1); of equals the first
    nodes.output("tokens", tokens, INT64, ("B", 1))
    nodes.output("best", peak, FLOAT, ("B", 1))
    if spec.logprobs:
        nodes.output("chosen", nodes.at(scores, tokens), FLOAT, ("B", 1))
        nodes.output("norms", nodes.normaliser(scores), FLOAT, ("B", 1))
    if spec.candidates:
        values, ids = nodes.top(scores, min(spec.candidates, vocab))
        nodes.output("best_ids", ids, INT64, ("B", "K"))
        nodes.output("scores", values, FLOAT, ("B", "K"))
        open_ones = nodes.count(nodes.op("Not", nodes.banned(scores)))
        nodes.output("open", nodes.cast(open_ones, INT64), INT64, ("B", 1))


def _tell_beams(nodes: Nodes, spec: SelectionSpec, scores: str) -> None:
    width = spec.beams * nodes.vocab_size
    flat = nodes.whole(-1, width)
    sums = nodes.op("Add", scores, nodes.input("running", FLOAT, ("B", 1)))
    sums = nodes.op("Reshape", sums, flat)  # (I,N×V)
    peak = nodes.peak(sums)  # (I,1)
    running = _race(nodes, sums, peak, width) if spec.draws else sums
    _, places = nodes.top(running, spec.candidates)  # (I,K)
    nodes.output("places", places, INT64, ("I", "K"))
    nodes.output("sums", nodes.at(sums, places), FLOAT, ("I", "K"))
    own = nodes.at(nodes.op("Reshape", scores, flat), places)
    nodes.output("scores", own, FLOAT, ("I", "K"))
    nodes.output("best", peak, FLOAT, ("I", 1))
    if spec.logprobs:
        nodes.output("norms", nodes.normaliser(scores), FLOAT, ("B", 1))
