"""Shapes that exporters compute from other tensors, written down where they need no computing.

A target like ``Concat(Shape(h)[0], -1, 6, 64)`` is ``(0, -1, 6, 64)`` where h and what is reshaped
have the same size on axis 0: four small nodes in each layer and step that say nothing.
"""

from collections.abc import Iterator

import numpy as np
from onnx import NodeProto, helper

from onnxgen.graph.proto import Scope, attributes
from onnxgen.graph.rewrites.editing import Draft, Site

# What leaves the shape of its first input as it is.
_ALIKE = frozenset({
    "LayerNormalization", "SimplifiedLayerNormalization", "Softmax", "Cast", "Identity", "Relu",
    "Gelu", "Erf", "Tanh", "Sigmoid", "Sqrt", "Neg", "DynamicQuantizeLinear",
})  # fmt: skip
_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Pow"})


def write_down(draft: Draft) -> list[Site]:
    """Makes targets of ``Reshape`` constant where they are; where."""
    found = [
        (scope, node, target)
        for scope, node in draft.scope.nodes("Reshape")
        if (target := _target(scope, node)) is not None
    ]
    for scope, node, target in found:
        shape = draft.constant(scope, "shape", np.array(target, np.int64))
        constant = helper.make_node("Reshape", [node.input[0], shape], list(node.output))
        draft.replace(node, [constant])
    return [Site.of(scope, node) for scope, node, _ in found]


def _target(scope: Scope, node: NodeProto) -> list[int] | None:
    """The constant target of a ``Reshape`` that computes it; None if it is one, or is unknown."""
    if attributes(node).get("allowzero") or scope.value(node.input[1]) is not None:
        return None
    parts = elements(scope, node.input[1])
    target: list[int] = []
    own: set[tuple[str, int]] = set()
    for axis, part in enumerate(parts or ()):
        if isinstance(part, int):
            target.append(part)
            continue
        if part is None or part[1] != axis:
            return None
        own = set(_ancestors(scope, node.input[0], axis))
        if not own.intersection(_ancestors(scope, part[0], axis)):
            return None
        target.append(0)
    return target if parts and target.count(-1) <= 1 else None


def elements(scope: Scope, name: str) -> list[int | tuple[str, int] | None] | None:
    """What a shape is made of: numbers, (tensor, axis) for sizes of tensors, None for the rest.

    None where not even the number of elements is known.
    """
    value = scope.value(name)
    if value is not None:
        return [int(item) for item in value.reshape(-1)]
    made = scope.maker(name)
    if made is None or made[1].op_type != "Concat":
        return None
    found: list[int | tuple[str, int] | None] = []
    for part in made[1].input:
        constant = scope.value(part)
        if constant is not None:
            found += [int(item) for item in constant.reshape(-1)]
        else:
            found.append(size_behind(scope, part))
    return found


def size_behind(scope: Scope, name: str) -> tuple[str, int] | None:
    """The (tensor, axis) whose size is the one element of ``name``, seen through views."""
    axis: int | None = None
    while (made := scope.maker(name)) is not None:
        node = made[1]
        if node.op_type in {"Unsqueeze", "Squeeze", "Cast", "Identity", "Reshape"}:
            name = node.input[0]
        elif node.op_type == "Gather" and axis is None:
            index = scope.value(node.input[1])
            if index is None or index.size != 1:
                return None
            axis, name = int(index.reshape(-1)[0]), node.input[0]
        elif node.op_type == "Shape" and axis is not None and not node.attribute:
            return (node.input[0], axis) if axis >= 0 else None
        else:
            return None
    return None


def _ancestors(scope: Scope, name: str, axis: int) -> Iterator[tuple[str, int]]:
    """The tensors before ``name`` that have its size on ``axis``, each with that axis."""
    while True:
        yield name, axis
        made = scope.maker(name)
        if made is None:
            return
        node = made[1]
        if node.op_type in _ALIKE and name == node.output[0]:
            name = node.input[0]
        elif node.op_type == "Transpose":
            perm = attributes(node).get("perm")
            if perm is None:
                return
            name, axis = node.input[0], perm[axis]
        elif node.op_type in {"MatMul", "MatMulInteger"} and _vectors(scope, node, axis):
            name = node.input[0]
        elif node.op_type in _ELEMENTWISE and (other := _broadcast(scope, node)):
            name = other
        else:
            return


def _vectors(scope: Scope, node: NodeProto, axis: int) -> bool:
    """Whether ``node`` multiplies vectors by a matrix, ``axis`` being one that counts vectors."""
    dims = scope.dims(node.input[1])
    return dims is not None and len(dims) == 2 and axis < 2


def _broadcast(scope: Scope, node: NodeProto) -> str | None:
    """The input whose shape an operator's result has, if the other is a number or a vector."""
    for mine, other in ((0, 1), (1, 0)):
        dims = scope.dims(node.input[other])
        if (dims is not None and len(dims) <= 1) or is_number(scope, node.input[other]):
            return str(node.input[mine])
    return None


def is_number(scope: Scope, name: str) -> bool:
    """Whether ``name`` is one number: the step of a quantised tensor, or a product of numbers."""
    made = scope.maker(name)
    if made is None:
        dims = scope.dims(name)
        return dims is not None and int(np.prod(dims)) == 1
    node = made[1]
    if node.op_type == "DynamicQuantizeLinear":
        return bool(name != node.output[0])
    return node.op_type == "Mul" and all(is_number(made[0], side) for side in node.input)
