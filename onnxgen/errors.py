"""Every error that a user of onnxgen can meet.

Each derives from :class:`OnnxgenError` and from the built-in that fits, so a caller may catch
either. A message has three parts: what was found, what was wanted, what to do. Messages never
hold prompts, keys or the content of files.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class OnnxgenError(Exception):
    """Base of all errors here: what was ``found``, what was ``wanted``, what to ``do``."""

    def __init__(self, found: str, wanted: str = "", do: str = "") -> None:
        self.found, self.wanted, self.do = found, wanted, do
        super().__init__(self._message())

    def _message(self) -> str:
        parts = [self.found]
        if self.wanted:
            parts.append(f"wanted: {self.wanted}")
        if self.do:
            parts.append(f"to do: {self.do}")
        return "\n".join(parts)

    def __str__(self) -> str:
        return self._message()


class ModelNotFoundError(OnnxgenError, FileNotFoundError):
    """No model, graph or configuration file where one was named."""


class ModelFileError(OnnxgenError, ValueError):
    """A file of the model is broken, incomplete or not what its name says."""


class UnsupportedModelError(OnnxgenError, ValueError):
    """The graph is sound, but it cannot be run as a generator, or not in the way asked for."""


class HubError(OnnxgenError, OSError):
    """The Hub could not be reached, or it refused."""


class OptionError(OnnxgenError, ValueError):
    """An option is unknown, has a wrong value, or contradicts another one."""

    @classmethod
    def unknown(cls, name: str, known: Iterable[str], where: str) -> "OptionError":
        """The error for an option ``name`` that ``where`` does not have, with the nearest one."""
        known = sorted(known)
        near = get_close_matches(name, known, n=1, cutoff=0.6)
        do = f"did you mean {near[0]!r}?" if near else f"valid options: {', '.join(known)}"
        return cls(f"{where} has no option {name!r}", do=do)


class CapacityError(OnnxgenError, ValueError):
    """A prompt, or a prompt and its answer, is longer than what the graph can position."""


class OutOfMemoryError(OnnxgenError, MemoryError):
    """A request would take more memory than there is, or an allocation failed."""


class TokenizerError(OnnxgenError, ValueError):
    """The tokenizer is missing, broken, or cannot handle the text or ids given."""


class ChatTemplateError(OnnxgenError, ValueError):
    """The chat template is missing, broken, or refused the messages."""


class ImageError(OnnxgenError, ValueError):
    """An image cannot be read, is too large, or has a shape that the model cannot take."""


class InputNotFoundError(OnnxgenError, FileNotFoundError):
    """No audio or image file where one was named."""


class AudioError(OnnxgenError, ValueError):
    """Audio is broken, empty, longer than allowed, or in a form that is not read."""


class LogitsError(OnnxgenError, ArithmeticError):
    """A model gave NaN, or no token was left to choose: names the row and the step."""


class SessionError(OnnxgenError, RuntimeError):
    """ONNX Runtime failed to build or to run a graph."""


class DeviceError(OnnxgenError, RuntimeError):
    """The device asked for is not there, or the graph fell back to another one."""


class CancelledError(OnnxgenError, RuntimeError):
    """A request was cancelled from another thread."""


class MissingPackageError(OnnxgenError, ImportError):
    """A package that the request needs is not installed, or two that exclude each other are."""
