"""Sessions of ONNX Runtime: devices, options, cancelling, and the translation of its errors."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from onnxgen.errors import (
    CancelledError,
    DeviceError,
    MissingPackageError,
    ModelFileError,
    OptionError,
    OutOfMemoryError,
    SessionError,
    UnsupportedModelError,
)
from onnxgen.files.lookup import Table

DEVICES = ("cpu", "cuda")
EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"


def require_onnxruntime() -> Any:
    """The module onnxruntime; MissingPackageError if no build of it is installed, or two are.

    Its telemetry is off from then on, unless somebody turns it on after that.
    """
    names = ("onnxruntime", "onnxruntime-gpu")
    builds = [name for name in names if _installed(name)]
    if len(builds) > 1:
        raise MissingPackageError(
            "both onnxruntime and onnxruntime-gpu are installed; they overwrite each other's files",
            wanted="one of them",
            do="pip uninstall -y onnxruntime onnxruntime-gpu && pip install 'onnxgen[gpu]' "
            "(or 'onnxgen[cpu]')",
        )
    # Official builds since 1.29 tell Microsoft which graphs run and what fails, and begin when they
    # are imported.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingPackageError(
            "ONNX Runtime is not installed"
            if not builds
            else f"{builds[0]} does not load: {error}",
            wanted="onnxruntime-gpu or onnxruntime",
            do="pip install 'onnxgen[gpu]' (Linux x86_64, Windows) or pip install 'onnxgen[cpu]'",
        ) from error
    _quieten()
    return onnxruntime


@cache
def _quieten() -> None:
    """Turns telemetry off where somebody else imported onnxruntime before."""
    import onnxruntime

    onnxruntime.disable_telemetry_events()


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


class Cancel:
    """A switch that another thread may throw: what runs with it ends at its next node.

    Give one to a request (``generate(..., cancel=switch)``), or to several that are to end
    together. Once thrown it stays so: whatever is asked for with it ends in CancelledError.
    """

    def __init__(self) -> None:
        self._options: dict[bool, Any] = {}  # by whether sessions shrink
        self._lock = threading.RLock()  # a signal's handler may throw it where it was taken
        self.cancelled = False

    def cancel(self) -> None:
        """From any thread or signal handler: ends the runs in progress, and lets no more start."""
        with self._lock:
            self.cancelled = True
            for options in self._options.values():
                options.terminate = True

    def options(self, shrinks: bool = False) -> Any:
        """The run options that this switch controls, for sessions that shrink or do not."""
        if self.cancelled:
            raise CancelledError("the request was cancelled")
        if (known := self._options.get(shrinks)) is not None:
            return known
        with self._lock:
            if shrinks not in self._options:
                from onnxruntime import RunOptions  # what runs was loaded: it is there

                options = RunOptions()
                options.log_severity_level = 4  # what fails is raised, not logged
                # Without this entry each run costs a caught C++ exception, a quarter of a
                # millisecond; -1 means that no graph is to be captured.
                options.add_run_config_entry("gpu_graph_id", "-1")
                if shrinks:
                    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
                self._options[shrinks] = options
                if self.cancelled:  # meanwhile: it ends at its first node
                    options.terminate = True
            return self._options[shrinks]


@dataclass(frozen=True, slots=True)
class Engine:
    """How the sessions of a model run; see :func:`onnxgen.load` for the options.

    ``alone``: no other session of the model works between two runs of one. Threads that wait for
    work by turning would keep the cores from it.
    """

    device: str = "cpu"
    threads: int | None = None
    selection: str | None = None
    rewrites: bool = True
    rounds: bool = False
    alone: bool = True
    memory_limit: float | None = None


PLAIN = Engine()


@dataclass(frozen=True, slots=True)
class Model:
    """A serialized graph whose external data lies in ``folder``; ``name`` is for messages.

    ``config``: entries for the options of its session. ``about``: what was rewritten. ``table``:
    where the embeddings are that it takes, if it does because it was rewritten.
    """

    name: str
    proto: bytes
    folder: Path
    config: Mapping[str, str]
    about: str = ""
    table: Table | None = None


class Session:
    """One graph, ready to run as ``engine`` says.

    Activations live in an arena: were each of them new pages of the system, an encoder would take a
    third longer, and what lies between those that were given back one by one would add up. On the
    CPU it is one for all sessions, which take turns: a decoder uses what its encoder has left.
    """

    def __init__(self, source: Path | Model | bytes, engine: Engine = PLAIN) -> None:
        ort = require_onnxruntime()
        self.device, self.device_id = parse_device(engine.device)
        self.name = "a helper graph" if isinstance(source, bytes) else source.name
        providers = _providers(ort, self.device, self.device_id)
        options = _options(ort, engine.threads, engine.alone)
        if self.device == "cpu":
            # Weights stay: in the arena they would keep its blocks from being given back.
            options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
            _share_arena()
            options.add_session_config_entry("session.use_env_allocators", "1")
        if isinstance(source, Model):
            options.add_session_config_entry(EXTERNAL_FOLDER, os.fspath(source.folder))
            for key, value in source.config.items():
                options.add_session_config_entry(key, value)
        given: str | bytes = b""
        if isinstance(source, Path):
            given = os.fspath(source)
        else:
            given = source.proto if isinstance(source, Model) else source
        _spare_callers_arithmetic()
        with translated(f"{self.name} cannot be loaded", loading=True):
            self.ort = ort.InferenceSession(given, options, providers)
        self.ort.disable_fallback()  # a failing provider must not turn into a slow CPU run
        self._check_provider(providers)
        self.inputs = [port.name for port in self.ort.get_inputs()]
        self.outputs = [port.name for port in self.ort.get_outputs()]

    def _check_provider(self, providers: list[Any]) -> None:
        wanted = providers[0] if isinstance(providers[0], str) else providers[0][0]
        found = self.ort.get_providers()
        if found[0] != wanted:
            raise DeviceError(
                f"{self.name} was to run on {self.device}, but fell back to {found[0]}",
                wanted=wanted,
                do="install the libraries it needs: pip install 'onnxruntime-gpu[cuda,cudnn]', "
                "or ask for device='cpu'",
            )

    def run(self, binding: Any, cancel: Cancel, large: bool = False) -> None:
        """Runs once on what ``binding`` (an IOBinding) holds.

        ``large``: the arena is to give back at the end what it holds, which would be kept for good.
        Where activations are small that costs more than they do.
        """
        options = cancel.options(large and self.device == "cpu")
        try:
            self.ort.run_with_iobinding(binding, options)
        except Exception as error:
            if cancel.cancelled:
                raise CancelledError("the request was cancelled") from error
            if is_out_of_memory(error):
                raise OutOfMemoryError(
                    f"{self.name} ran out of memory while running: {reason_of(error)}",
                    do="shorten the prompt, give fewer at once, or set prefill_chunk_size",
                ) from error
            raise SessionError(
                f"{self.name} failed while running: {reason_of(error)}",
                do="if a node is named, the export may be defective; try another dtype or exporter",
            ) from error


@cache
def _share_arena() -> None:
    """Makes the arena that sessions share. A process has one; the last made serves from then on.

    Sessions that are there keep theirs. Where a runtime refuses a second one, the first will do.
    """
    ort = require_onnxruntime()
    place = ort.OrtMemoryInfo(
        "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    with suppress(Exception):  # ONNX Runtime's own have no common base
        ort.create_and_register_allocator(place, None)


@cache
def _spare_callers_arithmetic() -> None:
    """Makes a session that leaves denormal numbers alone.

    The first session of a process decides how the thread that makes it computes from then on, and
    that thread is the caller's. The threads of later sessions flush denormals all the same.
    """
    from onnx import helper

    value = helper.make_tensor_value_info("x", 1, [1])
    node = helper.make_node("Identity", ["x"], ["y"])
    made = helper.make_tensor_value_info("y", 1, [1])
    graph = helper.make_graph([node], "first", [value], [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    require_onnxruntime().InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )


def parse_device(device: str) -> tuple[str, int]:
    """``cuda:1`` -> ("cuda", 1); OptionError for a device that onnxgen does not know."""
    kind, _, index = device.partition(":")
    if kind not in DEVICES or (index and not index.isdigit()):
        raise OptionError(
            f"unknown device {device!r}", wanted="cpu, cuda or cuda:N", do="pass one of these"
        )
    return kind, int(index or 0)


def _providers(ort: Any, device: str, index: int) -> list[Any]:
    if device == "cpu":
        return ["CPUExecutionProvider"]
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise DeviceError(
            "this build of ONNX Runtime has no CUDA provider",
            wanted="onnxruntime-gpu for device='cuda'",
            do="pip uninstall -y onnxruntime && pip install 'onnxgen[gpu]', "
            "or ask for device='cpu'",
        )
    ort.preload_dlls()  # finds the CUDA libraries that pip installed
    # Growing caches ask for ever new sizes; powers of two would keep twice of each.
    cuda = {"device_id": index, "arena_extend_strategy": "kSameAsRequested"}
    return [("CUDAExecutionProvider", cuda), "CPUExecutionProvider"]


def _options(ort: Any, threads: int | None, alone: bool) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    # Plans are kept per shape, and generation meets a new one in each step.
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    if threads:
        options.intra_op_num_threads = threads
    if not alone:
        options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


@contextmanager
def translated(found: str, *, loading: bool = False) -> Iterator[None]:
    """Turns what ONNX Runtime raises into our errors; its own classes have no common base."""
    try:
        yield
    except Exception as error:
        reason = reason_of(error)
        kind = type(error).__name__
        if is_out_of_memory(error):
            raise OutOfMemoryError(
                f"{found}: the memory was not enough ({reason})",
                do="free some, or take a smaller dtype of the model",
            ) from error
        if not loading:
            raise SessionError(f"{found}: {reason}") from error
        if kind == "NotImplemented":
            raise UnsupportedModelError(
                f"{found}: ONNX Runtime has no kernel for one of its nodes ({reason})",
                do="try another dtype of the model or another device",
            ) from error
        raise ModelFileError(
            f"{found}: {reason}",
            wanted="a complete and valid ONNX model with its data files beside it",
            do="download or export it again",
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, in ONNX Runtime or in Python."""
    text = str(error)
    return isinstance(error, MemoryError) or "bad_alloc" in text or "Failed to allocate mem" in text


def reason_of(error: BaseException) -> str:
    """ONNX Runtime's message without its prefix of codes; it may not be valid text."""
    if isinstance(error, UnicodeDecodeError):
        return "the model is corrupt"
    text = str(error).replace("\n", " ").strip()
    _, mark, rest = text.partition(" : ")
    while mark and rest.split(" : ", 1)[0].isupper():
        _, mark, rest = rest.partition(" : ")
    return (rest or text)[:500]
