"""The exporters, each writing one folder from a checkpoint folder."""

import contextlib
import json
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
from transformers import AutoConfig, AutoModelForCausalLM

PAIR = ("decoder_model.onnx", "decoder_with_past_model.onnx")
MERGED = "decoder_model_merged.onnx"
#: where the builder reads the steps of int8 caches, and the step: keys and values are below 16
SCALES, SCALE = "kv_scales.json", 0.125


@contextlib.contextmanager
def quiet(log: Path) -> Iterator[None]:
    """Sends whatever is printed, from native code too, to the end of the log file."""
    streams = (sys.stdout, sys.stderr)
    saved = [os.dup(stream.fileno()) for stream in streams]
    with log.open("ab") as file:
        for stream in streams:
            stream.flush()
            os.dup2(file.fileno(), stream.fileno())
        try:
            yield
        finally:
            for stream, copy in zip(streams, saved, strict=True):
                stream.flush()
                os.dup2(copy, stream.fileno())
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
        {
            name.removesuffix(".onnx"): (model, config)
            for name, config in zip(PAIR, configs, strict=True)
        },
        output_dir=out,
        output_names=list(PAIR),
    )


def optimum_merged(checkpoint: Path, out: Path) -> None:
    """The pair in one file, as the branches of an If on `use_cache_branch`."""
    optimum_pair(checkpoint, out)
    merge_decoders(*(out / name for name in PAIR), save_path=out / MERGED)
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
    """The layout of transformers.js: a file for each dtype in onnx/, all with a float32 border."""
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
    place = out.parent
    scales = [[SCALE]] * AutoConfig.from_pretrained(checkpoint).num_hidden_layers
    text = json.dumps({"scales": {"k_scales": scales, "v_scales": scales}})
    (place / SCALES).write_text(text)
    # the builder stamps files with the revision of any repository that it happens to lie in
    env = os.environ | {"GIT_DIR": os.devnull}
    subprocess.run([*command, "-c", place / "cache", *options], check=True, cwd=place, env=env)
