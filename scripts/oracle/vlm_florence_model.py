"""A tiny Florence-2 with random weights: DaViT of two stages, BART of two layers a side."""

from pathlib import Path

import torch
from transformers import (
    BartConfig,
    Florence2Config,
    Florence2ForConditionalGeneration,
    Florence2VisionConfig,
    GenerationConfig,
)

from . import seq2seq_weights
from . import vlm_florence_tokens as tokens
from .seq2seq_families import Family, bart_like

WIDTH, LAYERS, HEADS = 16, 2, 2
LENGTH = 30  # new tokens
#: how long the rows of places are beside those of text, in the head
PLACES = 0.92
#: and how short those of single bytes that are no character
BYTES = 0.4
#: as the real file has it
SETTINGS = {
    "early_stopping": True, "forced_bos_token_id": 0, "forced_eos_token_id": 2,
    "no_repeat_ngram_size": 3, "num_beams": 3,
}  # fmt: skip


def config() -> Florence2Config:
    """Padded windows in both stages: 10 and 5 patches a side, windows of 4."""
    return Florence2Config(
        text_config=BartConfig(**bart_like(
            (LAYERS, LAYERS), WIDTH, HEADS, tokens.VOCAB, max_position_embeddings=128,
            forced_eos_token_id=2, **tokens.IDS,
        )).to_dict(),
        vision_config=Florence2VisionConfig(
            depths=(1, 1), patch_size=(7, 3), patch_stride=(4, 2), patch_padding=(3, 1),
            patch_prenorm=(False, True), embed_dim=(8, 16), num_heads=(2, 4), num_groups=(2, 4),
            window_size=4, mlp_ratio=2.0, projection_dim=WIDTH, max_temporal_embeddings=4,
            max_position_embeddings=8,
        ).to_dict(),
        image_token_id=tokens.VOCAB - 1,
        attn_implementation="eager",
        **tokens.IDS,
    )  # fmt: skip


def family() -> Family:
    """What the weights are made by."""
    return Family(
        Florence2ForConditionalGeneration, config(), tokens.save, tokens.IDS, tokens.SPECIAL,
        settings=SETTINGS, branch=0.1, eos=1.7,
    )  # fmt: skip


def make(seed: int) -> Florence2ForConditionalGeneration:
    model = seq2seq_weights.make(family(), seed)
    with torch.no_grad():
        head = model.get_output_embeddings().weight  # (V, H)
        head[tokens.FIRST_PLACE : tokens.AFTER_PLACES] *= PLACES
        head[tokens.unprintable()] *= BYTES
    return model


def settle(model: Florence2ForConditionalGeneration, folder: Path) -> None:
    """Writes the configuration and generation_config.json."""
    GenerationConfig(**tokens.IDS, **SETTINGS).save_pretrained(folder)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
