"""``DecoderModel``, a loaded decoder, and ``Decoder``, one batch of sequences that it steps.

This is the runtime's side of the step protocol: tokens in, logits of each row's last real token
out. Rows that the graph cannot hold in one batch run in groups of equal length, each with a cache
of its own; the caller sees one batch all the same.

Letters: B rows of the batch, b rows of a group, S new tokens, P past, T = P+S, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from onnxgen.errors import CapacityError, OptionError, SessionError, UnsupportedModelError
from onnxgen.graph.decoder import DecoderGraph, Logits, Mode, check_runs
from onnxgen.graph.shapes import ITEM_BYTES
from onnxgen.runtime.binding import Binding
from onnxgen.runtime.caches import Cache, InPlaceCache, Ints, Layout, new_cache
from onnxgen.runtime.device import Device, Memory
from onnxgen.runtime.embeddings import Embedder
from onnxgen.runtime.feeds import feeds
from onnxgen.runtime.session import Cancel, Session
from onnxgen.runtime.steady import Steady

Floats = NDArray[np.float32]

# Logits of a whole prompt are (B,S,V) and only each row's last is read, so a long prompt runs in
# pieces whose logits stay below this.
LOGITS_BYTES = 256 << 20


class DecoderModel:
    """A decoder's graph and sessions; any number of :class:`Decoder` may run on it at once.

    ``later`` is the second graph of an un-merged pair: it takes a cache, ``graph`` takes none.
    """

    def __init__(
        self,
        graph: DecoderGraph,
        *,
        later: DecoderGraph | None = None,
        embedder: Embedder | None = None,
        device: str = "cpu",
        threads: int | None = None,
    ) -> None:
        check_runs(graph, embedded=embedder is not None)
        self.graph = later or graph
        self.first = Session(graph.path, device=device, threads=threads)
        self.later = Session(later.path, device=device, threads=threads) if later else self.first
        self.first_graph, self.embedder = graph, embedder
        self.device = Device(self.first.device, self.first.device_id)
        self.vocab_size = graph.vocab_size or 0

    @cached_property
    def extends(self) -> bool:
        """Whether several tokens may follow a cache.

        Branches and graphs that were traced for later steps may hold for one token only; and some
        exports build masks that fail for several, which only a trial shows.
        """
        if self.later is not self.first or self.graph.merged or self.graph.step_size == 1:
            return False
        trial = _Group(self, np.arange(1), 3, Cancel())
        try:
            for tokens in ([[0]], [[0, 0]]):
                trial.forward(np.array(tokens), np.array([len(tokens[0])]))
        except SessionError:
            return False
        return True

    def start(self, capacity: int, *, prefill_chunk_size: int | None = None) -> "Decoder":
        """A decoder with empty caches, for sequences of up to ``capacity`` tokens each.

        ``prefill_chunk_size`` bounds how many tokens of a prompt run at once; graphs that take only
        one token behind a cache run a prompt as a whole. CapacityError if the graph cannot
        position as many tokens.
        """
        self.check(capacity)
        return Decoder(self, capacity, prefill_chunk_size)

    def check(self, capacity: int) -> None:
        """CapacityError if the graph cannot position ``capacity`` tokens."""
        bound = self.graph.capacity
        if capacity < 1:
            raise OptionError(f"a capacity of {capacity} tokens", wanted="1 or more", do="raise it")
        if bound.rows is not None and capacity > bound.rows:
            raise CapacityError(
                f"{capacity} tokens were asked for",
                wanted=f"at most {bound.rows} ({bound.reason} of {self.graph.path.name})",
                do="shorten the prompt or lower max_new_tokens",
            )


class Decoder:
    """Sequences in progress. Not for use by several threads at once, but for :meth:`cancel`."""

    def __init__(self, model: DecoderModel, capacity: int, chunk: int | None = None) -> None:
        self.model, self.capacity, self._chunk = model, capacity, chunk
        self.vocab_size = model.vocab_size
        self.lengths: Ints = np.zeros(0, np.int64)
        self._groups: list[_Group] = []
        self._cancel = Cancel()

    def step(self, tokens: Ints, lengths: Ints) -> Floats:
        """Feeds ``tokens`` (B,S), row i's first ``lengths[i]``; the logits (B,V) after them.

        The array is valid until the next call; logits of rows that got no token mean nothing.
        CapacityError if a row would grow too long.
        """
        if tokens.shape == (1, 1) and lengths[0] == 1 and self._groups:
            # The step that is run most. It costs what it touches: between two runs the weights
            # have driven everything else out of the processor's caches.
            group = self._groups[0]
            if group.cache.single and self.lengths[0] < self.capacity:
                logits = group.next(tokens)
                self.lengths = group.cache.lengths
                return logits
        after = self._admit(tokens, lengths)
        if len(self._groups) == 1:
            logits = self._groups[0].run(tokens, lengths)
        else:
            logits = np.empty((len(tokens), self.vocab_size), np.float32)
            for group in self._groups:
                if lengths[group.rows].any():
                    logits[group.rows] = group.run(tokens[group.rows], lengths[group.rows])
        self.lengths = after
        return logits

    def step_all(self, tokens: Ints, lengths: Ints) -> Floats:
        """Like :meth:`step`, but the logits (B,S,V) after each token; zeros in padding."""
        after = self._admit(tokens, lengths)
        logits = np.zeros((*tokens.shape, self.vocab_size), np.float32)
        for group in self._groups:
            if lengths[group.rows].any():
                logits[group.rows] = group.run_all(tokens[group.rows], lengths[group.rows])
        self.lengths = after
        return logits

    def reorder(self, rows: Sequence[int] | Ints) -> None:
        """Makes row i what row ``rows[i]`` was; rows may repeat, or be left out."""
        picked = np.asarray(rows, np.int64)
        if len(picked) == len(self.lengths) and (picked == np.arange(len(picked))).all():
            return
        self._groups = [
            group.gather(np.searchsorted(group.rows, picked[places]), places)
            for group in self._groups
            for places in self._together(np.flatnonzero(np.isin(picked, group.rows)))
        ]
        self.lengths = self.lengths[picked]

    def rewind(self, lengths: Ints) -> None:
        """Forgets all but each row's first ``lengths[i]`` tokens.

        UnsupportedModelError where the graph keeps states or drops rows: these cannot go back.
        """
        if not self.model.graph.rewinds and (lengths < self.lengths).any():
            raise UnsupportedModelError(
                f"{self.model.graph.path.name} keeps states or drops what leaves a window",
                wanted="a cache that can forget its last tokens",
                do="start again with the whole prompt",
            )
        lengths = np.minimum(self.lengths, lengths)
        self._part(self.lengths - lengths)
        for group in self._groups:
            group.cache.rewind(lengths[group.rows])
        self.lengths = lengths

    def reserve(self, capacity: int) -> None:
        """Makes room for ``capacity`` tokens in each row, where there is less; see ``start``."""
        self.model.check(capacity)
        if capacity > self.capacity:
            groups = self._groups
            self._groups = [g.gather(np.arange(len(g.rows)), g.rows, capacity) for g in groups]
            self.capacity = capacity

    def cancel(self) -> None:
        """From any thread: the run in progress ends within a node, with CancelledError."""
        self._cancel.cancel()

    def close(self) -> None:
        """Frees the caches."""
        self._groups = []

    def detach(self) -> "Decoder":
        """A decoder with these sequences; this one is left without."""
        other = Decoder(self.model, self.capacity, self._chunk)
        other.lengths, other._groups, self._groups = self.lengths, self._groups, []
        for group in other._groups:
            group.cancel = other._cancel
        return other

    def _admit(self, tokens: Ints, lengths: Ints) -> Ints:
        """Puts rows that cannot share a batch into groups; the rows' lengths after the step."""
        if not self._groups:
            self.lengths = np.zeros(len(tokens), np.int64)
            self._groups = [self._group(rows) for rows in self._alike(lengths)]
        else:
            self._part(lengths)
        after = self.lengths + lengths
        if after.max() > self.capacity:
            raise CapacityError(
                f"a sequence of {after.max()} tokens",
                wanted=f"at most the {self.capacity} that were reserved",
                do="start with a larger capacity",
            )
        return after

    def _group(self, rows: Ints) -> "_Group":
        return _Group(self.model, rows, self.capacity, self._cancel, chunk=self._chunk)

    def _alike(self, lengths: Ints) -> list[Ints]:
        """The rows that may run together."""
        rows = np.arange(len(lengths))
        if self.model.graph.ragged:
            return self._together(rows)
        alike = [rows[lengths == length] for length in np.unique(lengths)]
        return [part for some in alike for part in self._together(some)]

    def _together(self, rows: Ints) -> list[Ints]:
        """``rows`` as one group, or each by itself where the graph's batch is static."""
        if self.model.graph.fixed_batch is None:
            return [rows] if len(rows) else []
        return [rows[i : i + 1] for i in range(len(rows))]

    def _part(self, counts: Ints) -> None:
        """Splits the groups whose rows are to take, or lose, unequal numbers of tokens.

        Not where each row counts its own: buffers in place with ragged rows, and no cache at all.
        """
        graph = self.model.graph
        if graph.ragged and graph.mode in {Mode.IN_PLACE, Mode.NONE}:
            return
        parted: list[_Group] = []
        for group in self._groups:
            own = counts[group.rows]
            kinds = np.unique(own)
            if len(kinds) == 1:
                parted.append(group)
                continue
            for count in kinds:
                inside = np.flatnonzero(own == count)
                parted.append(group.gather(inside, group.rows[inside]))
        self._groups = parted


class _Group:
    """Rows that share a cache and a binding; ``rows`` (b,) are their places in the batch."""

    def __init__(
        self,
        model: DecoderModel,
        rows: Ints,
        capacity: int,
        cancel: Cancel,
        cache: Cache | None = None,
        chunk: int | None = None,
    ) -> None:
        self.model, self.rows, self.capacity = model, rows, capacity
        self.graph, self.vocab_size = model.graph, model.vocab_size
        self.cancel, self._chunk = cancel, chunk
        self.cache = cache or new_cache(model.graph, model.device, len(rows), capacity)
        self._bindings: dict[int, Binding] = {}
        self._logits: Memory | None = None
        self._steady: Steady | None = None

    def gather(self, inside: Ints, rows: Ints, capacity: int | None = None) -> "_Group":
        """A group of copies of this one's rows ``inside``, which are the batch's ``rows``."""
        cache = self.cache.gather(inside, capacity)
        room = capacity or self.capacity
        return _Group(self.model, rows, room, self.cancel, cache, self._chunk)

    def run(self, tokens: Ints, lengths: Ints) -> Floats:
        """Logits (b,V) after each row's last token."""
        if tokens.shape[1] == 1:
            return self._run(tokens, lengths)
        if len(self.rows) > 1 and self._row_by_row(lengths):
            logits = np.zeros((len(self.rows), self.vocab_size), np.float32)
            for row, group, own, count in self._singly(tokens, lengths):
                logits[row] = group.run(own, count)[0]
            return logits
        for _, own, counts in self._pieces(tokens, lengths):
            logits = self._run(own, counts)
        return logits

    def next(self, token: Ints) -> Floats:
        """Logits (1,V) after one more ``token`` (1,1) of a single row."""
        steady = self._steady
        if steady is None:
            if not Steady.fits(self.graph, self.model.device):
                return self._run(token, np.ones(1, np.int64))
            steady = Steady(self.graph, self.model.later, self.model.device, self.capacity)
            logits, self._steady = self.graph.logits, steady
            shape = (1, self.vocab_size) if len(logits.shape) == 2 else (1, 1, self.vocab_size)
            memory = self._logits_memory((1, 1, self.vocab_size))
            steady.binding.fill(logits.name, logits.elem_type, shape, memory)
            self._view = self._floats(memory, (1, self.vocab_size))
            self._copies = self._view.base is None  # not float32 as it is
        lengths = self.cache.lengths
        steady.feed(token, int(lengths[0]))
        self.cache.bind(steady.binding, 1)
        steady.binding.run(self.cancel)
        self.cache.advance(1, lengths + 1)
        if self._copies:
            return self._floats(self._logits_memory((1, 1, self.vocab_size)), (1, self.vocab_size))
        return self._view

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
        """Whether the graph takes these tokens of a batch only one row at a time."""
        if self.graph.mode is not Mode.IN_PLACE or self.graph.states or lengths.max() == 1:
            return False
        ragged = bool((lengths != lengths[0]).any())
        pruned = self.graph.logits_kind is not Logits.FULL
        # GroupQueryAttention takes several tokens behind a cache in batches of one only.
        follows = bool(self.cache.lengths.any()) or self._piece_size(lengths) < lengths.max()
        return follows or (ragged and pruned)

    def _singly(self, tokens: Ints, lengths: Ints) -> Iterator[tuple[int, "_Group", Ints, Ints]]:
        """Each row with new tokens, as a group of its own on a view of the cache."""
        cache = self.cache
        assert isinstance(cache, InPlaceCache)
        for row in np.flatnonzero(lengths).tolist():
            count = lengths[row]
            view = cache.row(row)
            one = np.arange(1)
            group = _Group(self.model, one, self.capacity, self.cancel, view, self._chunk)
            yield row, group, tokens[row : row + 1, :count], lengths[row : row + 1]
            cache.lengths = cache.lengths.copy()
            cache.lengths[row] = view.lengths[0]

    def _piece_size(self, lengths: Ints) -> int:
        """How many columns of new tokens may run together."""
        new, started = int(lengths.max()), bool(self.cache.lengths.any())
        if self.graph.step_size == 1 or (started and not self.model.extends):
            return 1
        fits = max(LOGITS_BYTES // (4 * len(self.rows) * self.vocab_size), 16)
        if self._chunk is not None:
            fits = min(fits, self._chunk)
        # GroupQueryAttention again; where rows cannot be told apart, a batch takes one by one.
        apart = self.graph.mode is Mode.IN_PLACE and not self.graph.states
        if len(self.rows) > 1 and self.graph.lengths is not None and not apart:
            return 1 if started else new
        bounded = self.graph.logits_kind is Logits.FULL or self._chunk is not None
        if bounded and new > fits and self.model.extends:
            return fits
        return new

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

    def _run(self, tokens: Ints, lengths: Ints) -> Floats:
        """Logits (b,V) of one run."""
        layout, memory, shape = self.forward(tokens, lengths)
        rows, columns, vocab = shape
        if columns == 1:
            return self._floats(memory, (rows, vocab))
        item = ITEM_BYTES[self.graph.logits.dtype]
        picked = self.model.device.memory(rows * vocab * item)
        indices = np.arange(rows) * columns + layout.last
        device = self.model.device
        device.take((memory, (rows * columns, vocab)), (picked, (rows, vocab)), 0, indices, item)
        return self._floats(picked, (rows, vocab))

    def forward(
        self, tokens: Ints, lengths: Ints, every: bool = False
    ) -> tuple[Layout, Memory, tuple[int, int, int]]:
        """Runs the graph once; the memory and shape (b,S or 1,V) of its logits."""
        layout = self.cache.lay(tokens, lengths)
        started = layout.columns > 0
        session = self.model.later if started else self.model.first
        graph = self.graph if started else self.model.first_graph
        binding = self._bindings.get(id(session)) or Binding(session, self.model.device)
        self._bindings[id(session)] = binding
        columns = layout.ids.shape[1]
        last_column = columns == 1 or (not every and bool((layout.last == columns - 1).all()))
        for name, values in feeds(graph, layout, last_column):
            binding.write(name, values)
        if self.model.embedder is not None:
            self.model.embedder.feed(binding, graph, layout.ids, self.cancel)
        self.cache.bind(binding, columns)
        shape = self._logits_shape(graph, layout, last_column)
        memory = self._logits_memory(shape)
        dims = (shape[0], shape[2]) if graph.logits_kind is Logits.FLAT else shape
        binding.fill(graph.logits.name, graph.logits.elem_type, dims, memory)
        binding.run(self.cancel)
        self.cache.advance(columns, layout.after)
        return layout, memory, shape

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
        dtype = self.graph.logits.dtype
        words = memory.host(shape, ITEM_BYTES[dtype])
        if dtype == "bfloat16":  # the upper half of a float32
            return (words.astype(np.uint32) << 16).view(np.float32)
        return words.view(dtype).astype(np.float32, copy=False)
