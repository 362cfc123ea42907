"""``load``: from a model's name to the object of its task."""

import os
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, Literal, TypedDict, Unpack, overload

from onnxgen.errors import OptionError, UnsupportedModelError
from onnxgen.files import ModelFiles, resolve
from onnxgen.graph.encoder import EncoderGraph
from onnxgen.runtime.memory import enough
from onnxgen.runtime.pages import moved_to_huge
from onnxgen.runtime.session import Engine
from onnxgen.tasks.image_prompt_to_text import ImagePromptToText
from onnxgen.tasks.image_text_to_text import ImageTextToText
from onnxgen.tasks.image_to_text import ImageToText
from onnxgen.tasks.speech_to_text import SpeechToText
from onnxgen.tasks.text_generation import TextGeneration
from onnxgen.tasks.text_to_text import TextToText

Task = (
    TextGeneration | TextToText | ImageToText | ImageTextToText | ImagePromptToText | SpeechToText
)
TASKS: dict[str, type[Task]] = {
    "text-generation": TextGeneration,
    "text-to-text": TextToText,
    "image-to-text": ImageToText,
    "image-text-to-text": ImageTextToText,
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
    rewrites: bool
    huge_pages: bool
    accuracy_level: int | None
    memory_limit: float | None
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
    rewrites: bool = True,
    huge_pages: bool = True,
    accuracy_level: int | None = None,
    memory_limit: float | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    offline: bool | None = None,
) -> Task:
    """Loads a model for generation.

    Args:
        model: a local folder, an ``.onnx`` file, or a Hub repository ``owner/name``, each with an
            optional ``:dtype`` (``fp32``, ``fp16``, ``q8``, ``q4``, ``q4f16``, …).
        task: ``text-generation``, ``text-to-text``, ``image-to-text``, ``image-text-to-text`` or
            ``speech-to-text``, also under the names of transformers' pipelines; None lets the
            model's sessions decide.
        dtype: like the suffix of ``model``, or a map from file base names to dtypes.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        threads: threads within an operator; None leaves it to ONNX Runtime (all cores).
        selection: ``onnx`` chooses tokens by a graph where the logits are, as far as a request's
            options allow; ``numpy`` on the host. None: ``onnx`` on cuda, ``numpy`` on cpu.
        rewrites: graphs may be rewritten in memory to run faster (:mod:`onnxgen.graph.rewrites`).
        huge_pages: on Linux, weights are moved to pages of 2 MB once they are there: loading takes
            longer, each token less (:mod:`onnxgen.runtime.pages`).
        accuracy_level: 4 has products with weights of 4 or 8 bits round their activations to 8
            bits: faster, and of two tokens that are nearly as likely the other may come.
        memory_limit: bytes that the caches and logits of one request may take at most, as far as
            the graph tells; one that might take more ends in OutOfMemoryError before it begins.
            None: what the system has free by then. ``math.inf``: no bound.
        revision, token, offline: for Hub repositories.

    Raises:
        OnnxgenError: with what was found, what was wanted and what to do.
    """
    asked = NAMES.get(task or "", task)
    if asked is not None and asked not in TASKS:
        raise OptionError.unknown(asked, {*TASKS, *NAMES}, "task")
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise OptionError(f"threads is {threads!r}", wanted="a whole number of 1 or more")
    if accuracy_level not in (None, 4) or (accuracy_level and not rewrites):
        raise OptionError(
            f"accuracy_level is {accuracy_level!r}"
            + ("" if rewrites else ", and nothing may be rewritten"),
            wanted="4, or None for what the export says",
        )
    if memory_limit is not None and not _is_positive(memory_limit):
        raise OptionError(f"memory_limit is {memory_limit!r}", wanted="bytes, above 0")
    if selection not in (None, *SELECTIONS):
        raise OptionError(f"selection is {selection!r}", wanted=" or ".join(SELECTIONS))
    files = resolve(model, dtype=dtype, revision=revision, token=token, offline=offline)
    found = task_of(files)
    if asked not in (None, found):
        raise UnsupportedModelError(
            f"the sessions of {files.source} are those of {found}",
            wanted=f"a model for {asked}",
            do="download the repository with vision_encoder.onnx"
            if asked == "image-text-to-text" and found == "text-generation"
            else f"load it with task={found!r}, or without one",
        )
    task_class = TASKS[found]
    if task_class is ImageTextToText and "encoder" in files.graphs:
        task_class = ImagePromptToText
    engine = Engine(
        device, threads, selection, rewrites, accuracy_level == 4, memory_limit=memory_limit
    )
    moving = moved_to_huge() if huge_pages and device == "cpu" else nullcontext()
    with enough("load the model"), moving:
        return task_class(files, engine)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def task_of(files: ModelFiles) -> str:
    """The task that a model's sessions are made for; what the encoder takes tells most."""
    if {"vision_encoder", "embed_tokens"} <= files.graphs.keys():
        return "image-text-to-text"
    path = files.graphs.get("encoder")
    if path is None:
        return "text-generation"
    encoder = EncoderGraph.load(path)
    if encoder.takes_ids:
        return "text-to-text"
    if len(encoder.main.shape) == 4:
        return "image-to-text"
    return "speech-to-text"
