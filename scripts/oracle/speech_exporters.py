"""Exports of speech models: as optimum-onnx makes them, and with what other tools add."""

import shutil
from pathlib import Path
from typing import Any

import torch
from optimum.exporters.onnx import onnx_export_from_model
from optimum.exporters.onnx.base import ConfigBehavior
from optimum.exporters.onnx.model_configs import MoonshineOnnxConfig, WhisperOnnxConfig
from optimum.utils import DummyInputGenerator
from transformers import AutoModelForSpeechSeq2Seq, PreTrainedModel

MERGED, ENCODER = "decoder_model_merged.onnx", "encoder_model.onnx"
PAIR = ("decoder_model.onnx", "decoder_with_past_model.onnx")
FILES = (MERGED, ENCODER, *PAIR)
TASK = "automatic-speech-recognition-with-past"
Axes = dict[str, dict[int, str]]


class CrossAttentions(WhisperOnnxConfig):
    """The decoder tells where it looks, as transformers.js' `_timestamped` repositories have it."""

    @property
    def outputs(self) -> Axes:
        found = super().outputs
        if self._behavior is ConfigBehavior.DECODER:
            axes = {0: "batch_size", 2: "decoder_sequence_length", 3: "encoder_sequence_length_out"}
            for layer in range(self._config.decoder_layers):
                found[f"cross_attentions.{layer}"] = axes
        return found


class Positions(DummyInputGenerator):
    SUPPORTED_INPUT_NAMES = ("cache_position",)

    def __init__(self, *_arguments: Any, **_keywords: Any) -> None: ...

    def generate(self, *_arguments: Any, **_keywords: Any) -> torch.Tensor:
        return torch.tensor([16])  # behind the 16 tokens of the other generators' cache


class CachePosition(WhisperOnnxConfig):
    """The cached decoder is told its position, as by transformers 4.43 to 4.45."""

    DUMMY_INPUT_GENERATOR_CLASSES = (*WhisperOnnxConfig.DUMMY_INPUT_GENERATOR_CLASSES, Positions)

    @property
    def inputs(self) -> Axes:
        found = super().inputs
        if self._behavior is ConfigBehavior.DECODER and self.use_past_in_inputs:
            found["cache_position"] = {0: "decoder_sequence_length"}
        return found


class Unmasked(MoonshineOnnxConfig):
    """Neither side takes a mask, as transformers.js' Moonshine has it."""

    @property
    def inputs(self) -> Axes:
        return {name: axes for name, axes in super().inputs.items() if name != "attention_mask"}


def export(checkpoint: Path, out: Path, drop: tuple[str, ...] = ()) -> None:
    """What `optimum-cli export onnx` writes, without the files in `drop`."""
    export_as(None, checkpoint, out, drop)


def export_as(
    kind: type[WhisperOnnxConfig | MoonshineOnnxConfig] | None,
    checkpoint: Path,
    out: Path,
    drop: tuple[str, ...] = PAIR,
) -> None:
    """The same with the inputs and outputs of `kind`."""
    eager = {"attn_implementation": "eager"} if kind is CrossAttentions else {}
    model = AutoModelForSpeechSeq2Seq.from_pretrained(checkpoint, **eager)
    onnx_export_from_model(
        model, out, task=TASK, do_validation=False,
        custom_onnx_configs=kind and submodels(kind, model),
        model_kwargs={"output_attentions": True} if kind is CrossAttentions else None,
    )  # fmt: skip
    for name in drop:
        (out / name).unlink()
    for path in checkpoint.glob("*.json"):  # as they were: exporting rewrites some
        shutil.copy(path, out)


def submodels(kind: Any, model: PreTrainedModel) -> dict[str, Any]:
    """The settings of encoder, decoder and cached decoder."""
    config = kind(config=model.config, task=TASK.removesuffix("-with-past"), use_past=True)
    return {
        "encoder_model": config.with_behavior("encoder"),
        "decoder_model": config.with_behavior("decoder", use_past=True),
        "decoder_with_past_model": config.with_behavior(
            "decoder", use_past=True, use_past_in_inputs=True
        ),
    }
