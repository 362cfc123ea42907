"""Edits of a graph in memory that make it run faster and change no result beyond rounding."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxgen.graph.proto import Graph, attributes
from onnxgen.graph.rewrites import (
    attention,
    blocks,
    branches,
    counts,
    embeddings,
    group_query,
    last_logits,
    reshapes,
    rotary,
    tables,
)
from onnxgen.graph.rewrites.editing import Draft, Site


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One kind of edit: ``apply`` makes it wherever it fits, and says where.

    ``rounds``: it computes with activations of 8 bits, so it is made only where that is asked for.
    ``shares``: the cache becomes a shared buffer. ``feeds``: the graph takes what only we feed it.
    ``exact``: no number is computed in another way, so there is nothing to check.
    """

    name: str
    about: str
    apply: Callable[[Draft], list[Site]]
    rounds: bool = False
    shares: bool = False
    feeds: bool = False
    exact: bool = False


REWRITES = (
    Rewrite("embeddings", "embeddings read from the file", embeddings.feed, feeds=True, exact=True),
    Rewrite("blocks", "8-bit table to MatMulNBits", blocks.pack, rounds=True),
    Rewrite("accuracy", "MatMulNBits with 8-bit activations", blocks.lower, rounds=True),
    Rewrite("tables", "8-bit table made floats once", tables.hoist, exact=True),
    Rewrite("branches", "head of all branches behind them", branches.join_ends, exact=True),
    Rewrite("group_query", "attention to GroupQueryAttention", group_query.share, shares=True),
    Rewrite("rotary", "rotary embedding to RotaryEmbedding", rotary.turn),
    Rewrite("counts", "valid rows counted outside", counts.take_counts, exact=True),
    Rewrite("last_logits", "logits of the last token alone", last_logits.keep_last, exact=True),
    Rewrite("reshapes", "shapes written down", reshapes.write_down),
    Rewrite("attention", "attention to MultiHeadAttention", attention.fuse),
)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A graph after its rewrites, as it came, and where each was made, by its name.

    ``left``: what was not rewritten, for people -> why, each reason with how often it holds.
    """

    draft: Draft
    before: Draft
    sites: dict[str, list[Site]]
    left: dict[str, dict[str, int]]

    def graph(self, path: Path) -> Graph:
        """The graph as it runs; ``path`` is where it came from."""
        return Graph(self.draft.model, path)

    @property
    def config(self) -> dict[str, str]:
        """The entries that a session's options need beside the graph."""
        return dict([tables.FOLDED]) if "tables" in self.sites else {}

    @property
    def doubtful(self) -> dict[str, list[Site]]:
        """The places of each rewrite that computes numbers in another way."""
        exact = {rewrite.name for rewrite in REWRITES if rewrite.exact}
        return {name: found for name, found in self.sites.items() if name not in exact}

    @property
    def windows(self) -> set[int]:
        """How many keys attentions see at most, where that is bounded."""
        made = self.draft.scope.nodes("GroupQueryAttention")
        found = {attributes(node).get("local_window_size", -1) for _, node in made}
        return {window for window in found if window > 0}

    @property
    def counts(self) -> dict[str, int]:
        """What was rewritten, for people -> at how many places."""
        return {about(name): len(found) for name, found in self.sites.items()}

    def __str__(self) -> str:
        return ", ".join(f"{count} x {about}" for about, count in self.counts.items())


def about(name: str) -> str:
    """What the rewrite of that name does, for people."""
    return next(rewrite.about for rewrite in REWRITES if rewrite.name == name)


def rewrite(
    path: Path,
    rounds: bool = False,
    shares: bool = True,
    feeds: bool = False,
    without: Mapping[str, Mapping[str, int]] | None = None,
) -> Rewritten | None:
    """The graph of ``path`` with all rewrites that fit it.

    ``rounds``: also those that compute with activations of 8 bits. ``shares``: also those that
    make the cache a shared buffer, which the second graph of an un-merged pair cannot have.
    ``feeds``: also those whose graph runs nowhere but here.
    ``without``: the names of those that are not to be made -> why, as in :attr:`Rewritten.left`.

    A graph that a rewrite trips over is None, with a warning: that it is broken is for those to say
    who read its facts, or for ONNX Runtime.
    """
    draft = Draft.load(path)
    try:
        return _rewritten(draft, rounds, shares, feeds, without or {})
    except Exception as error:
        warnings.warn(
            f"{path.name} runs as it came: it cannot be rewritten ({type(error).__name__})",
            stacklevel=3,
        )
        return None


def _rewritten(
    draft: Draft,
    rounds: bool,
    shares: bool,
    feeds: bool,
    without: Mapping[str, Mapping[str, int]],
) -> Rewritten:
    reason = "its data lies in another folder" if draft.folder is None else ""
    if reason or draft.model.functions:
        left = {"rewrites": {reason or "it has functions of its own": 1}}
        return Rewritten(draft, draft, {}, left)
    before, sites, left = draft.copy(), {}, {}
    for one in REWRITES:
        if (one.rounds and not rounds) or (one.feeds and not feeds):
            continue
        if one.name in without:
            left[one.about] = dict(without[one.name])
            continue
        if one.shares and not shares:
            if draft.grows:
                left[one.about] = {"only a decoder of one graph, on the CPU, shares its buffer": 1}
            continue
        if found := one.apply(draft):
            sites[one.name] = found
            draft.settle()
            if one.feeds:
                before = draft.copy()  # others are checked with what is fed
        if draft.left:
            left[one.about] = dict(Counter(draft.left))
            draft.left.clear()
    return Rewritten(draft, before, sites, left)
