"""The folders of fixtures/models with speech models: checkpoint, export and cases of each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import speech_cases as cases
from . import speech_exporters as exporters
from .speech_cases import Case
from .speech_exporters import CachePosition, CrossAttentions, Unmasked

#: files for the first step of a decoder and for the later ones
PAIR, MERGED = exporters.PAIR, (exporters.MERGED, exporters.MERGED)


@dataclass(frozen=True)
class Fixture:
    """One folder. `decoders` are the ways to run its decoder: first step, later ones."""

    name: str
    family: str
    about: str
    export: Callable[[Path, Path], None]
    asked: list[Case]
    decoders: tuple[tuple[str, str], ...] = (MERGED,)
    files: dict[str, str] = field(default_factory=lambda: {"fp32": exporters.MERGED})
    exporter: str = "optimum-onnx"


def plainly(*drop: str) -> Callable[[Path, Path], None]:
    return lambda checkpoint, out: exporters.export(checkpoint, out, drop)


def as_kind(kind: type) -> Callable[[Path, Path], None]:
    return lambda checkpoint, out: exporters.export_as(kind, checkpoint, out)


ALL = [
    Fixture(
        "whisper", "whisper",
        "multilingual, merged decoder; every case of `speech_cases.py` but word times",
        plainly(*PAIR), cases.CORE + cases.MORE + cases.LANGUAGE,
    ),
    Fixture(
        "whisper-pair", "whisper", "the same without the merged decoder", plainly(exporters.MERGED),
        cases.CORE, (PAIR,), {"fp32": PAIR[0]},
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
        "English only: no languages, no tasks; merged decoder and pair; the tokenizer has no"
        " timestamps, and pieces of characters are not suppressed",
        plainly(), cases.CORE + cases.MORE, (MERGED, PAIR),
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
