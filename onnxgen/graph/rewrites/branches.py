"""What both branches of an ``If`` end with is done once, behind it.

Exports that merge the first step of a decoder with the later ones have a branch for each, and both
end with the head. ONNX Runtime packs the weights of each product by itself, so a table of the
vocabulary is held once more for every branch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from onnx import NodeProto, ValueInfoProto, helper

from onnxgen.graph.proto import Scope, attributes
from onnxgen.graph.rewrites.editing import Draft, Site, copy_of

HEADS = frozenset({"MatMul", "MatMulNBits", "Gemm"})
# What may follow the head: casts, scaling, soft caps.
AFTER = frozenset({"Cast", "Identity", "Mul", "Div", "Tanh", "Add"})


@dataclass(frozen=True, slots=True)
class _Link:
    """A node that takes one tensor of its branch, and else what is there outside of that.

    ``place``: the index of the one among its inputs. ``turns``: what transposes others for it, by
    the names that they have then.
    """

    node: NodeProto
    place: int
    turns: dict[str, NodeProto]

    def does(self) -> tuple[object, ...]:
        """What it does with that tensor: equal for nodes of two branches that are one."""
        turned = {name: (node.input[0], attributes(node)) for name, node in self.turns.items()}
        others = [turned.get(n, n) for i, n in enumerate(self.node.input) if i != self.place]
        return self.node.op_type, attributes(self.node), self.place, others

    def source(self, branch: Scope) -> ValueInfoProto | None:
        """What a product takes of its ``branch``, as an output of that; None if of unknown type."""
        place = 2 if self.node.op_type == "MatMulNBits" else 1 - self.place
        weights = self.node.input[place]  # or their scales
        weights = self.turns[weights].input[0] if weights in self.turns else weights
        made = branch.maker(weights)
        if made is not None and made[1].op_type == "DequantizeLinear":
            weights = made[1].input[1]
        tensor = branch.tensor(weights)
        if tensor is None:
            return None
        return helper.make_tensor_value_info(self.node.input[self.place], tensor.data_type, None)


def join_ends(draft: Draft) -> list[Site]:
    """Moves the heads that all branches of an ``If`` end with behind it; where."""
    scope, sites = draft.scope, []
    if scope.children and draft.half:
        return draft.leave("half precision rounds where a branch ends")
    owners = {id(node): node for node, _, _ in scope.children if node.op_type == "If"}
    for owner in owners.values():
        branches = [child for node, _, child in scope.children if node is owner]
        behind: list[NodeProto] = []
        for index, output in enumerate(owner.output):
            chains = [_chain(branch, branch.outputs[index]) for branch in branches]
            told = [[link.does() for link in chain] for chain in chains]
            if not chains[0] or told.count(told[0]) < len(told):
                continue
            for branch, (head, *_) in zip(branches, chains, strict=True):
                if (source := head.source(branch)) is not None:
                    branch.graph.output[index].CopyFrom(source)
            owner.output[index] = draft.name("hidden")
            behind += _moved(draft, chains[0], owner.output[index], output)
            sites.append(Site((), output))
        if behind:
            draft.replace(owner, [owner, *behind])
    return sites


def _chain(branch: Scope, output: str) -> list[_Link]:
    """The nodes from the head of ``branch`` to its ``output``; none if that is not made so."""
    chain: list[_Link] = []
    name = output
    while (link := _link(branch, name)) is not None:
        chain.insert(0, link)
        name = link.node.input[link.place]
        if any(given.name == name for given in branch.graph.output):
            break
        if link.node.op_type in HEADS:
            return chain if link.place < 2 and link.source(branch) is not None else []
        if len(list(branch.uses(name))) > 1:
            break
    return []


def _link(branch: Scope, name: str) -> _Link | None:
    """The node that makes ``name``, if it is one that could be moved."""
    made = branch.maker(name)
    if made is None or made[0] is not branch or made[1].op_type not in HEADS | AFTER:
        return None
    turns, computed = {}, []
    for place, read in enumerate(made[1].input):
        here = branch.maker(read)
        turn = here[1] if here and here[0] is branch and here[1].op_type == "Transpose" else None
        if turn is not None and not _is_own(branch, turn.input[0]):
            turns[read] = turn
        elif _is_own(branch, read):
            computed.append(place)
    return _Link(made[1], computed[0], turns) if len(computed) == 1 else None


def _is_own(branch: Scope, name: str) -> bool:
    made = branch.maker(name)
    held = any(tensor.name == name for tensor in branch.graph.initializer)
    return held or (made is not None and made[0] is branch)


def _moved(draft: Draft, chain: Sequence[_Link], hidden: str, output: str) -> list[NodeProto]:
    """The nodes of ``chain`` for the main graph, from ``hidden`` to ``output``."""
    nodes: list[NodeProto] = []
    for link in chain:
        names = {name: draft.name("turned") for name in link.turns}
        nodes += [_copy(turn, turn.input, names[name]) for name, turn in link.turns.items()]
        inputs = [names.get(name, name) for name in link.node.input]
        inputs[link.place] = hidden
        hidden = output if link is chain[-1] else draft.name("hidden")
        nodes.append(_copy(link.node, inputs, hidden))
    return nodes


def _copy(node: NodeProto, inputs: Sequence[str], output: str) -> NodeProto:
    copy = copy_of(node)
    copy.input[:], copy.output[:] = list(inputs), [output]
    return copy
