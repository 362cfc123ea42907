"""The folders of fixtures/models: which checkpoint, which exporter, what is special about each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from . import exporters

#: writes an export: (python of the builder environment, checkpoint folder, new folder)
Export = Callable[[Path, Path, Path], None]


@dataclass(frozen=True)
class Fixture:
    """One folder; `files` maps a dtype to its graph, the dtypes in `lossy` differ from fp32 torch."""

    name: str
    family: str
    exporter: str
    about: str
    export: Export
    files: dict[str, str] = field(default_factory=lambda: {"fp32": "model.onnx"})
    lossy: frozenset[str] = frozenset()
    first: str | None = None
    table: str | None = None


def by_optimum(
    function: Callable[[Path, Path], None], *arguments: str
) -> Export:
    return lambda _builder, checkpoint, out: function(checkpoint, out, *arguments)


def by_genai(*options: str) -> Export:
    return lambda builder, checkpoint, out: exporters.genai(builder, checkpoint, out, *options)


def optimum(family: str, about: str) -> Fixture:
    return Fixture(family, family, "optimum-onnx", about, by_optimum(exporters.optimum))


def genai(family: str, about: str, suffix: str = "", dtype: str = "fp32", ep: str = "cpu", *extra: str,
          lossy: bool = False, table: str | None = None) -> Fixture:
    options = ["-p", dtype, "-e", ep]
    if extra:
        options += ["--extra_options", *extra]
    return Fixture(
        f"genai-{family}{suffix}", family, "onnxruntime-genai", about, by_genai(*options),
        files={dtype: "model.onnx"}, lossy=frozenset({dtype} if lossy else ()), table=table,
    )


LLAMA_VARIANTS = [
    Fixture(
        "llama-pair", "llama", "optimum-onnx",
        "un-merged pair: decoder_model (empty cache), decoder_with_past_model",
        by_optimum(exporters.optimum_pair),
        files={"fp32": exporters.PAIR[1]}, first=exporters.PAIR[0],
    ),
    Fixture(
        "llama-merged", "llama", "optimum-onnx",
        "decoder_model_merged: an If on use_cache_branch",
        by_optimum(exporters.optimum_merged),
        files={"fp32": "decoder_model_merged.onnx"},
    ),
    Fixture(
        "llama-nocache", "llama", "optimum-onnx", "no cache at all, task text-generation",
        by_optimum(exporters.optimum, "text-generation"),
    ),
    Fixture(
        "llama-fp16", "llama", "optimum-onnx", "float16 weights, caches and logits",
        by_optimum(exporters.optimum_fp16),
        files={"fp16": "model.onnx"}, lossy=frozenset({"fp16"}),
    ),
    Fixture(
        "llama-tjs", "llama", "optimum-onnx",
        "transformers.js layout: onnx/ with fp32, fp16 (float32 border) and q8 files",
        by_optimum(exporters.transformers_js),
        files={
            "fp32": "onnx/model.onnx",
            "fp16": "onnx/model_fp16.onnx",
            "q8": "onnx/model_quantized.onnx",
        },
        lossy=frozenset({"fp16", "q8"}),
    ),
]  # fmt: skip

ALL = [
    optimum("llama", "rotary, grouped heads, position_ids"),
    optimum("gpt2", "learned positions, position_ids"),
    optimum("gemma3_text", "no position_ids; layers with a window of 8"),
    optimum("bloom", "ALiBi, no position_ids"),
    optimum("gpt_bigcode", "multi-query: one key-value head"),
    genai("llama", "GroupQueryAttention, fused rotary, external data"),
    genai("lfm2", "GroupQueryAttention and fixed conv states, past.N.conv"),
    *LLAMA_VARIANTS,
    genai("llama", "MatMulNBits and GatherBlockQuantized, 4 bits", "-int4", "int4", lossy=True),
    genai("llama", "float16 caches and logits, the cuda build", "-fp16", "fp16", "cuda", lossy=True),
    genai("llama", "GroupQueryAttention beside position_ids, float16, the dml build", "-dml", "fp16", "dml", lossy=True),
    genai("llama", "MultiHeadAttention with a bias, float16", "-mha", "fp16", "cpu", lossy=True),
    genai("llama", "logits (B, 1, V) of the last position", "-pruned", "fp32", "cpu", "prune_lm_head=true"),
    genai("llama", "inputs_embeds; the table of embeddings is embeddings.npy", "-embeds", "fp32", "cpu", "exclude_embeds=true", table="embeddings.npy"),
]


def choose(names: list[str]) -> list[Fixture]:
    """The fixtures of the given folder or family names, all of them if none is given."""
    known = {fixture.name for fixture in ALL} | {fixture.family for fixture in ALL}
    unknown = sorted(set(names) - known)
    if unknown:
        raise SystemExit(f"no fixture {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return [f for f in ALL if not names or f.name in names or f.family in names]
