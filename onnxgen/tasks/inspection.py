"""``inspect``: what a model's files and graphs say, without weights and without ONNX Runtime.

A model that cannot run is described as far as it goes, with the error that running it would meet.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, prod
from pathlib import Path
from typing import Any

from onnxgen.errors import OnnxgenError, UnsupportedModelError
from onnxgen.files import ModelFiles, external_data_locations, resolve
from onnxgen.generation.config import GenerationConfig, stop_ids
from onnxgen.graph import decoder as decoders
from onnxgen.graph.decoder import DecoderGraph
from onnxgen.graph.encoder import EncoderGraph
from onnxgen.graph.proto import Graph, Port, elem_name
from onnxgen.graph.rewrites import Rewritten, rewrite
from onnxgen.graph.roles import roles
from onnxgen.graph.shapes import CacheSlot
from onnxgen.tasks.defaults import context_length, generation_defaults, graph_config
from onnxgen.tasks.loading import task_of
from onnxgen.text.tokenizer import Tokenizer

GREETING = [{"role": "user", "content": "Hello"}]


@dataclass(frozen=True, slots=True)
class File:
    """A file by its name in the model's folder; ``bytes`` is None where it is not on this disk."""

    name: str
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Variant:
    """One graph file that could be taken for ``role``, with the files of its external data."""

    role: str
    dtype: str  # by the file's name, "" where that says none
    chosen: bool
    graph: File
    parts: tuple[File, ...]

    @property
    def bytes(self) -> int | None:
        """The size of all its files, None where one is not on this disk."""
        sizes = [file.bytes for file in (self.graph, *self.parts)]
        return None if None in sizes else sum(size or 0 for size in sizes)


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output of a graph; ``shape`` holds sizes, names of sizes, or None.

    ``role`` is what it is for, as :class:`DecoderGraph` calls it, ``cache`` or ``state`` for those
    that return with each step, "" where the graph does not show it.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]
    role: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """One of the graphs that run: who wrote it, its weights, what goes in and out.

    ``rewrites``: kind -> at how many places the graph is rewritten in memory before it runs; what
    fails the check against the graph as it came, which needs a session, is left out then.
    ``not_rewritten``: kind -> reason -> how many places stay as they came for that.
    """

    role: str
    graph: str
    producer: str
    opsets: Mapping[str, int]
    weights: Mapping[str, int]  # dtype -> bytes, largest first
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    rewrites: Mapping[str, int]
    not_rewritten: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Text:
    """What turns text into tokens; ``problem`` says why nothing does, or why chats do not work."""

    vocab_size: int | None
    special_tokens: Mapping[str, str | list[str]]
    chat_templates: tuple[str, ...]
    stop_tokens: Mapping[int, str | None]  # id -> token, of those that end an answer
    problem: OnnxgenError | None


@dataclass(frozen=True, slots=True)
class Inspection:
    """All that is known of a model before it is loaded.

    ``decoder`` holds the facts about the graph that makes the tokens, None if it has none;
    ``refusal`` is the error that running the model would end in, None if it runs.
    """

    source: str
    folder: Path
    layout: str
    dtype_reason: str  # which dtype was taken of which, and why; "" if there was no choice
    variants: tuple[Variant, ...]
    sessions: tuple[Session, ...]
    decoder: DecoderGraph | None
    task: str  # what it is loaded for
    refusal: OnnxgenError | None
    context: int | None  # tokens that the model was made for, by its config
    text: Text
    generation: Mapping[str, Any]  # the options that the model's own files set

    @property
    def runs(self) -> bool:
        """Whether the model can be loaded and run."""
        return self.refusal is None

    @property
    def capacity(self) -> int | None:
        """How many tokens a sequence may have: the smaller of graph's and config's bound."""
        graph = self.decoder.capacity.rows if self.decoder else None
        return min((b for b in (graph, self.context) if b is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        """All facts as plain JSON types; keys stay, new ones may come."""
        return {
            "model": self.source,
            "folder": str(self.folder),
            "layout": self.layout,
            "task": self.task,
            "runs": self.runs,
            "refusal": _error(self.refusal),
            "dtype_reason": self.dtype_reason,
            "variants": [asdict(variant) | {"bytes": variant.bytes} for variant in self.variants],
            "sessions": [_plain(asdict(session)) for session in self.sessions],
            "decoder": None if self.decoder is None else _decoder(self.decoder),
            "capacity": self._capacity(),
            "text": {
                "vocab_size": self.text.vocab_size,
                "special_tokens": dict(self.text.special_tokens),
                "chat_templates": list(self.text.chat_templates),
                "stop_tokens": [
                    {"id": number, "token": token}
                    for number, token in self.text.stop_tokens.items()
                ],
                "problem": _error(self.text.problem),
            },
            "generation": _plain(dict(self.generation)),
        }

    def _capacity(self) -> dict[str, Any]:
        graph = self.decoder.capacity if self.decoder else None
        return {
            "tokens": self.capacity,
            "graph": graph.rows if graph else None,
            "graph_reason": graph.reason if graph else None,
            "switch": graph.switch if graph else None,
            "config": self.context,
        }


def inspect(
    model: str | os.PathLike[str],
    *,
    dtype: str | Mapping[str, str] | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    offline: bool | None = None,
    rewrites: bool = True,
) -> Inspection:
    """Describes a model from its files; arguments as for :func:`onnxgen.load`.

    Without ``rewrites`` the facts are those of the decoder's graph as it came.

    Raises:
        OnnxgenError: there is no such model, or its files are broken or incomplete. A model that
            is sound but cannot run is no error here; see :attr:`Inspection.refusal`.
    """
    files = resolve(model, dtype=dtype, revision=revision, token=token, offline=offline)
    config = GenerationConfig.from_json(generation_defaults(files))
    graphs = {role: Graph.load(path) for role, path in files.graphs.items()}
    rewritten = _rewritten(graphs) if rewrites else {}
    running = {
        role: found.graph(graphs[role].path) for role, found in rewritten.items() if found.sites
    }
    embedded = "embed_tokens" in graphs or any(one.draft.table for one in rewritten.values())
    decoder, refusal = _facts(files, graphs | running, embedded)
    return Inspection(
        source=files.source,
        folder=files.folder,
        layout=files.layout,
        dtype_reason=files.chosen,
        variants=tuple(_variants(files)),
        sessions=tuple(
            _session(files, role, graph, decoder, rewritten.get(role))
            for role, graph in graphs.items()
        ),
        decoder=decoder,
        task=_task(files),
        refusal=refusal,
        context=context_length(files),
        text=_text(files, sorted(stop_ids(config))),
        generation=config.set_options(),
    )


def _facts(
    files: ModelFiles, graphs: Mapping[str, Graph], embedded: bool
) -> tuple[DecoderGraph | None, OnnxgenError | None]:
    """The facts about the graph of later steps, and why the model cannot run, if so.

    ``embedded``: tokens are embedded outside of it.
    """
    decoder: DecoderGraph | None = None
    try:
        config = graph_config(files)
        facts = {
            role: decoders.inspect(graph, config)
            for role, graph in graphs.items()
            if role.startswith("decoder")
        }
        decoder = facts.get("decoder_with_past", facts["decoder"])
        task_of(files)
        decoders.check_runs(decoder, embedded=embedded, encoded="encoder" in graphs)
    except UnsupportedModelError as error:
        return decoder, error
    return decoder, None


def _task(files: ModelFiles) -> str:
    """The task by the model's sessions, text-generation where they do not tell."""
    try:
        return task_of(files)
    except OnnxgenError:
        return "text-generation"


def _variants(files: ModelFiles) -> Iterator[Variant]:
    for role, names in files.variants.items():
        for dtype, name in names.items():
            path = files.folder / name
            try:
                locations = external_data_locations(path)
            except OnnxgenError:  # not downloaded, or broken: told only of what was chosen
                locations = []
            parts = (_file(files, path.parent / location) for location in locations)
            chosen = files.graphs.get(role) == path
            yield Variant(role, dtype, chosen, _file(files, path), tuple(parts))


def _file(files: ModelFiles, path: Path) -> File:
    try:
        size = path.stat().st_size
    except OSError:
        size = None
    return File(path.relative_to(files.folder).as_posix(), size)


def _session(
    files: ModelFiles,
    role: str,
    graph: Graph,
    decoder: DecoderGraph | None,
    rewritten: Rewritten | None,
) -> Session:
    role_of = roles(graph) if role.startswith("decoder") else {}
    if role == "encoder":
        role_of = _encoder_roles(files)
    elif role_of and decoder is not None:
        for slot in decoder.slots:
            kind = "state" if slot.seq_axis is None else "cache"
            role_of[slot.input] = role_of[slot.output] = kind
        for slot in decoder.cross:
            role_of[slot.input] = role_of[slot.output] = "cross_cache"
        role_of[decoder.logits.name] = "logits"
        role_of.update(dict.fromkeys(decoder.extra_outputs, "unused"))
    return Session(
        role=role,
        graph=files.graphs[role].relative_to(files.folder).as_posix(),
        producer=graph.producer,
        opsets=graph.opsets,
        weights=_weights(graph),
        inputs=tuple(_tensor(port, role_of) for port in graph.inputs.values()),
        outputs=tuple(_tensor(port, role_of) for port in graph.outputs.values()),
        rewrites=rewritten.counts if rewritten else {},
        not_rewritten=rewritten.left if rewritten else {},
    )


def _rewritten(graphs: Mapping[str, Graph]) -> dict[str, Rewritten]:
    """The graphs that are rewritten before they run; those that embed tokens run as they came."""
    pair = "decoder_with_past" in graphs
    tried = {
        role: rewrite(graph.path, shares=not pair, feeds=not pair)
        for role, graph in graphs.items()
        if role != "embed_tokens"
    }
    return {role: found for role, found in tried.items() if found is not None}


def _encoder_roles(files: ModelFiles) -> dict[str, str]:
    try:
        encoder = EncoderGraph.load(files.graphs["encoder"])
    except UnsupportedModelError:
        return {}
    found = {encoder.main.name: "ids" if encoder.takes_ids else "features"}
    if encoder.mask is not None:
        found[encoder.mask.name] = "mask"
    if encoder.states is not None:
        found[encoder.states.name] = "encoder_states"
    return found


def _weights(graph: Graph) -> dict[str, int]:
    """Bytes of constants by dtype, from their shapes."""
    bits: Counter[str] = Counter()
    for scope in graph.scope.walk():
        for tensor in scope.graph.initializer:
            name = elem_name(tensor.data_type)
            bits[name] += prod(tensor.dims) * _bits(name)
    return {name: number // 8 for name, number in bits.most_common()}


def _bits(dtype: str) -> int:
    """Width of an element: the first number in the name of its type; 8 for bool and text."""
    found = re.search(r"\d+", dtype)
    return int(found[0]) if found else 8


def _tensor(port: Port, role_of: Mapping[str, str]) -> Tensor:
    return Tensor(port.name, port.dtype, port.shape, role_of.get(port.name, ""))


def _text(files: ModelFiles, stops: Sequence[int]) -> Text:
    try:
        tokenizer = Tokenizer.from_files(files)
    except OnnxgenError as error:
        return Text(None, {}, (), dict.fromkeys(stops), error)
    stop_tokens = {number: tokenizer.id_to_token(number) for number in stops}
    templates: tuple[str, ...] = ()
    problem: OnnxgenError | None = None
    if tokenizer.chat_template is not None:
        templates = tuple(sorted(tokenizer.chat_template.templates))
        try:
            tokenizer.apply_chat_template(GREETING, add_generation_prompt=True)
        except OnnxgenError as error:
            problem = error
    return Text(tokenizer.vocab_size, tokenizer.special_tokens, templates, stop_tokens, problem)


def heads(slot: CacheSlot) -> tuple[int | None, int]:
    """How many heads a cache has, and the size of each; None where they share one axis."""
    inner = [
        size for axis, size in enumerate(slot.sizes) if axis not in (slot.batch_axis, slot.seq_axis)
    ]
    if len(inner) == 1 and slot.batch_factor == 1:
        return None, inner[0]
    return (inner[-2] if len(inner) > 1 else 1) * slot.batch_factor, inner[-1]


def letters(slot: CacheSlot) -> list[int | str]:
    """The shape of a cache with B for the batch axis and P for the tokens in the cache."""
    shape: list[int | str] = list(slot.sizes)
    shape[slot.batch_axis] = "B" if slot.batch_factor == 1 else f"B*{slot.batch_factor}"
    if slot.seq_axis is not None:
        shape[slot.seq_axis] = "P"
    return shape


def _decoder(graph: DecoderGraph) -> dict[str, Any]:
    return {
        "graph": graph.path.name,
        "mode": str(graph.mode),
        "mode_reason": graph.reason,
        "valid_rows": str(graph.lengths) if graph.lengths else None,
        "merged": graph.merged,
        "operators": dict(graph.operators),
        "layers": graph.layers,
        "caches": [_slot(slot) for slot in graph.caches],
        "states": [_slot(slot) for slot in graph.states],
        "cross_caches": [_slot(slot) for slot in graph.cross],
        "cache_bytes_per_1000_tokens": 1000 * graph.bytes_per_token(),
        "state_bytes": sum(slot.row_bytes(0) for slot in graph.states),
        "batch": {
            "fixed": graph.fixed_batch,
            "ragged": graph.ragged,
            "ragged_reason": graph.ragged_reason,
        },
        "step_size": graph.step_size,
        "inputs": {role: port.name for role, port in graph.inputs.items()},
        "logits": {
            "output": graph.logits.name,
            "dtype": graph.logits.dtype,
            "covers": str(graph.logits_kind),
            "vocab_size": graph.vocab_size,
        },
        "extra_outputs": list(graph.extra_outputs),
    }


def _slot(slot: CacheSlot) -> dict[str, Any]:
    common = {
        "layer": slot.layer,
        "kind": slot.kind,
        "input": slot.input,
        "output": slot.output,
        "dtype": slot.dtype,
        "shape": letters(slot),
        "by": str(slot.join),
    }
    if slot.seq_axis is None:
        return common
    number, size = heads(slot)
    return common | {
        "heads": number,
        "head_size": size,
        "batch_axis": slot.batch_axis,
        "sequence_axis": slot.seq_axis,
        "window": slot.window,
        "static_length": slot.fixed_length,
    }


def _error(error: OnnxgenError | None) -> dict[str, str] | None:
    if error is None:
        return None
    return {"found": error.found, "wanted": error.wanted, "do": error.do}


def _plain(value: Any) -> Any:
    """Tuples as lists and infinities, which JSON lacks, as texts."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
