"""Exports a vision-language model as transformers.js has it: three graphs in onnx/.

Letters: B rows, S new tokens, P cached tokens, T = P + S, D the decoder's width.
"""

from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn
from transformers import DynamicCache, PretrainedConfig, PreTrainedModel
from transformers.cache_utils import DynamicLayer

EMBED, VISION, DECODER = "embed_tokens.onnx", "vision_encoder.onnx", "decoder_model_merged.onnx"
OPSET = 18
NEVER = torch.finfo(torch.float32).min


def decoder(model: PreTrainedModel) -> PreTrainedModel:
    """The language model without its head."""
    return getattr(model.model, "text_model", None) or model.model.language_model


def head_size(config: PretrainedConfig) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


class Embed(nn.Module):
    """input_ids (B,S) -> inputs_embeds (B,S,D)."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.table = model.get_input_embeddings()

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.table(input_ids)


class Decoder(nn.Module):
    """Embeddings with masks, positions and caches -> logits (B,S,V) and caches.

    `sight` says what the new tokens see of each other: "causal"; "prompt", all of each other
    (PaliGemma: a step of one token is causal all the same); or "images", those of one image each
    other (Gemma3: told by token_type_ids (B,S), 1 for tokens of an image).
    """

    def __init__(self, model: PreTrainedModel, sight: str) -> None:
        super().__init__()
        self.text, self.head = decoder(model), model.get_output_embeddings()
        self.config, self.sight = self.text.config, sight

    def forward(
        self, inputs_embeds: Tensor, attention_mask: Tensor, position_ids: Tensor, *others: Tensor
    ) -> tuple[Tensor, ...]:
        types = others[0] if self.sight == "images" else None
        past = others[1:] if self.sight == "images" else others
        cache = DynamicCache()
        for keys, values in zip(past[::2], past[1::2], strict=True):
            layer = DynamicLayer()
            layer.keys, layer.values, layer.is_initialized = keys, values, True
            layer.dtype, layer.device = keys.dtype, keys.device
            cache.layers.append(layer)
        new, total = inputs_embeds.shape[1], attention_mask.shape[1]
        places = torch.arange(total)[total - new :]  # (S,)
        states = self.text(
            inputs_embeds=inputs_embeds, position_ids=position_ids, past_key_values=cache,
            attention_mask=self.masks(places, attention_mask, types),
            cache_position=places, use_cache=True,
        ).last_hidden_state  # fmt: skip
        caches = [part for layer in cache.layers for part in (layer.keys, layer.values)]
        return (self.head(states), *caches)

    def masks(self, places: Tensor, mask: Tensor, types: Tensor | None) -> Any:
        """Additive (B,1,S,T), by kind of layer where there are several kinds."""
        keys = torch.arange(mask.shape[1])
        real = mask[:, None, None] > 0  # (B,1,1,T)
        if self.sight == "prompt":
            return hide(real.expand(-1, -1, places.shape[0], -1))
        past = (keys <= places[:, None])[None, None]  # (1,1,S,T)
        if types is None:
            return hide(past & real)
        near = past & (keys > places[:, None] - self.config.sliding_window)
        image = types == 1  # (B,S)
        first = image & ~nn.functional.pad(image, (1, 0))[:, :-1]
        number = first.long().cumsum(1) * image.long()  # (B,S): 0 outside of images
        before = torch.zeros_like(mask)[:, types.shape[1] :]  # (B,P)
        every = torch.cat([before, number], 1)  # (B,T)
        block = ((number[:, :, None] == every[:, None]) & image[:, :, None])[:, None]  # (B,1,S,T)
        return {
            "full_attention": hide((past | block) & real),
            "sliding_attention": hide((near | block) & real),
        }


def hide(allowed: Tensor) -> Tensor:
    return (~allowed).float() * NEVER


def export_embed(model: PreTrainedModel, folder: Path) -> None:
    write(
        Embed(model), (torch.ones(2, 3, dtype=torch.long),), folder / EMBED,
        {"input_ids": ["batch_size", "sequence_length"]},
        {"inputs_embeds": ["batch_size", "sequence_length", None]},
    )  # fmt: skip


#: the axes of what vision encoders take
AXES: dict[str, list[str | None]] = {
    "pixel_attention_mask": ["batch_size", "num_images", None, None],
    "grid_thw": ["num_images", None],
    "image_grid_thw": ["num_images", None],
}


def export_vision(vision: Any, example: tuple[Tensor, ...], folder: Path) -> None:
    pixels = {
        2: ["num_patches", None],
        4: ["num_images", None, None, None],
        5: ["batch_size", "num_images", None, None, None],
    }[example[0].dim()]
    axes: dict[str, list[str | None]] = {name: AXES.get(name, pixels) for name in vision.inputs}
    names = getattr(vision, "outputs", ("image_features",))
    rows = ["num_features", None] if example[0].dim() == 2 else ["num_images", None, None]
    write(vision, example, folder / VISION, axes, dict(zip(names, [rows, [None]], strict=False)))


def export_decoder(model: PreTrainedModel, sight: str, folder: Path) -> None:
    config = decoder(model).config
    heads = config.num_key_value_heads
    size = head_size(config)
    rows, new, past = 2, 3, 4
    planes = 3 if "mrope_section" in (getattr(config, "rope_scaling", None) or {}) else 0
    positions = torch.arange(past, past + new).expand(rows, -1)
    inputs: dict[str, tuple[Tensor, list[str | None]]] = {
        "inputs_embeds": (torch.randn(rows, new, config.hidden_size),
                          ["batch_size", "sequence_length", None]),
        "attention_mask": (torch.ones(rows, past + new, dtype=torch.long),
                           ["batch_size", "total_sequence_length"]),
        "position_ids": (
            (positions.expand(3, -1, -1), [None, "batch_size", "sequence_length"])
            if planes else (positions, ["batch_size", "sequence_length"])
        ),
    }  # fmt: skip
    outputs: dict[str, list[str | None]] = {"logits": ["batch_size", "sequence_length", None]}
    if sight == "images":
        inputs["token_type_ids"] = (
            torch.tensor([[0, 1, 1]] * rows), ["batch_size", "sequence_length"],
        )  # fmt: skip
    for layer in range(config.num_hidden_layers):
        for part in ("key", "value"):
            inputs[f"past_key_values.{layer}.{part}"] = (
                torch.randn(rows, heads, past, size),
                ["batch_size", None, "past_sequence_length", None],
            )
            outputs[f"present.{layer}.{part}"] = ["batch_size", None, "total_sequence_length", None]
    write(
        Decoder(model, sight), tuple(value for value, _ in inputs.values()), folder / DECODER,
        {name: axes for name, (_, axes) in inputs.items()}, outputs,
    )  # fmt: skip


def write(
    module: nn.Module,
    example: tuple[Tensor, ...],
    path: Path,
    inputs: dict[str, list[str | None]],
    outputs: dict[str, list[str | None]],
) -> None:
    """One graph by the TorchScript exporter; an axis with a name may have any length."""
    torch.onnx.export(
        module.eval(), example, str(path), dynamo=False, opset_version=OPSET,
        input_names=[*inputs], output_names=[*outputs],
        dynamic_axes={
            name: {i: axis for i, axis in enumerate(axes) if axis}
            for name, axes in (inputs | outputs).items()
        },
    )  # fmt: skip
    graph = onnx.load(path)
    for value, name in zip(graph.graph.output, outputs, strict=True):
        if value.name != name:  # a constant loses its name
            graph.graph.node.append(onnx.helper.make_node("Identity", [value.name], [name]))
            value.name = name
    onnx.save(graph, path)
