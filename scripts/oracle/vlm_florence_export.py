"""Florence-2's sessions as transformers.js has them: four graphs, the decoder with an `If`.

Letters: B rows, S tokens in this step, T rows of the encoder, P steps before, N images, H width.
"""

from pathlib import Path

import onnx
import torch
from optimum.onnx import merge_decoders
from torch import Tensor, nn
from transformers import EncoderDecoderCache, Florence2ForConditionalGeneration

from . import graphs
from .exporters import MERGED, PAIR
from .seq2seq_compact import compact
from .vlm_florence_model import HEADS, LAYERS, WIDTH
from .vlm_florence_tokens import SIDE

EMBED, VISION, ENCODER = "embed_tokens.onnx", "vision_encoder.onnx", "encoder_model.onnx"
PARTS = tuple(f"{side}.{part}" for side in ("decoder", "encoder") for part in ("key", "value"))
SHAPES = {
    "input_ids": {0: "batch_size", 1: "sequence_length"},
    "inputs_embeds": {0: "batch_size", 1: "sequence_length"},
    "attention_mask": {0: "batch_size", 1: "sequence_length"},
    "last_hidden_state": {0: "batch_size", 1: "sequence_length"},
    "pixel_values": {0: "num_images"},
    "image_features": {0: "num_images", 1: "image_tokens"},
    "encoder_attention_mask": {0: "batch_size", 1: "encoder_sequence_length"},
    "encoder_hidden_states": {0: "batch_size", 1: "encoder_sequence_length"},
    "logits": {0: "batch_size", 1: "sequence_length"},
}


class Vision(nn.Module):
    def __init__(self, model: Florence2ForConditionalGeneration) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Tensor) -> Tensor:
        """(N, 3, H, W) to (N, tokens, H)."""
        return self.model.get_image_features(pixel_values)


class Encoder(nn.Module):
    def __init__(self, model: Florence2ForConditionalGeneration) -> None:
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, inputs_embeds: Tensor, attention_mask: Tensor) -> Tensor:
        """(B, T, H) and (B, T) to (B, T, H)."""
        return self.encoder(inputs_embeds=inputs_embeds, attention_mask=attention_mask)[0]


class Decoder(nn.Module):
    """Without a cache it makes both sides' entries, with one only the decoder's."""

    def __init__(self, model: Florence2ForConditionalGeneration) -> None:
        super().__init__()
        self.decoder, self.head = model.get_decoder(), model.lm_head

    def forward(
        self, mask: Tensor, states: Tensor, embeds: Tensor, *past: Tensor
    ) -> tuple[Tensor, ...]:
        """(B, T), (B, T, H) and (B, S, H), then each layer's four of (B, heads, P or T, H / heads).

        To (B, S, V), and the entries after the step.
        """
        given = [past[i : i + 4] for i in range(0, len(past), 4)]
        found = self.decoder(
            inputs_embeds=embeds, encoder_hidden_states=states, encoder_attention_mask=mask,
            past_key_values=EncoderDecoderCache.from_legacy_cache(given or None), use_cache=True,
        )  # fmt: skip
        kept = [part for layer in found.past_key_values.to_legacy_cache()
                for part in layer[: 2 if past else 4]]  # fmt: skip
        return self.head(found.last_hidden_state), *kept


def export(model: Florence2ForConditionalGeneration, folder: Path) -> None:
    """Writes the four graphs, with short names inside, into the folder."""
    folder.mkdir()
    width = WIDTH // HEADS
    ids, mask = torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 5, dtype=torch.int64)
    states, embeds = torch.randn(2, 5, WIDTH), torch.randn(2, 3, WIDTH)
    pixels = torch.randn(2, 3, SIDE, SIDE)
    write(model.get_input_embeddings(), folder / EMBED, {"input_ids": ids}, ["inputs_embeds"])
    write(Vision(model), folder / VISION, {"pixel_values": pixels}, ["image_features"])
    write(Encoder(model), folder / ENCODER, {"inputs_embeds": states, "attention_mask": mask},
          ["last_hidden_state"])  # fmt: skip
    fed = {
        "encoder_attention_mask": mask, "encoder_hidden_states": states, "inputs_embeds": embeds,
    }  # fmt: skip
    names = [f"{layer}.{part}" for layer in range(LAYERS) for part in PARTS]
    lengths = {name: 4 if ".decoder." in name else 5 for name in names}
    past = {f"past_key_values.{n}": torch.randn(2, HEADS, lengths[n], width) for n in names}
    first, later = (folder / name for name in PAIR)
    write(Decoder(model), first, fed, ["logits", *(f"present.{n}" for n in names)])
    write(Decoder(model), later, fed | past,
          ["logits", *(f"present.{n}" for n in names if ".decoder." in n)])  # fmt: skip
    merge_decoders(first, later, save_path=folder / MERGED, strict=False)
    first.unlink()
    later.unlink()
    for path in folder.iterdir():
        graphs.clean(path)
        compact(path)


def write(module: nn.Module, path: Path, fed: dict[str, Tensor], outputs: list[str]) -> None:
    """One graph; its inputs are named in the order of `fed`."""
    torch.onnx.export(
        module.eval(), tuple(fed.values()), path, input_names=[*fed], output_names=outputs,
        dynamic_axes={name: axes(name) for name in (*fed, *outputs)}, opset_version=18,
        dynamo=False,
    )  # fmt: skip
    model = onnx.load(path)
    for value in model.graph.output:
        if value.name.startswith("present."):  # the trace loses these through an empty cache
            _, heads, _, size = value.type.tensor_type.shape.dim
            heads.dim_value, size.dim_value = HEADS, WIDTH // HEADS
    onnx.save(model, path)


def axes(name: str) -> dict[int, str]:
    """The names of the open dimensions of an input or output."""
    if name in SHAPES:
        return SHAPES[name]
    side = "encoder" if ".encoder." in name else "past_decoder"
    if name.startswith("present.") and side == "past_decoder":
        side = "decoder"  # the steps before and those of now
    return {0: "batch_size", 2: f"{side}_sequence_length"}
