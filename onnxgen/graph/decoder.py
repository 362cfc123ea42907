"""``DecoderGraph``: the facts about one exported decoder, from its structure alone.

It says what each input is for, how each cache is paired, shaped and fed (the mode), how rows of
unequal length may share a batch, where the logits of a row stand, and how far the graph can
position tokens. It refuses, with the reason, what cannot generate.

Letters: B batch, S new tokens, P past, T = P+S, C capacity, H heads, D head size, V vocabulary.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from onnxgen.errors import UnsupportedModelError
from onnxgen.graph import caches, capacity, lengths
from onnxgen.graph.caches import GROWN, SHARED, Join
from onnxgen.graph.lengths import Lengths
from onnxgen.graph.proto import Graph, Port, understood
from onnxgen.graph.roles import ENCODED, FED, roles
from onnxgen.graph.shapes import CacheSlot, slot


class Mode(StrEnum):
    """How the cache of attention lives from step to step."""

    IN_PLACE = "in_place"  # one buffer of the capacity is past and present
    APPEND = "append"  # the present becomes the past; the mask hides holes
    GROW = "grow"  # likewise at exact length, without holes
    NONE = "none"  # no cache: every step reads the whole sequence again


class Logits(StrEnum):
    """Which positions the logits cover."""

    FULL = "full"  # (B,S,V)
    LAST = "last"  # (B,1,V): those of the last column only
    FLAT = "rank2"  # (B,V): likewise


@dataclass(frozen=True, slots=True)
class DecoderGraph:
    """The facts about one decoder graph; ``inputs`` maps roles to ports."""

    path: Path
    inputs: Mapping[str, Port]
    slots: tuple[CacheSlot, ...]  # caches and states that each step renews
    cross: tuple[CacheSlot, ...]  # caches of the encoder's states, computed in the first step
    mode: Mode
    reason: str
    lengths: Lengths | None  # what stands behind the count of valid rows in a shared buffer
    ragged: bool  # whether rows of unequal length may share a batch
    ragged_reason: str
    logits: Port
    logits_kind: Logits
    vocab_size: int | None
    capacity: capacity.Capacity
    merged: bool  # an ``If`` on use_cache_branch
    fixed_batch: int | None = None  # a static batch size
    step_size: int | None = None  # a static number of new tokens
    extra_outputs: tuple[str, ...] = ()
    producer: str = ""
    operators: Mapping[str, int] = field(default_factory=dict)
    few_bits: bool = False  # products with weights of 4 or 8 bits
    source: Any = None  # what a session loads in place of ``path``, where the graph was rewritten

    @property
    def caches(self) -> tuple[CacheSlot, ...]:
        """The slots of attention: keys and values."""
        return tuple(s for s in self.slots if s.join is not Join.STATE)

    @property
    def states(self) -> tuple[CacheSlot, ...]:
        """The slots of fixed size: convolution and recurrent states."""
        return tuple(s for s in self.slots if s.join is Join.STATE)

    @property
    def rewinds(self) -> bool:
        """Whether the last tokens can be forgotten: not in states, nor what a window dropped."""
        return not self.states and not any(s.evicts for s in self.slots)

    @property
    def layers(self) -> int:
        """How many layers keep a cache or a state."""
        return len({s.layer for s in self.slots})

    def bytes_per_token(self) -> int:
        """Bytes that one more token of one row adds to the caches."""
        return sum(s.row_bytes(1) for s in self.caches)

    @classmethod
    def load(cls, path: Path, config: Mapping[str, Any] | None = None) -> "DecoderGraph":
        """Reads the facts from the graph file ``path``.

        ``config`` (config.json) fills only what the graph does not say: head counts and head
        sizes behind symbolic dims. ModelFileError for a broken file, UnsupportedModelError for a
        graph that cannot generate.
        """
        return inspect(Graph.load(path), config or {})


def check_runs(graph: DecoderGraph, *, embedded: bool, encoded: bool = False) -> None:
    """UnsupportedModelError if the decoder lacks what it cannot run without.

    ``embedded``: there is a graph that makes embeddings of tokens; ``encoded``: one that encodes
    what the decoder attends to.
    """
    name = graph.path.name
    if "embeds" in graph.inputs and not embedded:
        raise UnsupportedModelError(
            f"{name} takes embeddings, and there is no graph that makes them",
            wanted="embed_tokens.onnx beside it",
            do="download the repository with all of its sessions",
        )
    fed = FED | ENCODED if encoded else FED
    foreign = [port.name for role, port in graph.inputs.items() if role not in fed]
    if foreign or (graph.cross and not encoded):
        raise UnsupportedModelError(
            f"{name} needs {', '.join(foreign or [slot.input for slot in graph.cross[:2]])}",
            wanted="a decoder that runs on tokens and its own cache, or its encoder beside it",
            do="name the whole model folder",
        )
    if (graph.fixed_batch or 1) > 1:
        raise UnsupportedModelError(
            f"{name} takes batches of {graph.fixed_batch} rows, no more and no fewer",
            wanted="a symbolic batch size, or a batch of 1",
            do="export it again with a dynamic batch axis",
        )
    if graph.vocab_size is None:
        raise UnsupportedModelError(
            f"neither the dims nor the weights of {name} say how wide its logits are",
            wanted="logits with a static last dim",
            do="export the model again",
        )


def inspect(graph: Graph, config: Mapping[str, Any]) -> DecoderGraph:
    """The facts about ``graph``; see :meth:`DecoderGraph.load`."""
    with understood(graph.path):
        return _facts(graph, config)


def _facts(graph: Graph, config: Mapping[str, Any]) -> DecoderGraph:
    role_of = roles(graph)
    _refuse_operators(graph)
    paths = caches.pair(graph, role_of)
    _refuse_unknown_inputs(graph, {*role_of, *paths})
    inputs = {role: graph.inputs[name] for name, role in role_of.items()}
    every = tuple(slot(graph, name, path, config) for name, path in paths.items())
    slots = tuple(s for s in every if s.join is not Join.CROSS)
    logits, kind = _logits(graph, {path.output for path in paths.values()})
    counted = _counts(graph, {**role_of, **dict.fromkeys(paths, "cache")})
    mode, reason = _mode(graph, inputs, slots, counted)
    ragged, ragged_reason = _ragged(graph, mode, inputs, slots, counted, kind)
    vocab = logits.shape[-1]
    used = {logits.name, *(path.output for path in paths.values())}
    return DecoderGraph(
        path=graph.path,
        inputs=inputs,
        slots=slots,
        cross=tuple(s for s in every if s.join is Join.CROSS),
        mode=mode,
        reason=reason,
        lengths=counted,
        ragged=ragged,
        ragged_reason=ragged_reason,
        logits=logits,
        logits_kind=kind,
        vocab_size=vocab if isinstance(vocab, int) else lengths.width_of(graph.scope, logits.name),
        capacity=capacity.bound(graph, inputs, slots),
        merged="use_cache" in inputs,
        fixed_batch=_static(inputs, 0),
        step_size=_static(inputs, 1),
        extra_outputs=tuple(name for name in graph.outputs if name not in used),
        producer=graph.producer,
        operators=_attention_operators(graph),
        few_bits=any(True for _ in graph.scope.nodes("MatMulNBits", "MatMulBnb4")),
    )


def _refuse_operators(graph: Graph) -> None:
    for _, node in graph.scope.nodes("PagedAttention", "BeamSearch", "GreedySearch", "Sampling"):
        raise UnsupportedModelError(
            f"{graph.path.name} holds the operator {node.op_type} (node {node.name!r})",
            wanted="a decoder that takes tokens and a cache and gives logits and the next cache",
            do="export the decoder without paged caches or a search inside the graph",
        )


def _refuse_unknown_inputs(graph: Graph, known: set[str]) -> None:
    if "ids" not in roles(graph).values() and "embeds" not in roles(graph).values():
        raise UnsupportedModelError(
            f"{graph.path.name} takes neither token ids nor embeddings: {', '.join(graph.inputs)}",
            wanted="an input like input_ids (batch, sequence) or inputs_embeds",
            do="point onnxgen to the decoder's graph",
        )
    if unknown := [name for name in graph.inputs if name not in known]:
        raise UnsupportedModelError(
            f"{graph.path.name} has inputs whose purpose its graph does not show: "
            + ", ".join(f"{name} {list(graph.inputs[name].shape)}" for name in unknown),
            wanted="token ids, mask, positions, caches and the like",
            do="export without these inputs, or report the exporter",
        )


def _logits(graph: Graph, taken: set[str]) -> tuple[Port, Logits]:
    """The output that holds the logits, by name, else by its likeness, and what it covers."""
    named = [graph.outputs[name] for name in ("logits", "lm_logits") if name in graph.outputs]
    others = [p for name, p in graph.outputs.items() if name not in taken]
    tables = {
        dims[0]
        for scope, node in graph.scope.nodes("Gather", "GatherBlockQuantized")
        if (dims := scope.dims(node.input[0])) and len(dims) == 2
    }
    alike = [p for p in others if len(p.shape) in {2, 3} and p.shape[-1] in tables]
    found = named or alike[:1]
    if not found:
        raise UnsupportedModelError(
            f"{graph.path.name} gives no logits; its outputs are {', '.join(graph.outputs)}",
            wanted="an output 'logits' (batch, sequence, vocabulary)",
            do="export with the language-modelling head (task text-generation), not the bare model",
        )
    port = found[0]
    if len(port.shape) == 2:
        return port, Logits.FLAT
    if len(port.shape) == 3:
        return port, Logits.LAST if port.shape[1] == 1 else Logits.FULL
    raise UnsupportedModelError(
        f"the logits of {graph.path.name} have rank {len(port.shape)}: {list(port.shape)}",
        wanted="(batch, sequence, vocabulary), (batch, 1, vocabulary) or (batch, vocabulary)",
        do="export again with plain logits",
    )


def _counts(graph: Graph, role_of: Mapping[str, str]) -> Lengths | None:
    """What attention counts as valid rows, the most restrictive of all nodes."""
    counts = set()
    for scope, node in graph.scope.nodes("GroupQueryAttention"):
        count = lengths.count_of(scope, node.input[5], role_of)
        if count is None:
            raise UnsupportedModelError(
                f"attention node {node.name!r} counts its valid rows from nothing that grows",
                wanted="seqlens_k computed from the mask, the past or an input",
                do="export again with a dynamic attention mask",
            )
        counts.add(count)
    if {"past_length", "write_index"} & set(role_of.values()) and not counts:
        return Lengths.HOST
    for strict in (Lengths.PAST_LENGTH, Lengths.MASK_LENGTH):
        if strict in counts:
            return strict
    return next(iter(counts), None)


def _mode(
    graph: Graph,
    inputs: Mapping[str, Port],
    slots: tuple[CacheSlot, ...],
    counted: Lengths | None,
) -> tuple[Mode, str]:
    """The cache mode and, for people, the reason for it."""
    joins = {s.join for s in slots if s.join is not Join.STATE}
    if not joins and not slots:
        return Mode.NONE, "the graph has no cache inputs: each step reads the whole sequence again"
    if not joins:
        return Mode.GROW, "only states of fixed size, which each step replaces"
    if counted is Lengths.PAST_LENGTH:
        return Mode.GROW, "GroupQueryAttention counts the cache's own length: no spare rows allowed"
    if joins <= SHARED:
        how = f" (valid rows by {counted})" if counted else ""
        return Mode.IN_PLACE, f"{_names(joins)} writes into a shared buffer{how}"
    appends = f"{_names(joins & GROWN)} appends to the cache"
    if "mask" not in inputs or not lengths.reads_values(graph.scope, inputs["mask"].name):
        return Mode.GROW, f"{appends}, and no mask hides rows"
    if "positions" in inputs:
        return Mode.APPEND, f"{appends}, positions are an input, and the mask can hide rows"
    if lengths.counts_mask(graph.scope, inputs["mask"].name):
        return Mode.APPEND, f"{appends}, and positions are the running sum of the mask"
    return Mode.GROW, f"{appends}, and positions come from its length (no position_ids)"


def _names(joins: Iterable[Join]) -> str:
    return " and ".join(sorted(joins))


def _ragged(
    graph: Graph,
    mode: Mode,
    inputs: Mapping[str, Port],
    slots: tuple[CacheSlot, ...],
    counted: Lengths | None,
    kind: Logits,
) -> tuple[bool, str]:
    """Whether rows of unequal length may share a batch, and why (not)."""
    if any(s.join is Join.STATE for s in slots):
        return False, "padding would leak into the states"
    if mode is Mode.APPEND:
        return True, "the mask hides the padding on the left"
    if mode is Mode.GROW:
        return False, "positions count every row of the cache"
    if mode is Mode.NONE:
        full = kind is Logits.FULL and "keep" not in inputs
        return full, "padding follows the text" if full else "logits are those of the last column"
    if any(s.join is Join.SHARED_MHA for s in slots):
        return False, "past_sequence_length is one number for all rows"
    if any(s.evicts for s in slots):
        return False, "the caches of sliding windows drop rows, equally many for all"
    if counted is Lengths.MASK_LENGTH:
        return False, "valid rows are counted by the mask's length, not its values"
    if "positions" not in inputs and lengths.counts_shapes(graph.scope):
        return False, "positions are counted by the mask's length, not its values"
    return True, "each row counts its own valid rows; padding follows the text"


def _static(inputs: Mapping[str, Port], axis: int) -> int | None:
    """The static size of an axis of the ids or embeddings, which are (B,S) or (B,S,H)."""
    shape = (inputs.get("ids") or inputs["embeds"]).shape
    dim = shape[axis] if len(shape) > axis else None
    return dim if isinstance(dim, int) and dim > 0 else None


def _attention_operators(graph: Graph) -> dict[str, int]:
    """How many nodes of each attention operator there are; ``Softmax`` stands for primitives."""
    ops = {op for _, op in caches.ATTENTIONS}
    found = {op: sum(1 for _ in graph.scope.nodes(op)) for op in sorted(ops)}
    found = {op: n for op, n in found.items() if n}
    return found or {"Softmax": sum(1 for _ in graph.scope.nodes("Softmax"))}
