"""The folders of fixtures/models: which checkpoint, which exporter, what is special about each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import exporters

#: writes an export: (python of the builder environment, checkpoint folder, new folder)
Export = Callable[[Path, Path, Path], None]


@dataclass(frozen=True)
class Fixture:
    """One folder.

    `files` maps a dtype to its graph; the dtypes in `lossy` round, so that torch's fp32 tokens are
    no expectation for them. `first` is the graph for the empty cache where the export is a pair,
    `table` where the embeddings of an export without them go.
    """

    name: str
    family: str
    exporter: str
    about: str
    export: Export
    files: dict[str, str] = field(default_factory=lambda: {"fp32": "model.onnx"})
    lossy: frozenset[str] = frozenset()
    first: str | None = None
    table: str | None = None


def optimum(family: str, about: str) -> Fixture:
    """A family by optimum-onnx, as its command line writes it."""
    return Fixture(family, family, "optimum-onnx", about, by_optimum(exporters.optimum))


def llama(
    suffix: str,
    about: str,
    export: Export,
    files: dict[str, str] | None = None,
    lossy: frozenset[str] = frozenset(),
    first: str | None = None,
) -> Fixture:
    """The Llama checkpoint in another layout of optimum-onnx."""
    files = files or {"fp32": "model.onnx"}
    return Fixture(f"llama-{suffix}", "llama", "optimum-onnx", about, export, files, lossy, first)


def genai(
    name: str,
    family: str,
    about: str,
    *extra: str,
    dtype: str = "fp32",
    provider: str = "cpu",
    table: str | None = None,
) -> Fixture:
    """A family by the builder of onnxruntime-genai; all but plain fp32 rounds."""
    options = ["-p", dtype, "-e", provider, *(["--extra_options", *extra] if extra else [])]
    exact = dtype == "fp32" and not any(option.startswith("kv_cache_quant") for option in extra)

    def export(builder: Path, checkpoint: Path, out: Path) -> None:
        exporters.genai(builder, checkpoint, out, *options)

    return Fixture(
        f"genai-{name}", family, "onnxruntime-genai", about, export,
        files={dtype: "model.onnx"},
        lossy=frozenset(() if exact else {dtype}),
        table=table,
    )  # fmt: skip


def by_optimum(function: Callable[..., None], *arguments: str) -> Export:
    """An exporter that needs no second environment."""
    return lambda _builder, checkpoint, out: function(checkpoint, out, *arguments)


ALL = [
    optimum("llama", "rotary, grouped heads, tied embeddings"),
    optimum("gpt2", "learned positions"),
    optimum("gemma3_text", "no `position_ids`; two of three layers have a window of 8"),
    optimum("bloom", "ALiBi, no `position_ids`"),
    optimum("gpt_bigcode", "multi-query: one key-value head"),
    optimum("qwen3", "heads of 16 where hidden / heads is 8; norms on queries and keys"),
    optimum("mistral", "a window of 8 in every layer"),
    optimum("phi3", "fused projections"),
    optimum("opt", "learned positions with an offset of 2"),
    optimum("falcon", "parallel block, multi-query, rotary"),
    optimum("falcon-alibi", "ALiBi, no `position_ids`"),
    optimum("mpt", "ALiBi, no `position_ids`, keys and values in one projection"),
    optimum("gpt_neox", "parallel block, rotary on half of each head"),
    optimum("codegen", "parallel block, interleaved rotary"),
    optimum("gpt_neo", "learned positions; the second layer has a window of 8"),
    optimum("cohere", "parallel block, interleaved rotary, scaled logits"),
    optimum("granite", "scaled embeddings, residuals, attention and logits"),
    optimum("deepseek_v3", "keys of 16, values of 12 a head"),
    optimum("gpt_oss", "no `position_ids`; attention sinks, a window of 8, experts"),
    llama(
        "pair",
        "un-merged pair: `decoder_model` (empty cache) and `decoder_with_past_model`",
        by_optimum(exporters.optimum_pair),
        {"fp32": exporters.PAIR[1]},
        first=exporters.PAIR[0],
    ),
    llama(
        "merged",
        "`decoder_model_merged`: an `If` on `use_cache_branch`",
        by_optimum(exporters.optimum_merged),
        {"fp32": exporters.MERGED},
    ),
    llama(
        "nocache",
        "no cache at all: task text-generation",
        by_optimum(exporters.optimum, "text-generation"),
    ),
    llama(
        "fp16",
        "float16 weights, caches and logits",
        by_optimum(exporters.optimum_fp16),
        {"fp16": "model.onnx"},
        frozenset({"fp16"}),
    ),
    llama(
        "tjs",
        "transformers.js layout: `onnx/` with fp32, fp16 (float32 border) and q8",
        by_optimum(exporters.transformers_js),
        {
            "fp32": "onnx/model.onnx",
            "fp16": "onnx/model_fp16.onnx",
            "q8": "onnx/model_quantized.onnx",
        },
        frozenset({"fp16", "q8"}),
    ),
    genai("llama", "llama", "fused rotary, mask counted by its values, external data"),
    genai("lfm2", "lfm2", "fixed conv states `past.N.conv` beside one attention layer"),
    genai("qwen3", "qwen3", "heads of 16 where hidden / heads is 8"),
    genai("mistral", "mistral-full", "no window: the builder leaves Mistral's out of the graph"),
    genai("gemma2", "gemma2", "soft caps; the first layer's cache is a ring of the window, 8"),
    genai("gemma2-full", "gemma2", "the same with full-length caches", "windowed_kv_cache=false"),
    genai("llama-int4", "llama", "4-bit weights and embeddings", dtype="int4"),
    genai("llama-int8kv", "llama", "int8 caches", "kv_cache_quant_scheme=int8_per_tensor",
          f"kv_cache_scale_file={exporters.SCALES}"),
    genai("llama-fp16", "llama", "float16 caches and logits: the build for CUDA",
          dtype="fp16", provider="cuda"),
    genai("llama-dml", "llama", "`position_ids` beside GroupQueryAttention: the build for DirectML",
          dtype="fp16", provider="dml"),
    genai("llama-mha", "llama", "MultiHeadAttention with a bias made from the mask, float16",
          dtype="fp16"),
    genai("llama-pruned", "llama", "logits (B, 1, V) of the last position", "prune_lm_head=true"),
    genai("llama-embeds", "llama", "`inputs_embeds`; the embeddings are in `embeddings.npy`",
          "exclude_embeds=true", table="embeddings.npy"),
]  # fmt: skip


def choose(names: list[str]) -> list[Fixture]:
    """The fixtures of the given folder or family names, all of them if none is given."""
    known = {fixture.name for fixture in ALL} | {fixture.family for fixture in ALL}
    unknown = sorted(set(names) - known)
    if unknown:
        raise SystemExit(f"no fixture {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return [f for f in ALL if not names or f.name in names or f.family in names]
