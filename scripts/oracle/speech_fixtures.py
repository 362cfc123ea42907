"""The folders of fixtures/models with speech models: checkpoint, export and cases of each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import speech_cases as cases
from . import speech_exporters as exporters
from .speech_cases import Case
from .speech_exporters import CachePosition, CrossAttentions, Unmasked
from .speech_tokens import Whisper

#: files for the first step of a decoder and for the later ones
PAIR, MERGED = exporters.PAIR, (exporters.MERGED, exporters.MERGED)


@dataclass(frozen=True)
class Fixture:
    """One folder.

    `decoder`: the files for its first step and for the later ones; `words`: whose tokenizer goes
    into the folder, if not the checkpoint's.
    """

    name: str
    family: str
    about: str
    export: Callable[[Path, Path], None]
    asked: list[Case]
    decoder: tuple[str, str] = MERGED
    files: dict[str, str] = field(default_factory=lambda: {"fp32": exporters.MERGED})
    exporter: str = "optimum-onnx"
    words: Whisper | None = None


def plainly(*drop: str) -> Callable[[Path, Path], None]:
    return lambda checkpoint, out: exporters.export(checkpoint, out, drop)


def as_kind(kind: type) -> Callable[[Path, Path], None]:
    return lambda checkpoint, out: exporters.export_as(kind, checkpoint, out)


ALL = [
    Fixture(
        "whisper", "whisper",
        "multilingual, merged decoder, timestamps in tokenizer.json",
        plainly(*PAIR), cases.CORE + cases.MORE + cases.LANGUAGE, words=Whisper(in_file=True),
    ),
    Fixture(
        "whisper-timestamped", "whisper",
        "the same with outputs `cross_attentions.N`, from which word times come",
        as_kind(CrossAttentions), cases.CORE + cases.TIMED,
        exporter="optimum-onnx, own outputs",
    ),
    Fixture(
        "whisper-cache-position", "whisper", "the same with an input `cache_position` (S,)",
        as_kind(CachePosition), cases.CORE, exporter="optimum-onnx, own inputs",
    ),
    Fixture(
        "whisper-en", "whisper-en",
        "English only: no languages, no tasks; un-merged pair; pieces of characters are heard",
        plainly(exporters.MERGED), cases.CORE + cases.MORE, PAIR, {"fp32": PAIR[0]},
    ),
    Fixture(
        "moonshine", "moonshine", "waveforms into the encoder; masks on both sides",
        plainly(*PAIR), cases.MOONSHINE,
    ),
    Fixture(
        "moonshine-unmasked", "moonshine", "the same without masks, as transformers.js has it",
        as_kind(Unmasked), cases.MOONSHINE, exporter="optimum-onnx, own inputs",
    ),
]  # fmt: skip


def split(names: list[str]) -> tuple[list[Fixture], list[str]]:
    """The fixtures of the given folder or family names, all without any, and the other names."""
    chosen = [f for f in ALL if not names or f.name in names or f.family in names]
    known = {name for fixture in ALL for name in (fixture.name, fixture.family)}
    return chosen, [name for name in names if name not in known]
