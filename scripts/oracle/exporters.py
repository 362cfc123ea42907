"""The exporters, each writing one folder from a checkpoint folder."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers.float16 import convert_float_to_float16
from optimum.exporters.onnx import main_export
from optimum.exporters.onnx.convert import export_models
from optimum.exporters.tasks import TasksManager
from optimum.onnx import merge_decoders
from transformers import AutoModelForCausalLM

PAIR = ("decoder_model.onnx", "decoder_with_past_model.onnx")


@contextlib.contextmanager
def quiet(log: Path) -> Iterator[None]:
    """Sends whatever is printed, from native code too, to the end of the log file."""
    sys.stdout.flush(), sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1), os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            for number, copy in zip((1, 2), saved, strict=True):
                os.dup2(copy, number)
                os.close(copy)


def optimum(checkpoint: Path, out: Path, task: str = "text-generation-with-past") -> None:
    """What `optimum-cli export onnx` writes."""
    main_export(str(checkpoint), str(out), task=task, do_validation=False)


def optimum_pair(checkpoint: Path, out: Path) -> None:
    """The layout of older releases: one file for the empty cache, one for the rest."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    make = TasksManager.get_exporter_config_constructor(
        "onnx", model=model, task="text-generation", library_name="transformers"
    )
    model.config.save_pretrained(out)
    model.generation_config.save_pretrained(out)
    configs = [
        make(model.config, task="text-generation", use_past=True, use_past_in_inputs=with_past)
        for with_past in (False, True)
    ]
    export_models(
        {name.removesuffix(".onnx"): (model, config) for name, config in zip(PAIR, configs)},
        output_dir=out,
        output_names=list(PAIR),
    )


def optimum_merged(checkpoint: Path, out: Path) -> None:
    """The pair in one file, as the branches of an If on `use_cache_branch`."""
    optimum_pair(checkpoint, out)
    merge_decoders(*(out / name for name in PAIR), save_path=out / "decoder_model_merged.onnx")
    for name in PAIR:
        (out / name).unlink()


def half(path: Path, out: Path, keep_io_types: bool) -> None:
    """Weights in float16; the border (logits, caches) too unless keep_io_types."""
    model = convert_float_to_float16(onnx.load(path), keep_io_types=keep_io_types)
    onnx.save(model, out)


def optimum_fp16(checkpoint: Path, out: Path) -> None:
    """The optimum export in float16 throughout, caches and logits too."""
    optimum(checkpoint, out)
    half(out / "model.onnx", out / "model.onnx", keep_io_types=False)


def transformers_js(checkpoint: Path, out: Path) -> None:
    """The layout of transformers.js: files by dtype in onnx/, the fp16 one with a float32 border."""
    optimum(checkpoint, out)
    (out / "onnx").mkdir()
    full = out / "onnx" / "model.onnx"
    shutil.move(out / "model.onnx", full)
    half(full, out / "onnx" / "model_fp16.onnx", keep_io_types=True)
    quantize_dynamic(
        full,
        out / "onnx" / "model_quantized.onnx",
        weight_type=QuantType.QInt8,
        per_channel=False,
        reduce_range=False,
        extra_options={"EnableSubgraph": True, "MatMulConstBOnly": True},
    )


def genai(python: Path, checkpoint: Path, out: Path, *options: str) -> None:
    """The model builder of onnxruntime-genai, which needs an environment of its own."""
    command = [python, "-m", "onnxruntime_genai.models.builder", "-i", checkpoint, "-o", out]
    cache = out.parent / "cache"
    subprocess.run([*command, "-c", cache, *options], check=True)
