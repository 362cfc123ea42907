"""Choosing tokens where the logits are: only tokens and candidates reach the host.

Letters: B rows, I prompts, N beams of a prompt (B = I × N), V vocabulary, K candidates, L ids.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxgen.runtime.device import Device
from onnxgen.runtime.kept import Floats, Ints, KeptLogits
from onnxgen.runtime.selection_graph import FLOAT, SelectionSpec, selection_graph
from onnxgen.runtime.session import Cancel, Engine, Session

Bools = NDArray[np.bool_]

# Sessions that a model keeps; a server's callers may each ask for a temperature of their own.
KEPT = 16


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for each row.

    ``tokens`` (B,) mean nothing where ``best`` (B,), the best score, is not finite: NaN where any
    score is, -inf where all tokens are banned. If asked for, and else empty: the tokens' scores
    ``chosen`` (B,), and ``norms`` (B,), which taken off make scores log-probabilities; the best
    ``scores`` (B,K) in falling order with their ``ids`` (B,K), and how many of a row's are ``open``
    (B,), not banned, maybe more than K.
    """

    tokens: Ints
    best: Floats
    chosen: Floats
    norms: Floats
    ids: Ints
    scores: Floats
    open: Ints


@dataclass(frozen=True, slots=True)
class BeamChoice:
    """The candidates of each prompt.

    ``places`` (I,K) are beam × V + token, in falling order of their ``sums`` (I,K), or if drawn in
    the order of the draws. ``scores`` (I,K) are the sums without what the beams had before,
    ``best`` (I,) is the best sum as in :class:`Choice`, ``norms`` (I,N) likewise.
    """

    places: Ints
    sums: Floats
    scores: Floats
    best: Floats
    norms: Floats | None


class Selector:
    """Runs a selection graph, step by step. Not for several threads at once."""

    def __init__(
        self,
        spec: SelectionSpec,
        device: Device,
        vocab_size: int,
        elem_type: int = FLOAT,
        *,
        session: Session | None = None,
    ) -> None:
        self.spec, self.vocab_size = spec, vocab_size
        self._device, self._elem_type = device, elem_type
        self._session = session or new_session(spec, device, vocab_size, elem_type)
        self._io = self._session.ort.io_binding()
        self._inputs = frozenset(self._session.inputs) - {"logits"}
        self._cancel = Cancel()  # runs are short; the decoder's end when they are cancelled
        self._arrays: dict[str, NDArray[Any]] = {}  # bound ones must live on

    @property
    def needs_ids(self) -> bool:
        """Whether :meth:`choose` reads the rows' ids."""
        return "ids" in self._inputs

    def choose(
        self,
        logits: KeptLogits,
        *,
        ids: Ints | None = None,
        lengths: Ints | None = None,
        flags: Mapping[str, Bools] | None = None,
        noise: Floats | None = None,
    ) -> Choice:
        """The tokens of the rows of ``logits`` (B,V).

        Of ``ids`` (B,L) row i's first ``lengths[i]`` count. ``flags`` are (B,), one for each that
        the spec's steps name. ``noise`` (B,V) holds draws of the unit exponential distribution.
        """
        told = self._run(logits, ids, lengths, flags, {"noise": noise})
        nothing = np.empty((logits.rows, 0), np.float32)
        return Choice(
            tokens=told["tokens"].ravel(),
            best=told["best"].ravel(),
            chosen=told.get("chosen", nothing).ravel(),
            norms=told.get("norms", nothing).ravel(),
            ids=told.get("best_ids", nothing.astype(np.int64)),
            scores=told.get("scores", nothing),
            open=told.get("open", nothing).ravel(),
        )

    def candidates(
        self,
        logits: KeptLogits,
        running: Floats,
        *,
        ids: Ints | None = None,
        lengths: Ints | None = None,
        flags: Mapping[str, Bools] | None = None,
        noise: Floats | None = None,
    ) -> BeamChoice:
        """The candidates of each prompt from ``logits`` (B,V), its beams one after another.

        ``running`` (I,N) are the sums of the beams so far, ``noise`` is (I,N×V); for the others see
        :meth:`choose`.
        """
        given = {"noise": noise, "running": running.reshape(-1, 1)}
        told = self._run(logits, ids, lengths, flags, given)
        return BeamChoice(
            places=told["places"],
            sums=told["sums"],
            scores=told["scores"],
            best=told["best"].ravel(),
            norms=told["norms"].reshape(running.shape) if "norms" in told else None,
        )

    def _run(
        self,
        logits: KeptLogits,
        ids: Ints | None,
        lengths: Ints | None,
        flags: Mapping[str, Bools] | None,
        given: Mapping[str, Floats | None],
    ) -> dict[str, NDArray[Any]]:
        """All outputs by their names."""
        values: dict[str, NDArray[Any] | None] = dict(given)
        values.update({name: flag.reshape(-1, 1) for name, flag in (flags or {}).items()})
        if ids is not None and lengths is not None and self.needs_ids:
            values["ids"], values["has_ids"] = placed(ids, lengths, self.vocab_size)
        for name in self._inputs:
            self._write(name, values[name])
        place = (self._device.kind, self._device.index, self._elem_type)
        shape = [logits.rows, self.vocab_size]
        self._io.bind_input("logits", *place, shape, logits.memory.pointer)
        for name in self._session.outputs:
            self._io.bind_output(name)  # anew on the host: what the last run gave is the caller's
        self._session.run(self._io, self._cancel)
        outputs = self._io.get_outputs()
        return {
            name: value.numpy() for name, value in zip(self._session.outputs, outputs, strict=True)
        }

    def _write(self, name: str, values: NDArray[Any] | None) -> None:
        assert values is not None, name
        self._arrays[name] = np.ascontiguousarray(values)
        self._io.bind_cpu_input(name, self._arrays[name])


def placed(ids: Ints, lengths: Ints, vocab_size: int) -> tuple[Ints, Bools]:
    """``ids`` (B,L) with every entry a row's own id below V, and which rows (B,1) have one.

    What lies beyond the row's length, or is no id of the vocabulary, becomes another of its ids:
    none counts twice.
    """
    inside = (np.arange(ids.shape[1]) < lengths[:, None]) & (ids < vocab_size)  # (B,L)
    first = np.take_along_axis(ids, inside.argmax(axis=1)[:, None], axis=1)  # (B,1)
    some: Bools = np.atleast_2d(inside.any(axis=1, keepdims=True))
    filled: Ints = np.where(inside, ids, np.where(some, first, 0))
    return filled, some


def new_session(
    spec: SelectionSpec, device: Device, vocab_size: int, elem_type: int = FLOAT
) -> Session:
    """The session of a :class:`Selector`, which several may share."""
    graph = selection_graph(spec, vocab_size, elem_type)
    where = "cpu" if device.kind == "cpu" else f"{device.kind}:{device.index}"
    # Threads of its own would contend with the model's.
    return Session(graph, Engine(where, threads=1))


class Selectors:
    """Makes the selectors of one model; sessions of the last few specs are kept."""

    def __init__(self, device: Device, vocab_size: int, elem_type: int = FLOAT) -> None:
        self._place = (device, vocab_size, elem_type)
        self._sessions: dict[SelectionSpec, Session] = {}

    def new(self, spec: SelectionSpec) -> Selector:
        """A selector for one request."""
        session = self._sessions.pop(spec, None) or new_session(spec, *self._place)
        self._sessions[spec] = session  # the latest is last
        for old in list(self._sessions)[:-KEPT]:
            self._sessions.pop(old, None)
        return Selector(spec, *self._place, session=session)
