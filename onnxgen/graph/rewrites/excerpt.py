"""A part of a graph as a model of its own: all that leads to some of its tensors.

Bodies of ``If`` are laid open: what is wanted of a branch is computed as if it were always taken.
"""

from collections.abc import Sequence

from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from onnxgen.graph.rewrites.editing import Draft, Site, reads


def excerpt(draft: Draft, sites: Sequence[Site]) -> ModelProto:
    """The model that gives the tensors of ``sites``, which lie in one body."""
    bodies = [scope.graph for scope in draft.body(sites[0].body)]
    makers = {name: node for body in bodies for node in body.node for name in node.output}
    wanted = [site.output for site in sites]
    nodes, read = _needed(makers, wanted)
    # Shapes follow the values, so what the exporter says of them is not needed.
    graph = helper.make_graph(
        [node for body in bodies for node in body.node if id(node) in nodes],
        "excerpt",
        [port for port in draft.model.graph.input if port.name in read],
        [ValueInfoProto(name=name) for name in wanted],
        [tensor for body in bodies for tensor in body.initializer if tensor.name in read],
    )
    return helper.make_model(
        graph, opset_imports=draft.model.opset_import, ir_version=draft.model.ir_version
    )


def _needed(makers: dict[str, NodeProto], wanted: Sequence[str]) -> tuple[set[int], set[str]]:
    """The ids of the nodes that lead to ``wanted``, and every name that they read."""
    nodes: set[int] = set()
    read: set[str] = set()
    open_names = list(wanted)
    while open_names:
        node = makers.get(open_names.pop())
        if node is not None and id(node) not in nodes:
            nodes.add(id(node))
            fresh = reads(node) - read
            read |= fresh
            open_names += fresh
    return nodes, read
