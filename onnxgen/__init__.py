"""Generate with exported ONNX models: the graph says how its cache works.

>>> import onnxgen
>>> model = onnxgen.load("path/or/owner/name")
>>> model.generate("The capital of France is", max_new_tokens=8).text

Names are imported when first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxgen.errors import OnnxgenError
    from onnxgen.generation.chunks import chunked
    from onnxgen.generation.config import GenerationConfig
    from onnxgen.generation.decode_loop import decode_loop
    from onnxgen.generation.results import Generation, Piece
    from onnxgen.runtime.session import Cancel
    from onnxgen.tasks.cache import Cache
    from onnxgen.tasks.inspection import inspect
    from onnxgen.tasks.loading import load
    from onnxgen.tasks.text_generation import TextGeneration

__version__ = "0.1.0"

__all__ = [
    "Cache",
    "Cancel",
    "Generation",
    "GenerationConfig",
    "OnnxgenError",
    "Piece",
    "TextGeneration",
    "chunked",
    "decode_loop",
    "inspect",
    "load",
]

_HOMES = {
    "Cache": "tasks.cache",
    "Cancel": "runtime.session",
    "Generation": "generation.results",
    "GenerationConfig": "generation.config",
    "OnnxgenError": "errors",
    "Piece": "generation.results",
    "TextGeneration": "tasks.text_generation",
    "chunked": "generation.chunks",
    "decode_loop": "generation.decode_loop",
    "inspect": "tasks.inspection",
    "load": "tasks.loading",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'onnxgen' has no attribute {name!r}")
    return getattr(import_module(f"onnxgen.{_HOMES[name]}"), name)
