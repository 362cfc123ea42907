"""Rows of a batch that share a cache: what one run of the graph takes and gives.

Knows what the graph cannot take at once: tokens of a batch behind a cache, logits of a long
prompt, several tokens where only one may follow. It cuts these into runs, and gives the logits of
each row's last token all the same.

Letters: b rows of the group, S new tokens, P past, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from onnxgen.graph.decoder import DecoderGraph, Logits, Mode
from onnxgen.graph.shapes import ITEM_BYTES
from onnxgen.runtime.binding import Binding
from onnxgen.runtime.caches import Cache, InPlaceCache, Ints, Layout, new_cache
from onnxgen.runtime.device import Memory
from onnxgen.runtime.encoder import Encoded
from onnxgen.runtime.feeds import feeds
from onnxgen.runtime.kept import Floats, Part, floats
from onnxgen.runtime.scene import Scene
from onnxgen.runtime.session import Cancel
from onnxgen.runtime.steady import Steady
from onnxgen.runtime.watch import Watch

if TYPE_CHECKING:
    from onnxgen.runtime.decoder import DecoderModel

# Logits of a whole prompt are (B,S,V) and only each row's last is read, so a long prompt runs in
# pieces whose logits stay below this.
LOGITS_BYTES = 256 << 20
# Columns of a prompt that run together. What attention holds of a piece grows with its columns
# times all before them; at 3,000 tokens pieces take half the memory, and no more time.
PIECE = 512
# Activations of more new tokens are given back after their run, see Session.run.
SMALL = 64
# On the CPU a ragged batch whose rows have so much padding in the mean runs sooner row by row: the
# weights are read more often, but no padding runs, nor logits of any but the last tokens.
PADDING = 8


def fitting(rows: int, vocab_size: int) -> int:
    """How many columns have logits (B,S,V) of at most so many bytes; 16 at least."""
    return max(LOGITS_BYTES // (4 * rows * vocab_size), 16)


class Group:
    """Rows that share a cache and a binding; ``rows`` (b,) are their places in the batch."""

    def __init__(
        self,
        model: DecoderModel,
        rows: Ints,
        capacity: int,
        cancel: Cancel,
        cache: Cache | None = None,
        chunk: int | None = None,
        encoded: Encoded | None = None,
        watch: Watch | None = None,
        scene: Scene | None = None,
    ) -> None:
        self.model, self.rows, self.capacity = model, rows, capacity
        self.graph, self.vocab_size = model.graph, model.vocab_size
        self.cancel, self._chunk, self._encoded, self._watch = cancel, chunk, encoded, watch
        self.scene = scene
        self.cache = cache or new_cache(model.graph, model.device, len(rows), capacity)
        self._bindings: dict[bool, Binding] = {}  # of first and of later steps
        self._logits: Memory | None = None
        self._steady: Steady | None = None
        self._view: Floats | None = None  # the logits that single steps write, if float32

    def gather(self, inside: Ints, rows: Ints, capacity: int | None = None) -> Group:
        """A group of copies of this one's rows ``inside``, which are the batch's ``rows``."""
        cache = self.cache.gather(inside, capacity)
        room = capacity or self.capacity
        encoded = self._encoded.gather(inside) if self._encoded else None
        scene = self.scene.gather(inside) if self.scene else None
        return Group(
            self.model, rows, room, self.cancel, cache, self._chunk, encoded, self._watch, scene
        )

    def permute(self, inside: Ints) -> None:
        """Makes row i what row ``inside[i]`` was, for as many rows as there are."""
        self.cache.permute(inside)
        self.scene = self.scene.gather(inside) if self.scene else None
        encoded = self._encoded.gather(inside) if self._encoded else None
        if encoded is not self._encoded:
            self._encoded, self._steady = encoded, None
            self._bindings.clear()

    def show(self, scene: Scene | None) -> None:
        """Has the tokens that follow belong to the prompts of ``scene``."""
        self.scene, self._steady = scene, None

    def run(self, tokens: Ints, lengths: Ints) -> Floats:
        """Logits (b,V) after each row's last token."""
        parts = self.keep(tokens, lengths)
        if len(parts[0][0]) == len(self.rows):
            return self._floats(parts[0][1], (len(self.rows), self.vocab_size))
        logits = np.zeros((len(self.rows), self.vocab_size), np.float32)
        for rows, memory in parts:
            logits[rows] = self._floats(memory, (len(rows), self.vocab_size))
        return logits

    def keep(self, tokens: Ints, lengths: Ints) -> list[Part]:
        """Likewise, left where they are: packed, of all rows or of each row with tokens."""
        every = np.arange(len(self.rows))
        if tokens.shape[1] == 1:
            return [(every, self._run(tokens, lengths))]
        if len(self.rows) > 1 and self._row_by_row(lengths):
            return [
                (every[row : row + 1], memory)
                for row, group, own, count in self._singly(tokens, lengths)
                for _, memory in group.keep(own, count)
            ]
        for _, own, counts in self._pieces(tokens, lengths):
            memory = self._run(own, counts)
        return [(every, memory)]

    def next(self, token: Ints) -> Floats:
        """Logits (1,V) after one more ``token`` (1,1) of a single row, see :class:`Steady`."""
        steady = self._steady
        if steady is None:
            memory, shape = self._logits_memory((1, 1, self.vocab_size)), (1, self.vocab_size)
            delta = int(self.scene.deltas[0]) if self.scene else 0
            steady = Steady(self.model, self.capacity, delta)
            logits, self._steady = self.graph.logits, steady
            dims = shape if self.graph.logits_kind is Logits.FLAT else (1, *shape)
            steady.binding.fill(logits.name, logits.elem_type, dims, memory)
            if self._encoded is not None:
                self._encoded.bind(steady.binding, self.graph)
            if logits.dtype == "float32":
                self._view = self._floats(memory, shape)
        past = int(self.cache.lengths[0])
        steady.feed(token, past, self.cancel)
        self.cache.bind(steady.binding, 1)
        steady.binding.run(self.cancel)
        self.cache.advance(1, np.array([past + 1]))
        if self._view is not None:
            return self._view
        return self._floats(self._logits_memory((1, 1, self.vocab_size)), (1, self.vocab_size))

    def run_all(self, tokens: Ints, lengths: Ints) -> Floats:
        """Logits (b,S,V) after each token; zeros in padding."""
        logits = np.zeros((*tokens.shape, self.vocab_size), np.float32)
        if self.graph.logits_kind is not Logits.FULL or not self.model.extends:
            for column in range(int(lengths.max())):
                here = lengths > column
                logits[here, column] = self.run(tokens[:, column : column + 1], here * 1)[here]
        elif len(self.rows) > 1 and self._row_by_row(lengths):
            for row, group, own, count in self._singly(tokens, lengths):
                logits[row, : own.shape[1]] = group.run_all(own, count)[0]
        else:
            for starts, own, counts in self._pieces(tokens, lengths):
                layout, memory, shape = self.forward(own, counts, every=True)
                whole = self._floats(memory, shape)  # (b,S,V)
                for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
                    end = layout.last[row] + 1
                    logits[row, start : start + count] = whole[row, end - count : end]
        return logits

    def _row_by_row(self, lengths: Ints) -> bool:
        """Whether these tokens of a batch must or should run one row at a time."""
        if self.graph.mode is not Mode.IN_PLACE or self.graph.states or lengths.max() == 1:
            return False
        ragged = bool((lengths != lengths[0]).any())
        pruned = self.graph.logits_kind is not Logits.FULL
        # GroupQueryAttention takes several tokens behind a cache in batches of one only.
        follows = bool(self.cache.lengths.any()) or self._piece_size(lengths) < lengths.max()
        if follows or (ragged and pruned):
            return True
        if self._watch is not None or self.model.device.kind != "cpu":
            return False
        return bool(lengths.max() - lengths.mean() >= PADDING)

    def _singly(self, tokens: Ints, lengths: Ints) -> Iterator[tuple[int, Group, Ints, Ints]]:
        """Each row with new tokens, as a group of its own on a view of the cache."""
        cache = self.cache
        assert isinstance(cache, InPlaceCache)
        for row in np.flatnonzero(lengths).tolist():
            count = lengths[row]
            view = cache.row(row)
            one = np.arange(1)
            encoded = self._encoded.gather([row]) if self._encoded else None
            scene = self.scene.gather([row]) if self.scene else None
            group = Group(
                self.model, one, self.capacity, self.cancel, view, self._chunk, encoded, None, scene
            )
            yield row, group, tokens[row : row + 1, :count], lengths[row : row + 1]
            cache.lengths = cache.lengths.copy()
            cache.lengths[row] = view.lengths[0]

    def _piece_size(self, lengths: Ints) -> int:
        """How many columns of new tokens may run together."""
        new, started = int(lengths.max()), bool(self.cache.lengths.any())
        if self.graph.step_size == 1 or (started and not self.model.extends):
            return 1
        if self.scene is not None and self.scene.whole and not started:
            return new
        size = self._chunk or PIECE
        # GroupQueryAttention again; where rows cannot be told apart, a batch takes one by one.
        apart = self.graph.mode is Mode.IN_PLACE and not self.graph.states
        if len(self.rows) > 1 and self.graph.lengths is not None and not apart:
            return 1 if started else new
        full = self.graph.logits_kind is Logits.FULL
        if "keep" in self.graph.inputs and (lengths == lengths[0]).all():
            full = False  # only the last column's are made
        if full:
            size = min(size, fitting(len(self.rows), self.vocab_size))
        return size if new > size and self.model.extends else new

    def _pieces(self, tokens: Ints, lengths: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
        """The new tokens in pieces: each row's first index, its tokens, and how many they are.

        Rows are aligned at their ends, so that all of them end with the last piece.
        """
        new, size = int(lengths.max()), self._piece_size(lengths)
        if new <= size or self.graph.mode is Mode.NONE:
            yield np.zeros_like(lengths), tokens, lengths
            return
        for start in range(0, new, size):
            stop = min(start + size, new)
            starts = np.maximum(start - (new - lengths), 0)  # (b,)
            counts = np.clip(lengths - (new - stop), 0, stop - start)  # (b,)
            columns = np.minimum(starts[:, None] + np.arange(stop - start), new - 1)
            yield starts, np.take_along_axis(tokens, columns, axis=1), counts

    def _run(self, tokens: Ints, lengths: Ints) -> Memory:
        """The memory of one run's logits (b,V)."""
        layout, memory, shape = self.forward(tokens, lengths)
        rows, columns, vocab = shape
        watch = self._watch
        if watch is not None and watch.back is not None and not layout.columns:
            back = np.maximum(layout.last - watch.back, 0)
            kept = self._columns(memory, shape, back)
            watch.keep_logits(self.rows, self._floats(kept, (rows, vocab)))
        if columns == 1:
            return memory
        return self._columns(memory, shape, layout.last)

    def _columns(self, memory: Memory, shape: tuple[int, int, int], columns: Ints) -> Memory:
        """The logits (b,V) of one of the columns of each row of ``memory``, of shape (b,S,V)."""
        rows, width, vocab = shape
        device, item = self.model.device, ITEM_BYTES[self.graph.logits.dtype]
        picked = device.memory(rows * vocab * item)
        indices = np.arange(rows) * width + columns
        device.take((memory, (rows * width, vocab)), (picked, (rows, vocab)), 0, indices, item)
        return picked

    def forward(
        self, tokens: Ints, lengths: Ints, every: bool = False
    ) -> tuple[Layout, Memory, tuple[int, int, int]]:
        """Runs the graph once; the memory and shape (b,S or 1,V) of its logits."""
        layout = self.cache.lay(tokens, lengths)
        layout = self.scene.laid(layout) if self.scene else layout
        started = layout.columns > 0
        graph = self.graph if started else self.model.first_graph
        binding, encoded = self._binding(started), self._encoded
        if encoded is not None and not started:
            encoded = encoded.receive(binding)
        columns = layout.ids.shape[1]
        last_column = columns == 1 or (not every and bool((layout.last == columns - 1).all()))
        for name, values in feeds(graph, layout, last_column):
            binding.write(name, values)
        if self.model.embedder is not None:
            features = self.scene.features if self.scene else None
            self.model.embedder.feed(binding, graph, layout, features, self.cancel)
        self.cache.bind(binding, columns)
        shape = self._logits_shape(graph, layout, last_column)
        memory = self._logits_memory(shape)
        dims = (shape[0], shape[2]) if graph.logits_kind is Logits.FLAT else shape
        binding.fill(graph.logits.name, graph.logits.elem_type, dims, memory)
        heads = self._watch.heads if self._watch else {}
        for name in heads:
            binding.allocate(name)
        crosses = encoded is not None and not started  # projects what the encoder gave
        large = layout.ids.size > SMALL or (crosses and len(layout.ids) > 1)
        binding.run(self.cancel, large=large)
        if self._watch is not None and heads:
            weights = [binding.fetch(name).numpy()[:, list(own)] for name, own in heads.items()]
            self._watch.keep_attention(self.rows, weights, layout.last + 1 - lengths)
        self.cache.advance(columns, layout.after)
        self._encoded = encoded
        return layout, memory, shape

    def _binding(self, started: bool) -> Binding:
        """The binding of the first step or of the later ones, which differ in what they give."""
        binding = self._bindings.get(started)
        if binding is None:
            session = self.model.later if started else self.model.first
            self._bindings[started] = binding = Binding(session, self.model.device)
            if self._encoded is not None:
                graph = self.graph if started else self.model.first_graph
                self._encoded.bind(binding, graph)
        return binding

    def _logits_shape(
        self, graph: DecoderGraph, layout: Layout, last_column: bool
    ) -> tuple[int, int, int]:
        rows, columns = layout.ids.shape
        pruned = graph.logits_kind is not Logits.FULL or ("keep" in graph.inputs and last_column)
        return rows, 1 if pruned else columns, self.vocab_size

    def _logits_memory(self, shape: tuple[int, int, int]) -> Memory:
        """The memory of single-token steps is kept, that of prompts is not."""
        nbytes = prod(shape) * ITEM_BYTES[self.graph.logits.dtype]
        if shape[1] > 1:
            return self.model.device.memory(nbytes)
        if self._logits is None or self._logits.nbytes != nbytes:
            self._logits = self.model.device.memory(nbytes)
        return self._logits

    def _floats(self, memory: Memory, shape: tuple[int, ...]) -> Floats:
        """``memory`` as float32 on the host."""
        return floats(memory, shape, self.graph.logits.dtype)
