"""Which keys a mask shows to whom, found by running what makes it.

Exporters write one and the same mask in many ways, so its operators run on their own, for a few
sizes, and its values are judged: a key is shown to the queries at its place and behind, padding to
none, and in a window to so many queries and no more.

Letters: B batch, S new tokens, P past, T = P+S.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from onnxgen.graph.lengths import sources
from onnxgen.graph.proto import Scope
from onnxgen.graph.rewrites.attention import made_here
from onnxgen.graph.rewrites.editing import Draft, UnfitError
from onnxgen.graph.rewrites.evaluating import Part

Array = NDArray[Any]
Run = Callable[[Array, int], Array]  # a mask's values for valid keys (B,T) and S new tokens

HIDDEN = -1e4  # what is added to the score of a hidden key is this at most
FAR = 64  # a window may be so long where no number of the mask's is larger
MOST = 1 << 17  # larger numbers are no windows, but what stands for none, or ends of slices
FEW = 16  # a constant of more elements is a table of places
MORE = "the mask shows other keys than causality, padding and a window do"
ALONE = "the mask does not run alone"


def stripped(scope: Scope, bias: str) -> str:
    """The mask that layers share behind ``bias``: before it is cut to the length of the keys, and
    made numbers, whichever of that each layer does."""
    chosen = made_here(scope, bias, "Where")
    if chosen is not None:
        shown, hidden = (numbers_of(scope, value) for value in chosen.input[1:])
        if shown == [0] and len(hidden) == 1 and hidden[0] <= HIDDEN:
            bias = chosen.input[0]
    cut = made_here(scope, bias, "Slice")
    if cut is None or len(cut.input) < 4:
        return bias
    starts, axes = (numbers_of(scope, cut.input[index]) for index in (1, 3))
    return cut.input[0] if starts == [0] and axes in ([3], [-1]) else bias


def numbers_of(scope: Scope, name: str) -> list[float]:
    """The elements of a small constant; none for what is computed or large."""
    value = scope.value(name)
    return [] if value is None else [float(number) for number in value.ravel()]


def padding_of(scope: Scope, mask: str) -> str:
    """The input (B,T) whose values ``mask`` takes in; UnfitError if it is not the only one."""
    values = {name for how, name in sources(scope, mask) if how == "value"}
    if len(values) != 1 or len(scope.input_dims(min(values)) or ()) != 2:
        raise UnfitError("the mask comes from other inputs than a mask of padding")
    return values.pop()


def window_of(draft: Draft, mask: str, padding: str) -> int | None:
    """How many keys ``mask`` shows at most, a query's own among them; None for all before it.

    UnfitError if it hides more than that, padding, and what comes later.
    """
    constants = _constants(draft.scope, mask)
    try:
        run = Part(draft, mask, padding, constants).run
    except Exception as error:  # an operator that is not known here, a type that NumPy has not
        raise UnfitError(ALONE) from error
    far = np.ones((1, _far(draft.scope, constants)), np.int64)
    count = int(_shown(run, far, 1).sum())
    window = None if count == far.size else count
    left, right = np.ones((2, 2, 7), np.int64)
    left[1, :2] = right[1, -2:] = 0
    cases = [(far, 1), (left, 7), (right, 7), (np.ones((1, 8), np.int64), 3)]
    if window:
        cases.append((np.ones((1, window + 4), np.int64), 4))
    for valid, new in cases:
        real = valid[:, -new:] > 0  # (B,S): what padding sees does not matter
        differ = _shown(run, valid, new) != _wanted(valid, new, window)
        if differ[real].any():
            raise UnfitError(MORE)
    return window


def _wanted(valid: Array, new: int, window: int | None) -> Array:
    """What a mask of this ``window`` shows (B,S,T) of keys that are ``valid`` (B,T)."""
    total = valid.shape[1]
    distance = np.arange(total - new, total)[:, None] - np.arange(total)  # (S,T)
    near = (distance >= 0) & (distance < (window or total))
    shown: Array = near & (valid[:, None] > 0)
    return shown


def _shown(run: Run, valid: Array, new: int) -> Array:
    """What the mask shows (B,S,T) of ``valid`` (B,T) to its last ``new`` tokens."""
    rows, total = valid.shape
    try:
        values = run(valid, new)
    except Exception as error:  # whatever an operator trips over
        raise UnfitError(ALONE) from error
    shown = values if values.dtype == bool else values == 0
    if values.dtype != bool and (values[~shown] > HIDDEN).any():
        raise UnfitError("what is added to the scores is more than a mask")
    fits = shown.ndim == 4 and shown.shape[0] in (1, rows) and shown.shape[1] == 1
    if not fits or shown.shape[2] not in (1, new) or shown.shape[3] < total:
        raise UnfitError("the mask is not one of keys by query for all heads")
    return np.broadcast_to(shown[:, 0, :, :total], (rows, new, total))


def _constants(scope: Scope, mask: str) -> dict[str, TensorProto]:
    """The constants whose values, not only shapes, are in ``mask``."""
    found: dict[str, TensorProto] = {}
    stack, seen = [mask], set()
    while stack:
        name = stack.pop()
        if name in seen:
            continue
        seen.add(name)
        tensor, made = scope.tensor(name), scope.maker(name)
        if tensor is not None:
            found[name] = tensor
        elif made is not None and made[1].op_type not in {"Shape", "Size"}:
            stack += made[1].input
    return found


def _far(scope: Scope, constants: dict[str, TensorProto]) -> int:
    """A length (T) beyond each window that a mask of these may have.

    A number says how long it is, or a table of all places shows it, beyond which there is nothing.
    """
    numbers: list[int] = [FAR]
    places: list[int] = []
    for name, tensor in constants.items():
        if prod(tensor.dims) > FEW:
            places += [size for size in tensor.dims if size >= FAR]
        else:
            numbers += [
                int(abs(number)) for number in numbers_of(scope, name) if abs(number) < MOST
            ]
    return min(places or [max(numbers) + 2])
