"""Caches from step to step: one class per cache mode.

A cache lays out the new tokens of a step as its graph can take them (padding, mask, positions),
binds past and present, and moves on once the run is done. Rows keep their own lengths.

Letters: B rows, S columns of new tokens, P columns in the cache, T = P+S, C capacity in columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from onnxgen.graph.decoder import DecoderGraph, Mode
from onnxgen.graph.shapes import ITEM_BYTES, CacheSlot
from onnxgen.runtime.binding import Binding
from onnxgen.runtime.device import Device, Memory

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Layout:
    """The new tokens of one run, as the graph takes them."""

    ids: Ints  # (B,S), 0 in padding
    mask: Ints  # (B,T), 1 where a token stands
    positions: Ints  # (B,S), of no meaning in padding; or (N,B,S), on several axes
    last: Ints  # (B,) column of each row's last real token
    before: Ints  # (B,) tokens of each row in the cache, before this run
    after: Ints  # (B,) likewise, after it
    columns: int  # P
    places: Ints | None = None  # (B,S) which feature of a scene an embedding is, -1 for none


class Cache(Protocol):
    """What the decoder needs of a cache; ``lengths`` (B,) counts the tokens of each row."""

    lengths: Ints

    def lay(self, tokens: Ints, lengths: Ints) -> Layout:
        """Lays out ``tokens`` (B,S), of which row i's first ``lengths[i]`` are real."""

    @property
    def single(self) -> bool:
        """Whether there is one row, without padding, and something in it."""

    def bind(self, binding: Binding, new: int) -> None:
        """Binds past and present for a run of ``new`` columns (S)."""

    def advance(self, new: int, after: Ints) -> None:
        """Takes what the run wrote as the past of the next one; rows are then ``after`` long."""

    def gather(self, rows: Ints, capacity: int | None = None) -> "Cache":
        """A cache whose row i is a copy of row ``rows[i]``; this one is left as it was.

        ``capacity`` gives it room for as many tokens, if that is more than before.
        """

    def permute(self, rows: Ints) -> None:
        """Makes row i what row ``rows[i]`` was, for as many rows as there are.

        Into memory that is there already: beams do this in each step.
        """

    def rewind(self, lengths: Ints) -> None:
        """Forgets all but the first ``lengths[i]`` tokens of each row i."""


def new_cache(graph: DecoderGraph, device: Device, rows: int, capacity: int) -> Cache:
    """An empty cache of the graph's mode for ``rows`` rows of up to ``capacity`` tokens."""
    if graph.mode is Mode.IN_PLACE:
        return InPlaceCache(graph, device, rows, capacity)
    if graph.mode is Mode.NONE:
        return NoCache(rows)
    return GrowingCache(graph, device, rows, capacity)


def right_padded(tokens: Ints, lengths: Ints, before: Ints) -> Layout:
    """Padding follows the text, and each row's valid tokens are the first of the cache."""
    columns = max(int(lengths.max()), 1)
    after = before + lengths
    # A row without new tokens shows one more, which its next token overwrites: operators that
    # write behind the valid rows would otherwise write over the last of them.
    shown = np.where(lengths > 0, after, before + 1)
    steps = np.arange(columns)
    real = steps < lengths[:, None]  # (B,S)
    return Layout(
        ids=np.where(real, tokens[:, :columns], 0),
        mask=(np.arange(int(shown.max())) < shown[:, None]).astype(np.int64),
        # No position in the padding exceeds the row's own: some graphs count rows by the largest.
        positions=np.minimum(before[:, None] + steps, np.maximum(after - 1, 0)[:, None]),
        last=lengths - 1,
        before=before,
        after=after,
        columns=int(before.max()),
    )


class NoCache:
    """The whole sequence in every step, for graphs without caches."""

    def __init__(self, rows: int) -> None:
        self.lengths: Ints = np.zeros(rows, np.int64)
        self._tokens: Ints = np.zeros((rows, 0), np.int64)  # (B,P), right-padded

    def lay(self, tokens: Ints, lengths: Ints) -> Layout:
        """All tokens so far, with the new ones behind each row's own."""
        after = self.lengths + lengths
        whole = np.zeros((len(after), int(after.max())), np.int64)  # (B,T)
        whole[:, : self._tokens.shape[1]] = self._tokens[:, : whole.shape[1]]
        for row, (start, stop) in enumerate(zip(self.lengths, after, strict=True)):
            whole[row, start:stop] = tokens[row, : stop - start]
        self._tokens = whole
        return right_padded(whole, after, np.zeros_like(after))

    single = False  # every run takes all tokens

    def bind(self, binding: Binding, new: int) -> None:
        """Nothing to bind."""

    def advance(self, new: int, after: Ints) -> None:
        """Counts the tokens."""
        self.lengths = after

    def gather(self, rows: Ints, capacity: int | None = None) -> "NoCache":
        """See :class:`Cache`."""
        other = NoCache(len(rows))
        other.lengths, other._tokens = self.lengths[rows], self._tokens[rows]
        return other

    def permute(self, rows: Ints) -> None:
        """See :class:`Cache`."""
        self.lengths, self._tokens = self.lengths[rows], self._tokens[rows]

    def rewind(self, lengths: Ints) -> None:
        """See :class:`Cache`."""
        self.lengths = np.minimum(self.lengths, lengths)


class _Pair:
    """Two buffers of one slot that are past and present by turns."""

    def __init__(self, slot: CacheSlot, device: Device, past: Memory, present: Memory) -> None:
        self.slot, self.device, self.past, self.present = slot, device, past, present

    @classmethod
    def of(
        cls, slots: Sequence[CacheSlot], device: Device, rows: int, capacity: int
    ) -> "list[_Pair]":
        """A pair for each slot, of ``rows`` rows of ``capacity`` columns."""
        sizes = [rows * slot.row_bytes(capacity) for slot in slots]
        pasts, presents = device.memories(sizes), device.memories(sizes)
        parts = zip(slots, pasts, presents, strict=True)
        return [cls(slot, device, past, present) for slot, past, present in parts]

    def bind(self, binding: Binding, rows: int, columns: int, new: int) -> None:
        """Binds the past of ``columns`` (P) and the present of ``new`` (S) more."""
        slot = self.slot
        binding.read(slot.input, slot.elem_type, slot.shape(rows, columns), self.past)
        binding.fill(slot.output, slot.elem_type, slot.shape(rows, columns + new), self.present)

    def swap(self) -> None:
        """The present becomes the past."""
        self.past, self.present = self.present, self.past

    def permute(self, rows: Ints, columns: int) -> None:
        """Makes row i of the past, ``columns`` (P) long, what row ``rows[i]`` was."""
        slot, shape = self.slot, self.slot.shape(len(rows), columns)
        source, target = (self.past, shape), (self.present, shape)
        picked, item = folded(rows, slot.batch_factor), ITEM_BYTES[slot.dtype]
        self.device.take(source, target, slot.batch_axis, picked, item)
        self.swap()


def folded(rows: Ints, factor: int) -> Ints:
    """Indices into an axis where each row holds ``factor`` entries."""
    if factor == 1:
        return rows
    return (rows[:, None] * factor + np.arange(factor)).reshape(-1)


class InPlaceCache:
    """One buffer of the capacity, bound as past and as present; rows are counted one by one."""

    def __init__(self, graph: DecoderGraph, device: Device, rows: int, capacity: int) -> None:
        self.graph, self.device, self.capacity = graph, device, capacity
        self.lengths: Ints = np.zeros(rows, np.int64)
        self._sizes = {s.input: s.room(capacity) for s in graph.caches}
        self._buffers = self._new_buffers(rows)
        self._states = _Pair.of(graph.states, device, rows, 0)
        self._spare: dict[str, Memory] = {}  # where rows are permuted to, once they are
        self._offset = 0  # of a view: its row in the buffers
        self._bound: Binding | None = None

    def _new_buffers(self, rows: int) -> dict[str, Memory]:
        """Memory for ``rows`` rows, by input."""
        names = [slot.input for slot in self.graph.caches]
        sizes = [rows * s.row_bytes(self._sizes[s.input]) for s in self.graph.caches]
        return dict(zip(names, self.device.memories(sizes), strict=True))

    def row(self, index: int) -> "InPlaceCache":
        """A view of one row: what is written through it is written here, lengths apart."""
        view = object.__new__(InPlaceCache)
        view.graph, view.device, view.capacity = self.graph, self.device, self.capacity
        view.lengths = self.lengths[index : index + 1].copy()
        view._sizes, view._buffers, view._states = self._sizes, self._buffers, []
        view._spare, view._offset, view._bound = {}, self._offset + index, None
        return view

    def lay(self, tokens: Ints, lengths: Ints) -> Layout:
        """See :class:`Cache`."""
        return right_padded(tokens, lengths, self.lengths)

    @property
    def single(self) -> bool:
        """See :class:`Cache`."""
        return len(self.lengths) == 1 and bool(self.lengths[0])

    def bind(self, binding: Binding, new: int) -> None:
        """See :class:`Cache`; a binding that holds the buffers already gets only the states."""
        rows = len(self.lengths)
        for slot in self.graph.caches if self._bound is not binding else ():
            length, memory = self._sizes[slot.input], self._buffers[slot.input]
            offset = self._offset * slot.row_bytes(length)
            shape = slot.shape(rows, length)
            binding.read(slot.input, slot.elem_type, shape, memory, offset)
            binding.fill(slot.output, slot.elem_type, shape, memory, offset)
        self._bound = binding
        for pair in self._states:
            pair.bind(binding, rows, 0, 0)

    def advance(self, new: int, after: Ints) -> None:
        """See :class:`Cache`."""
        self.lengths = after
        for pair in self._states:
            pair.swap()

    def gather(self, rows: Ints, capacity: int | None = None) -> "InPlaceCache":
        """See :class:`Cache`."""
        other = object.__new__(InPlaceCache)
        other.graph, other.device, other.capacity = self.graph, self.device, self.capacity
        other.lengths, other._sizes = self.lengths[rows], dict(self._sizes)
        other._spare, other._offset, other._bound = {}, 0, None
        for slot in self.graph.caches:
            if not slot.fixed_length and (capacity or 0) > self._sizes[slot.input]:
                other._sizes[slot.input] = other.capacity = capacity or 0
        other._buffers = other._new_buffers(len(rows))
        for slot in self.graph.caches:
            length, longer = self._sizes[slot.input], other._sizes[slot.input]
            self._take(slot, rows, length, longer, other._buffers[slot.input])
        other._states = _Pair.of(self.graph.states, self.device, len(rows), 0)
        for mine, theirs in zip(self._states, other._states, strict=True):
            _copy(mine, theirs, rows, len(self))
        return other

    def permute(self, rows: Ints) -> None:
        """See :class:`Cache`."""
        spare = self._spare or self._new_buffers(len(rows))
        for slot in self.graph.caches:
            length = self._sizes[slot.input]
            self._take(slot, rows, length, length, spare[slot.input])
        self._buffers, self._spare = spare, self._buffers
        self.lengths, self._bound = self.lengths[rows], None
        for pair in self._states:
            pair.permute(rows, 0)

    def _take(self, slot: CacheSlot, rows: Ints, length: int, longer: int, target: Memory) -> None:
        """Copies ``rows`` of a buffer of ``length`` columns to ``target``, with ``longer``."""
        memory, item = self._buffers[slot.input], ITEM_BYTES[slot.dtype]
        picked, axis = folded(rows, slot.batch_factor), slot.batch_axis
        shape, target_shape = slot.shape(len(self), length), slot.shape(len(rows), longer)
        if self.device.kind == "cpu" or length == longer:
            # Rows behind the longest have no meaning, but in a window that drops rows.
            filled = length if slot.evicts else int(self.lengths.max())
            used = (slot.seq_axis or 0, filled)
            self.device.take((memory, shape), (target, target_shape), axis, picked, item, used)
            return
        # What stands in the new room means nothing yet: the last row again, for instance.
        between_shape = slot.shape(len(rows), length)
        between = self.device.memory(prod(between_shape) * item)
        self.device.take((memory, shape), (between, between_shape), axis, picked, item)
        columns = np.minimum(np.arange(longer), length - 1)
        source = (between, between_shape)
        self.device.take(source, (target, target_shape), slot.seq_axis or 0, columns, item)

    def __len__(self) -> int:
        return len(self.lengths)

    def rewind(self, lengths: Ints) -> None:
        """See :class:`Cache`; rows beyond the length are overwritten in time."""
        self.lengths = np.minimum(self.lengths, lengths)


class GrowingCache:
    """Past and present in two buffers by turns; the present is longer by the new columns.

    Prompts of unequal length (modes that can mask) are padded on the left, and later every row
    takes and loses equally many tokens. So a row's tokens are always the last columns, its newest
    in the last one, and windows that count columns see no gap.
    """

    def __init__(self, graph: DecoderGraph, device: Device, rows: int, capacity: int) -> None:
        self.graph, self.device, self.capacity = graph, device, capacity
        self.lengths: Ints = np.zeros(rows, np.int64)
        self._columns = 0  # P
        self._pairs = _Pair.of(graph.slots, device, rows, capacity)

    def lay(self, tokens: Ints, lengths: Ints) -> Layout:
        """See :class:`Cache`; only a row without tokens may take fewer than the others."""
        new = int(lengths.max())
        total = self._columns + new
        if total > self.capacity:
            self._widen(total)
        after = self.lengths + lengths
        columns = np.arange(total)
        real = columns[self._columns :] >= total - after[:, None]  # (B,S)
        shift = np.arange(new) - (new - lengths)[:, None]  # (B,S): index into the row's tokens
        return Layout(
            ids=np.where(real, np.take_along_axis(tokens, np.maximum(shift, 0), axis=1), 0),
            mask=(columns >= total - after[:, None]).astype(np.int64),
            positions=np.where(real, self.lengths[:, None] + shift, 1),
            last=np.full(len(lengths), new - 1),
            before=self.lengths,
            after=after,
            columns=self._columns,
        )

    @property
    def single(self) -> bool:
        """See :class:`Cache`; a step must not need more room either."""
        fits = self._columns == self.lengths[0] < self.capacity
        return len(self.lengths) == 1 and bool(self.lengths[0]) and bool(fits)

    def bind(self, binding: Binding, new: int) -> None:
        """See :class:`Cache`."""
        for pair in self._pairs:
            pair.bind(binding, len(self.lengths), self._columns, new)

    def advance(self, new: int, after: Ints) -> None:
        """See :class:`Cache`."""
        self.lengths = after
        self._columns += new
        for pair in self._pairs:
            pair.swap()

    def _widen(self, columns: int) -> None:
        """Makes room for ``columns`` and half as many again.

        The capacity bounds a row's tokens; with the padding on the left it may have more columns.
        """
        rows, self.capacity = len(self.lengths), columns + columns // 2
        before = self._pairs
        self._pairs = _Pair.of(self.graph.slots, self.device, rows, self.capacity)
        for mine, theirs in zip(before, self._pairs, strict=True):
            _copy(mine, theirs, np.arange(rows), rows, self._columns)

    def gather(self, rows: Ints, capacity: int | None = None) -> "GrowingCache":
        """See :class:`Cache`."""
        room = max(capacity or 0, self.capacity)
        other = GrowingCache(self.graph, self.device, len(rows), room)
        other.lengths, other._columns = self.lengths[rows], self._columns
        for mine, theirs in zip(self._pairs, other._pairs, strict=True):
            _copy(mine, theirs, rows, len(self.lengths), self._columns)
        # Padding that only rows left behind needed.
        other._cut(self._columns - int(other.lengths.max()), self._columns)
        return other

    def permute(self, rows: Ints) -> None:
        """See :class:`Cache`."""
        self.lengths = self.lengths[rows]
        for pair in self._pairs:
            pair.permute(rows, self._columns)

    def rewind(self, lengths: Ints) -> None:
        """See :class:`Cache`; all rows must lose equally many tokens."""
        self._cut(0, self._columns - int((self.lengths - lengths)[0]))
        self.lengths = np.array(lengths)

    def _cut(self, start: int, stop: int) -> None:
        """Keeps the columns from ``start`` to ``stop`` only."""
        if (start, stop) == (0, self._columns):
            return
        rows = len(self.lengths)
        for pair in self._pairs:
            slot = pair.slot
            if slot.seq_axis is None:
                continue
            source = (pair.past, slot.shape(rows, self._columns))
            target = (pair.present, slot.shape(rows, stop - start))
            item = ITEM_BYTES[slot.dtype]
            self.device.take(source, target, slot.seq_axis, np.arange(start, stop), item)
            pair.swap()
        self._columns = stop - start


def _copy(mine: _Pair, theirs: _Pair, rows: Ints, count: int, columns: int = 0) -> None:
    """Copies rows ``rows`` of the past of ``mine``, which has ``count``, to that of ``theirs``."""
    slot, item = mine.slot, ITEM_BYTES[mine.slot.dtype]
    source = (mine.past, slot.shape(count, columns))
    target = (theirs.past, slot.shape(len(rows), columns))
    mine.device.take(source, target, slot.batch_axis, folded(rows, slot.batch_factor), item)
