"""``DecoderModel``, a loaded decoder, and ``Decoder``, one batch of sequences that it steps.

This is the runtime's side of the step protocol: tokens in, logits of each row's last real token
out. Rows that the graph cannot hold in one batch run in groups of equal length, each with a cache
of its own; the caller sees one batch all the same.

Letters: B rows of the batch, S new tokens, V vocabulary.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from onnxgen.errors import CapacityError, OptionError, SessionError, UnsupportedModelError
from onnxgen.graph.decoder import DecoderGraph, Mode, check_runs
from onnxgen.runtime import memory
from onnxgen.runtime.caches import Ints
from onnxgen.runtime.device import Device
from onnxgen.runtime.embeddings import Embedder, FileEmbedder
from onnxgen.runtime.encoder import CrossPlan, Encoded, Encoding
from onnxgen.runtime.group import LOGITS_BYTES, Group
from onnxgen.runtime.kept import Floats, KeptLogits, joined
from onnxgen.runtime.scene import Scene
from onnxgen.runtime.selection import Selectors
from onnxgen.runtime.session import PLAIN, Cancel, Engine, Session
from onnxgen.runtime.steady import Steady
from onnxgen.runtime.watch import Watch


class DecoderModel:
    """A decoder's graph and sessions; any number of :class:`Decoder` may run on it at once.

    ``later`` is the second graph of an un-merged pair: it takes a cache, ``graph`` takes none.
    ``encoded``: it attends to what an encoder made, which each decoder is started with.
    With the engine's ``selection`` "onnx", which is None's meaning on cuda but not on cpu, it has
    ``selectors``, which choose tokens where its logits are.
    """

    def __init__(
        self,
        graph: DecoderGraph,
        engine: Engine = PLAIN,
        *,
        later: DecoderGraph | None = None,
        embedder: Embedder | FileEmbedder | None = None,
        encoded: bool = False,
    ) -> None:
        check_runs(graph, embedded=embedder is not None, encoded=encoded)
        self.graph = later or graph
        self.first = Session(graph.source or graph.path, engine)
        self.later = self.first
        if later is not None:
            self.later = Session(later.source or later.path, engine)
        self.first_graph, self.embedder = graph, embedder
        self.device = Device(self.first.device, self.first.device_id)
        self.vocab_size = graph.vocab_size or 0
        here = engine.selection or ("numpy" if self.device.kind == "cpu" else "onnx")
        place = (self.device, self.vocab_size, self.graph.logits.elem_type)
        self.selectors = Selectors(*place) if here == "onnx" else None
        self.steady = Steady.fits(self.graph, self.device, embedder)
        self.memory_limit = engine.memory_limit
        self.cross = CrossPlan(graph, self.graph, self.device) if encoded else None

    @cached_property
    def extends(self) -> bool:
        """Whether several tokens may follow a cache.

        Branches and graphs that were traced for later steps may hold for one token only; and some
        exports build masks that fail for several, which only a trial shows.
        """
        if self.later is not self.first or self.graph.merged or self.graph.step_size == 1:
            return False
        if self.cross is not None:
            return False  # nothing to try it with
        trial = Group(self, np.arange(1), 3, Cancel())
        try:
            for tokens in ([[0]], [[0, 0]]):
                trial.forward(np.array(tokens), np.array([len(tokens[0])]))
        except SessionError:
            return False
        return True

    def needs(self, rows: int, capacity: int, prompt: int) -> int:
        """Bytes of the host that ``rows`` of up to ``capacity`` tokens take at most, estimated.

        ``prompt`` counts the longest one's tokens. 0 on other devices, which tell no free memory.
        """
        if self.device.kind != "cpu":
            return 0
        graph = self.graph
        pieces = self.later is self.first and not graph.merged and self.cross is None
        chunk = LOGITS_BYTES if pieces and graph.step_size != 1 else 0
        return memory.estimate(graph, rows, capacity, prompt, chunk)

    def start(
        self,
        capacity: int,
        *,
        prefill_chunk_size: int | None = None,
        encoding: Encoding | None = None,
        watch: Watch | None = None,
        scene: Scene | None = None,
        cancel: Cancel | None = None,
    ) -> "Decoder":
        """A decoder with empty caches, for sequences of up to ``capacity`` tokens each.

        ``encoding``: what its rows attend to, where the model is one that attends. ``watch`` is
        filled while it runs. ``scene``: the images of its prompts. ``cancel`` ends its runs.

        ``prefill_chunk_size`` bounds how many tokens of a prompt run at once; graphs that take only
        one token behind a cache run a prompt as a whole. CapacityError if the graph cannot
        position as many tokens.
        """
        self.check(capacity)
        encoded = self.cross.take(encoding) if self.cross and encoding else None
        return Decoder(self, capacity, prefill_chunk_size, encoded, watch, scene, cancel)

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

    def __init__(
        self,
        model: DecoderModel,
        capacity: int,
        chunk: int | None = None,
        encoded: Encoded | None = None,
        watch: Watch | None = None,
        scene: Scene | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        self.model, self.capacity, self._chunk = model, capacity, chunk
        self._encoded, self._watch, self._scene = encoded, watch, scene
        self._steady = model.steady and not (watch and watch.heads)
        self.vocab_size = model.vocab_size
        self.lengths: Ints = np.zeros(0, np.int64)
        self._groups: list[Group] = []
        self._cancel = cancel or Cancel()

    def step(self, tokens: Ints, lengths: Ints) -> Floats:
        """Feeds ``tokens`` (B,S), row i's first ``lengths[i]``; the logits (B,V) after them.

        The array is valid until the next call; logits of rows that got no token mean nothing.
        CapacityError if a row would grow too long.
        """
        if tokens.shape == (1, 1) and lengths[0] == 1 and self._groups:
            # The step that is run most. It costs what it touches: between two runs the weights
            # have driven everything else out of the processor's caches.
            group = self._groups[0]
            if self._steady and group.cache.single and self.lengths[0] < self.capacity:
                logits = group.next(tokens)
                self.lengths = group.cache.lengths
                return logits
        after = self._admit(tokens, lengths)
        if self._watch is not None:
            self._watch.begin(len(tokens))
        if len(self._groups) == 1 and lengths.any():
            logits = self._groups[0].run(tokens, lengths)
        else:
            logits = np.empty((len(tokens), self.vocab_size), np.float32)
            for group in self._groups:
                if lengths[group.rows].any():
                    logits[group.rows] = group.run(tokens[group.rows], lengths[group.rows])
        self.lengths = after
        return logits

    def step_kept(self, tokens: Ints, lengths: Ints) -> KeptLogits:
        """Like :meth:`step` for rows that all get tokens, but the logits stay where they are."""
        after = self._admit(tokens, lengths)
        if self._watch is not None:
            self._watch.begin(len(tokens))
        parts = [
            (group.rows[inside], memory)
            for group in self._groups
            for inside, memory in group.keep(tokens[group.rows], lengths[group.rows])
        ]
        self.lengths = after
        dtype = self.model.graph.logits.dtype
        return joined(parts, self.model.device, self.vocab_size, dtype)

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
        if len(self._groups) == 1 and len(picked) == len(self.lengths):
            self._groups[0].permute(picked)  # what beams do in each step
        else:
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

    def show(self, scene: Scene | None) -> None:
        """Has the tokens that follow belong to the prompts of ``scene``."""
        self._scene = scene
        for group in self._groups:
            group.show(scene.gather(group.rows) if scene else None)

    def cancel(self) -> None:
        """From any thread: the run in progress ends within a node, with CancelledError."""
        self._cancel.cancel()

    def heed(self, cancel: Cancel) -> None:
        """Has ``cancel`` end what runs from now on, and no other switch."""
        self._cancel = cancel
        for group in self._groups:
            group.cancel = cancel

    def close(self) -> None:
        """Frees the caches, and what the rows attend to."""
        self._groups, self._encoded, self._scene = [], None, None

    def detach(self) -> "Decoder":
        """A decoder with these sequences; this one is left without."""
        other = Decoder(self.model, self.capacity, self._chunk)
        other.lengths, other._groups, self._groups = self.lengths, self._groups, []
        other.heed(other._cancel)
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

    def _group(self, rows: Ints) -> Group:
        encoded = self._encoded.gather(rows) if self._encoded else None
        model, cancel, watch = self.model, self._cancel, self._watch
        scene = self._scene.gather(rows) if self._scene else None
        return Group(model, rows, self.capacity, cancel, None, self._chunk, encoded, watch, scene)

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
        parted: list[Group] = []
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
