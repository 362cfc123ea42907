"""A model that is being rewritten: nodes replaced, constants added, what is dead dropped.

Weights are never in it: those that were in the graph's file are referred to as external data of
that file, so a rewritten model costs what its nodes cost.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
)

from onnxgen import wire
from onnxgen.files import policy
from onnxgen.files.lookup import Table
from onnxgen.graph.proto import Scope

MICROSOFT = "com.microsoft"
_HALF = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})


class UnfitError(Exception):
    """A pattern that a rewrite looks for is not there; the message says what is, for people."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a graph was edited: the tensor ``output`` in a body.

    ``body``: the places among :attr:`Scope.children` that lead to it from the main graph. Edits
    change names, but not those.
    """

    body: tuple[int, ...]
    output: str

    @classmethod
    def of(cls, scope: Scope, node: NodeProto) -> "Site":
        """The place of ``node``'s first output."""
        body: list[int] = []
        while scope.parent is not None:
            body.append([child for _, _, child in scope.parent.children].index(scope))
            scope = scope.parent
        return cls(tuple(reversed(body)), node.output[0])


class Draft:
    """A model's proto with the net of its nodes.

    Attributes:
        model: the proto, edited in place.
        folder: where its external data lies; None if no rewritten model could find that.
        scope: the main graph's net, as of the last :meth:`settle`.
        left: why a rewrite left places as they came, one reason for each of them.
        table: what the embeddings are looked up in that an input of the graph became.
    """

    def __init__(self, model: ModelProto, folder: Path | None) -> None:
        self.model, self.folder = model, folder
        self.scope = Scope(model.graph)
        self.left: list[str] = []
        self.table: Table | None = None
        self._names = 0
        self._replaced: dict[int, list[NodeProto]] = {}  # the scope keeps the nodes alive
        self._first: list[NodeProto] = []
        self._retired: set[str] = set()

    @classmethod
    def load(cls, path: Path) -> "Draft":
        """Reads ``path``; errors are those of :func:`policy.sound`."""
        real = path.resolve()  # a Hub cache links to files with other names
        model = policy.sound(wire.refer(path, real.name), path, own=real.name)
        draft = cls(model, real.parent)
        if not _resolved(draft.scope, path, real):
            draft.folder = None
        return draft

    @property
    def half(self) -> bool:
        """Whether there are weights of half precision."""
        tensors = (t for scope in self.scope.walk() for t in scope.graph.initializer)
        return any(tensor.data_type in _HALF for tensor in tensors)

    @property
    def grows(self) -> bool:
        """Whether a cache is among the inputs."""
        return any("past" in port.name for port in self.model.graph.input)

    def copy(self) -> "Draft":
        """A draft to try something on; :meth:`adopt` takes it over."""
        other = Draft(ModelProto.FromString(self.model.SerializeToString()), self.folder)
        other._names = self._names
        return other

    def adopt(self, other: "Draft") -> None:
        """Becomes what ``other`` is."""
        self.model, self.scope, self._names = other.model, other.scope, other._names

    def leave(self, reason: object) -> list[Site]:
        """Says that a place stays as it came, and why: nowhere is edited."""
        self.left.append(str(reason))
        return []

    def replace(self, node: NodeProto, nodes: Iterable[NodeProto]) -> None:
        """Has ``nodes`` take the place of ``node``, whose outputs they make under its names."""
        self._replaced[id(node)] = list(nodes)

    def put_first(self, node: NodeProto) -> None:
        """Adds ``node`` to the main graph, after those that were put first before it."""
        self._first.append(node)

    def retire(self, name: str) -> None:
        """Has the input ``name`` go unless something reads it still."""
        self._retired.add(name)

    def constant(self, scope: Scope, about: str, value: np.ndarray[Any, Any]) -> str:
        """The name of a new initializer."""
        name = self.name(about)
        scope.graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    def name(self, about: str) -> str:
        """A name that no tensor has."""
        self._names += 1
        return f"onnxgen/{about}/{self._names}"

    def body(self, path: Sequence[int]) -> list[Scope]:
        """The main scope and those within it on the way of ``path``, see :class:`Site`."""
        scopes = [self.scope]
        for place in path:
            scopes.append(scopes[-1].children[place][2])
        return scopes

    def holds(self, site: Site) -> bool:
        """Whether the tensor of ``site`` is still there."""
        scope = self.body(site.body)[-1]
        made = scope.maker(site.output)
        return made is not None and made[0] is scope

    def settle(self) -> None:
        """Carries the replacements out, drops nodes that nothing reads, looks at the net anew."""
        if not any(entry.domain == MICROSOFT for entry in self.model.opset_import):
            self.model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
        for index, node in enumerate(self._first):
            self.model.graph.node.insert(index, node)
        self._first.clear()
        for scope in reversed(list(self.scope.walk())):  # bodies before what they are in
            self._settle_body(scope.graph)
        self._replaced.clear()
        self.scope = Scope(self.model.graph)
        inputs = self.model.graph.input
        for port in list(inputs):
            if port.name in self._retired and not any(self.scope.uses(port.name)):
                inputs.remove(port)
        self._retired.clear()

    def _settle_body(self, graph: GraphProto) -> None:
        nodes = [new for node in graph.node for new in self._replaced.get(id(node), [node])]
        read = {output.name for output in graph.output}
        kept = []
        for node in reversed(nodes):  # in topological order, so readers come later
            if read.intersection(node.output):
                kept.append(node)
                read.update(reads(node))
        if len(kept) < len(graph.node) or self._replaced:
            copies = [copy_of(node) for node in reversed(kept)]
            del graph.node[:]
            graph.node.extend(copies)


def _resolved(root: Scope, path: Path, real: Path) -> bool:
    """Points external data to where links lead; whether all of it lies beside the graph's file."""
    for scope in root.walk():
        for tensor in scope.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location" and entry.value != real.name:
                    target = (path.parent / entry.value).resolve()
                    if target.parent != real.parent:
                        return False
                    entry.value = target.name
    return True


def copy_of(node: NodeProto) -> NodeProto:
    """A node of its own: those of a graph change and go with it."""
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def reads(node: NodeProto) -> set[str]:
    """The tensors that ``node`` reads, in its bodies too."""
    found = set(node.input)
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            for inner in attribute.g.node:
                found |= reads(inner)
            found |= {output.name for output in attribute.g.output}
    return found
