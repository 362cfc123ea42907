"""Graphs rewritten in memory before they run, each rewrite checked against the graph as it came.

The check runs excerpts: all that leads to the first places that were edited, before and after, on
some values. It reads the weights of a layer, not of the model. What fails it is left out, and the
rest is used.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from onnxgen.graph.decoder import DecoderGraph, inspect
from onnxgen.graph.proto import Graph, Port, port_of
from onnxgen.graph.rewrites import Rewritten, about, rewrite
from onnxgen.graph.rewrites.counts import LAST, TOTAL
from onnxgen.graph.rewrites.editing import Site
from onnxgen.graph.rewrites.excerpt import excerpt
from onnxgen.graph.rewrites.last_logits import INPUT as LOGITS_KEPT
from onnxgen.graph.rewrites.order import pack_largest_first
from onnxgen.graph.rewrites.sizes import size_of
from onnxgen.runtime.session import (
    EXTERNAL_FOLDER,
    PLAIN,
    Engine,
    Model,
    reason_of,
    require_onnxruntime,
)

Feeds = dict[str, NDArray[Any]]

CHECKED = 2  # places of each rewrite in a body that a check covers
# Of the largest value. Kernels that sum in another order differ by 1e-5; where activations are
# quantised such a difference moves some of them by one step of 255.
TOLERANCE, ROUGH = 1e-3, 5e-2

LARGE = 100_000  # numbers in an input of static dims, above which one run of one place has to do
# One row where several tokens follow a cache: GroupQueryAttention takes no more.
SIZES = (
    {"B": 2, "S": 3, "P": 0, "T": 7},
    {"B": 1, "S": 3, "P": 5, "T": 7},
    {"B": 2, "S": 1, "P": 6, "T": 4},
)
# Strides and tables of positions want longer sounds, and pictures of their size alone: the first of
# these that the graph takes.
OTHERS: tuple[dict[str, int], ...] = ({}, {"T": 2000}, {"E": 224}, {"E": 384})


def decoders(
    paths: Mapping[str, Path], config: Mapping[str, Any], engine: Engine = PLAIN
) -> dict[str, DecoderGraph]:
    """The facts about the decoders of ``paths``, role -> file, as they are to run.

    Errors are those of :meth:`DecoderGraph.load`.
    """
    roles = {role: path for role, path in paths.items() if role.startswith("decoder")}
    # On cuda GroupQueryAttention takes half precision only, and graphs of that stay as they are.
    shares = len(roles) == 1 and engine.device == "cpu"
    return {role: _decoder(path, config, engine, shares) for role, path in roles.items()}


def _decoder(path: Path, config: Mapping[str, Any], engine: Engine, shares: bool) -> DecoderGraph:
    source = prepared(path, engine, shares, feeds=shares)
    if not isinstance(source, Model):
        return DecoderGraph.load(path, config)
    model = ModelProto.FromString(source.proto)
    facts = inspect(Graph(model, path), config)
    pack_largest_first(model)
    return replace(facts, source=replace(source, proto=model.SerializeToString()))


def prepared(
    path: Path, engine: Engine = PLAIN, shares: bool = True, feeds: bool = False
) -> Path | Model:
    """What a session is to load of ``path``: its graph as :func:`checked` leaves it, or itself."""
    found = checked(path, engine.rounds, shares, feeds) if engine.rewrites else None
    if found is None or not found.sites or found.draft.folder is None:
        return path
    proto, folder = found.draft.model.SerializeToString(), found.draft.folder
    return Model(path.name, proto, folder, found.config, str(found), found.draft.table)


def checked(
    path: Path, rounds: bool = False, shares: bool = True, feeds: bool = False
) -> Rewritten | None:
    """The graph of ``path`` with those rewrites that are as good as the graph as it came.

    Arguments are those of :func:`rewrite`. One that gives other values is left out with a warning;
    one that cannot be checked, because nothing tells which sizes the graph takes, without.
    """
    without: dict[str, dict[str, int]] = {}
    while (found := rewrite(path, rounds, shares, feeds, without)) and (fault := _fault(found)):
        name, reason, wrong = fault
        without[name] = {reason: len(found.sites[name])}
        if wrong:
            warnings.warn(f"{path.name} runs without {about(name)}: {reason}", stacklevel=2)
    return found


def _fault(found: Rewritten) -> tuple[str, str, bool] | None:
    """The name of a rewrite that has to go, why, and whether it is wrong; None if all are right.

    Of several that led to a tensor it is the last, which was made on what the others had left.
    """
    bodies: dict[tuple[int, ...], list[Site]] = {}
    most = 1 if _is_large(found) else CHECKED
    for sites in found.doubtful.values():
        for place in {site.body: None for site in sites}:
            within = [site for site in sites if site.body == place and found.draft.holds(site)]
            bodies.setdefault(place, []).extend(within[:most])
    for sites in filter(None, bodies.values()):
        try:
            tensor = _difference(found, sites)
        except Exception as error:  # ONNX Runtime's own have no common base
            reason = reason_of(error).rpartition("Status Message: ")[2]
            return _last(found, sites), f"it cannot be checked: {reason}", False
        if tensor:
            at = [site for site in sites if site.output == tensor]
            return _last(found, at), f"it gives other values at {tensor}", True
    return None


def _last(found: Rewritten, sites: Sequence[Site]) -> str:
    """The last rewrite that was made at one of ``sites``."""
    made = [name for name, own in found.doubtful.items() if not set(own).isdisjoint(sites)]
    return made[-1]


def _difference(found: Rewritten, sites: Sequence[Site]) -> str:
    """The first tensor of ``sites``, of one body, that the rewrites change, "" if none.

    Raises whatever ONNX Runtime does where an excerpt does not run.
    """
    before, after = excerpt(found.before, sites), excerpt(found.draft, sites)
    # A cache that a window has left.
    sizes = [{"B": 1, "S": 3, "P": window + 2, "T": 7} for window in found.windows]
    every = SIZES[-1:] if _is_large(found) else (*SIZES, *sizes)
    return _compare(before, after, str(found.draft.folder), every)


def _is_large(found: Rewritten) -> bool:
    shapes = (port_of(info).shape for info in found.before.model.graph.input)
    return any(prod(dim for dim in shape if isinstance(dim, int)) > LARGE for shape in shapes)


def _compare(
    before: ModelProto, after: ModelProto, folder: str, every: Sequence[Mapping[str, int]]
) -> str:
    """The first output at which two excerpts differ for some sizes, "" if none."""
    sessions = [_session(model, folder) for model in (before, after)]
    inputs = {info.name: info for model in (before, after) for info in model.graph.input}
    ports = [port_of(info) for info in inputs.values()]
    names: list[str] = [output.name for output in before.graph.output]
    rounding = {"DynamicQuantizeLinear", "MatMulNBits"}
    rough = any(node.op_type in rounding for model in (before, after) for node in model.graph.node)
    for sizes in every:
        feeds, mine = _taken(sessions[0], names, ports, sizes)
        theirs = _run(sessions[1], names, feeds)
        for name, one, other in zip(names, mine, theirs, strict=True):
            bound = (ROUGH if rough else TOLERANCE) * float(np.abs(one).max(initial=1e-6))
            if one.shape != other.shape or not np.allclose(one, other, rtol=0, atol=bound):
                return name
    return ""


def _taken(
    session: Any, names: list[str], ports: Sequence[Port], sizes: Mapping[str, int]
) -> tuple[Feeds, list[NDArray[Any]]]:
    """Values of ``sizes``, or others if need be, that the graph takes, and what it gives."""
    for feeds in _feeds(ports, sizes):
        try:
            return feeds, _run(session, names, feeds)
        except Exception as error:  # ONNX Runtime's own have no common base
            failure = error
    raise failure


def _feeds(ports: Sequence[Port], sizes: Mapping[str, int]) -> Iterator[Feeds]:
    tried: list[list[tuple[int, ...]]] = []
    for others in OTHERS:
        feeds = {port.name: _values(port, {**sizes, **others}) for port in ports}
        shapes = [values.shape for values in feeds.values()]
        if shapes not in tried:
            tried.append(shapes)
            yield feeds


def _run(session: Any, names: list[str], feeds: Feeds) -> list[NDArray[Any]]:
    taken = {port.name: feeds[port.name] for port in session.get_inputs()}
    found: list[NDArray[Any]] = session.run(names, taken)
    return found


def _session(model: ModelProto, folder: str) -> Any:
    ort = require_onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.add_session_config_entry(EXTERNAL_FOLDER, folder)
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _values(port: Port, sizes: Mapping[str, int]) -> NDArray[Any]:
    """Something that the input ``port`` may hold."""
    shape = tuple(size_of(dim, sizes) for dim in port.shape)
    numbers = np.sin(np.arange(prod(shape)) ** 2).reshape(shape)  # numpy.random loads OpenSSL
    if port.dtype.startswith("float"):
        return numbers.astype(port.dtype)
    if "mask" in port.name or port.dtype == "bool":
        return np.ones(shape, port.dtype)
    if port.name in {LAST, TOTAL}:
        held = sizes["P"] + sizes["S"]
        return np.full(shape, held - (port.name == LAST), port.dtype)  # as the mask of ones says
    if port.name == LOGITS_KEPT:
        return np.zeros(shape, port.dtype)  # all of them, as the graph as it came gives
    if "position" in port.name:
        return np.broadcast_to(np.arange(shape[-1]), shape).astype(port.dtype)
    return (10 * abs(numbers)).astype(port.dtype)
