"""``load``: from a model's name to the object of its task."""

import os
from collections.abc import Mapping
from typing import Any, Literal, TypedDict, Unpack, overload

from onnxgen.errors import OptionError, UnsupportedModelError
from onnxgen.files import ModelFiles, resolve
from onnxgen.graph.encoder import EncoderGraph
from onnxgen.tasks.image_to_text import ImageToText
from onnxgen.tasks.speech_to_text import SpeechToText
from onnxgen.tasks.text_generation import TextGeneration
from onnxgen.tasks.text_to_text import TextToText

Task = TextGeneration | TextToText | ImageToText | SpeechToText
TASKS: dict[str, type[Task]] = {
    "text-generation": TextGeneration,
    "text-to-text": TextToText,
    "image-to-text": ImageToText,
    "speech-to-text": SpeechToText,
}
# What transformers' pipelines call them.
NAMES = {
    "text2text-generation": "text-to-text",
    "summarization": "text-to-text",
    "translation": "text-to-text",
    "document-question-answering": "image-to-text",
    "automatic-speech-recognition": "speech-to-text",
}
SELECTIONS = ("onnx", "numpy")


class Options(TypedDict, total=False):
    """What :func:`load` takes beside the model and its task."""

    dtype: str | Mapping[str, str] | None
    device: str
    threads: int | None
    selection: str | None
    revision: str | None
    token: str | bool | None
    offline: bool | None


@overload
def load(
    model: str | os.PathLike[str], *, task: Literal["text-generation"], **options: Unpack[Options]
) -> TextGeneration: ...
@overload
def load(
    model: str | os.PathLike[str],
    *,
    task: Literal["text-to-text", "text2text-generation", "summarization", "translation"],
    **options: Unpack[Options],
) -> TextToText: ...
@overload
def load(
    model: str | os.PathLike[str],
    *,
    task: Literal["image-to-text", "document-question-answering"],
    **options: Unpack[Options],
) -> ImageToText: ...
@overload
def load(
    model: str | os.PathLike[str], *, task: str | None = None, **options: Unpack[Options]
) -> Any: ...
def load(
    model: str | os.PathLike[str],
    *,
    task: str | None = None,
    dtype: str | Mapping[str, str] | None = None,
    device: str = "cpu",
    threads: int | None = None,
    selection: str | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    offline: bool | None = None,
) -> Task:
    """Loads a model for generation.

    Args:
        model: a local folder, an ``.onnx`` file, or a Hub repository ``owner/name``, each with an
            optional ``:dtype`` (``fp32``, ``fp16``, ``q8``, ``q4``, ``q4f16``, …).
        task: ``text-generation``, ``text-to-text``, ``image-to-text`` or ``speech-to-text``, also
            under the names of transformers' pipelines; None lets the model's sessions decide.
        dtype: like the suffix of ``model``, or a map from file base names to dtypes.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        threads: threads within an operator; None leaves it to ONNX Runtime (all cores).
        selection: ``onnx`` chooses tokens by a graph where the logits are, as far as a request's
            options allow; ``numpy`` on the host. None: ``onnx`` on cuda, ``numpy`` on cpu.
        revision, token, offline: for Hub repositories.

    Raises:
        OnnxgenError: with what was found, what was wanted and what to do.
    """
    asked = NAMES.get(task or "", task)
    if asked is not None and asked not in TASKS:
        raise OptionError.unknown(asked, {*TASKS, *NAMES}, "task")
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise OptionError(f"threads is {threads!r}", wanted="a whole number of 1 or more")
    if selection not in (None, *SELECTIONS):
        raise OptionError(f"selection is {selection!r}", wanted=" or ".join(SELECTIONS))
    files = resolve(model, dtype=dtype, revision=revision, token=token, offline=offline)
    found = task_of(files)
    if asked not in (None, found):
        raise UnsupportedModelError(
            f"the sessions of {files.source} are those of {found}",
            wanted=f"a model for {asked}",
            do=f"load it with task={found!r}, or without one",
        )
    return TASKS[found](files, device=device, threads=threads, selection=selection)


def task_of(files: ModelFiles) -> str:
    """The task that a model's sessions are made for; what the encoder takes tells most."""
    path = files.graphs.get("encoder")
    if path is None:
        return "text-generation"
    encoder = EncoderGraph.load(path)
    if encoder.takes_ids:
        return "text-to-text"
    if len(encoder.main.shape) == 4:
        return "image-to-text"
    return "speech-to-text"
