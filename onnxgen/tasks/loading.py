"""``load``: from a model's name to the object of its task."""

import os
from collections.abc import Mapping

from onnxgen.errors import OptionError, UnsupportedModelError
from onnxgen.files import ModelFiles, resolve
from onnxgen.tasks.text_generation import TextGeneration

TASKS = ("text-generation",)
SELECTIONS = ("onnx", "numpy")


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
) -> TextGeneration:
    """Loads a model for generation.

    Args:
        model: a local folder, an ``.onnx`` file, or a Hub repository ``owner/name``, each with an
            optional ``:dtype`` (``fp32``, ``fp16``, ``q8``, ``q4``, ``q4f16``, …).
        task: ``text-generation``; None lets the sessions of the model decide.
        dtype: like the suffix of ``model``, or a map from file base names to dtypes.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        threads: threads within an operator; None leaves it to ONNX Runtime (all cores).
        selection: ``onnx`` chooses tokens by a graph where the logits are, as far as a request's
            options allow; ``numpy`` on the host. None: ``onnx`` on cuda, ``numpy`` on cpu.
        revision, token, offline: for Hub repositories.

    Raises:
        OnnxgenError: with what was found, what was wanted and what to do.
    """
    if task is not None and task not in TASKS:
        raise OptionError.unknown(task, TASKS, "task")
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise OptionError(f"threads is {threads!r}", wanted="a whole number of 1 or more")
    if selection not in (None, *SELECTIONS):
        raise OptionError(f"selection is {selection!r}", wanted=" or ".join(SELECTIONS))
    files = resolve(model, dtype=dtype, revision=revision, token=token, offline=offline)
    check_sessions(files)
    return TextGeneration(files, device=device, threads=threads, selection=selection)


def check_sessions(files: ModelFiles) -> None:
    """UnsupportedModelError for models that no task of this version runs."""
    if "encoder" in files.graphs:
        raise UnsupportedModelError(
            f"{files.source} is an encoder-decoder",
            wanted="a decoder-only language model",
            do="this version runs text generation only",
        )
