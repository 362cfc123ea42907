"""The folders of fixtures/models with encoder-decoders: which family, and which files are made."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxruntime.transformers.onnx_model import OnnxModel
from optimum.onnx import merge_decoders

from .exporters import MERGED, PAIR

ENCODER = "encoder_model.onnx"


@dataclass(frozen=True)
class Files:
    """Graphs that belong together, by name; `later` is the second half of a pair, or `first`.

    Where they round, torch is no reference; `modes` then says which naive runs must agree.
    """

    encoder: str
    first: str
    later: str
    modes: tuple[str, ...] = ()


#: 8-bit activations are scaled by all that is fed at once: recomputing is another computation there
HALF, EIGHT_BIT = ("recompute", "cached", "batched"), ("cached", "batched")


def merged(
    suffix: str = "", encoder: str = "", place: str = "", modes: tuple[str, ...] = ()
) -> Files:
    """A merged decoder and its encoder, by the suffixes of their dtypes."""
    decoder = place + MERGED.replace(".onnx", f"{suffix}.onnx")
    return Files(place + ENCODER.replace(".onnx", f"{encoder}.onnx"), decoder, decoder, modes)


SPLIT = Files(ENCODER, *PAIR)


@dataclass(frozen=True)
class Fixture:
    """One folder; `files` has a name of its own for each variant, the first is the main one."""

    name: str
    family: str
    about: str
    change: Callable[[Path], None] = lambda _folder: None
    files: dict[str, Files] = field(default_factory=lambda: {"fp32": merged(), "fp32 pair": SPLIT})
    exporter = "optimum-onnx"


def half(path: Path, out: Path, keep_io_types: bool) -> None:
    """Weights in float16; the border (logits, caches) too unless keep_io_types."""
    model = OnnxModel(convert_float_to_float16(onnx.load(path), keep_io_types=keep_io_types))
    model.topological_sort(is_deterministic=True)  # a body of an If must be in order
    onnx.save(model.model, out)


def quantize(path: Path, out: Path) -> None:
    """Dynamic 8-bit, as transformers.js repositories have it."""
    quantize_dynamic(
        path, out, weight_type=QuantType.QInt8, per_channel=False, reduce_range=False,
        extra_options={"EnableSubgraph": True, "MatMulConstBOnly": True},
    )  # fmt: skip


def half_merged(folder: Path, keep_io_types: bool) -> None:
    """Makes the merged decoder a float16 one: half by half, as the conversion breaks an If."""
    for name in PAIR:
        half(folder / name, folder / name, keep_io_types)
    merge_decoders(*(folder / name for name in PAIR), save_path=folder / MERGED, strict=False)
    for name in PAIR:
        (folder / name).unlink()


def half_decoder(folder: Path) -> None:
    """A float16 decoder, caches and logits too, beside a float32 encoder."""
    half_merged(folder, keep_io_types=False)
    (folder / MERGED).rename(folder / merged("_fp16").first)


def quantized_decoder(folder: Path) -> None:
    """An 8-bit decoder beside a float32 encoder."""
    quantize(folder / MERGED, folder / merged("_quantized").first)
    for name in (MERGED, *PAIR):
        (folder / name).unlink()


def split_only(folder: Path) -> None:
    """The pair without the merged decoder."""
    (folder / MERGED).unlink()


def transformers_js(folder: Path) -> None:
    """Merged decoders in onnx/, each graph in fp32, fp16 (float32 border) and q8."""
    place = folder / "onnx"
    place.mkdir()
    for name in (ENCODER, MERGED):
        shutil.copy(folder / name, place / name)
        quantize(folder / name, place / name.replace(".onnx", "_quantized.onnx"))
    half_merged(folder, keep_io_types=True)
    half(folder / ENCODER, folder / ENCODER, keep_io_types=True)
    for name in (ENCODER, MERGED):
        shutil.move(folder / name, place / name.replace(".onnx", "_fp16.onnx"))


def optimum(family: str, about: str) -> Fixture:
    """A family as optimum-onnx writes it: a merged decoder beside the pair that it is made of."""
    return Fixture(family, family, about)


ALL = [
    optimum("t5", "relative positions, tied embeddings"),
    optimum("t5-gated", "FLAN's form: gated feed-forward, a head of its own; one decoder layer"),
    optimum("bart", "learned positions, forced first and last tokens"),
    optimum("marian", "fixed positions, starts with the pad token, the pad token banned"),
    optimum("m2m_100", "NLLB: the language is the forced first token"),
    optimum("mbart", "a forced first token; the language may also be the start"),
    optimum("pegasus", "fixed positions, two encoder layers, one decoder layer"),
    optimum("blenderbot", "no n-gram of the input, a least length"),
    optimum("vit-gpt2", "no cross-attention cache: the encoder's states go into every step"),
    optimum("trocr", "DeiT and TrOCR, states of another width than the decoder"),
    optimum("donut", "Swin and mBART; starts with a task prompt"),
    Fixture("t5-gated-pair", "t5-gated", "the pair without a merged decoder", split_only,
            {"fp32": SPLIT}),
    Fixture("t5-q8", "t5", "an 8-bit decoder beside a float32 encoder", quantized_decoder,
            {"q8": merged("_quantized", modes=EIGHT_BIT)}),
    Fixture("bart-fp16", "bart", "a float16 decoder, border too, beside a float32 encoder",
            half_decoder, {"fp16": merged("_fp16", modes=HALF)}),
    Fixture("m2m_100-tjs", "m2m_100", "transformers.js layout: `onnx/`, fp16 with a float32 border",
            transformers_js, {
                "fp32": merged(place="onnx/"),
                "fp16": merged("_fp16", "_fp16", "onnx/", HALF),
                "q8": merged("_quantized", "_quantized", "onnx/", EIGHT_BIT),
            }),
]  # fmt: skip


def split(names: list[str]) -> tuple[list[Fixture], list[str]]:
    """The fixtures of the given folder or family names, all without any, and the other names."""
    chosen = [f for f in ALL if not names or f.name in names or f.family in names]
    known = {name for fixture in ALL for name in (fixture.name, fixture.family)}
    return chosen, [name for name in names if name not in known]
