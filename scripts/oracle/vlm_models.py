"""The tiny vision-language models: configurations and random weights."""

from typing import Any

import torch
from torch import nn
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    PaliGemmaConfig,
    PaliGemmaForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
)

from . import weights

#: sides of images, tiles and patches in pixels
IMAGE, PATCH = 28, 7
TEXT: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 1024, "tie_word_embeddings": False,
}  # fmt: skip
VISION: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "image_size": IMAGE, "patch_size": PATCH,
}  # fmt: skip
UNREADABLE = 0.3  # how long the rows of such tokens in the head are, others being 1


def ids(tokenizer: PreTrainedTokenizerBase, **tokens: str) -> dict[str, int]:
    """Configuration keys for tokens: `image_token_id="<image>"`."""
    return {key: tokenizer.convert_tokens_to_ids(token) for key, token in tokens.items()}


def ends(tokenizer: PreTrainedTokenizerBase) -> dict[str, int | None]:
    return {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def smolvlm(words: PreTrainedTokenizerBase) -> PreTrainedModel:
    text = TEXT | ends(words) | {"model_type": "llama", "vocab_size": len(words)}
    config = Idefics3Config(
        text_config=text, vision_config=dict(VISION), scale_factor=2,
        **ids(words, image_token_id="<image>"), pad_token_id=words.pad_token_id,
    )  # fmt: skip
    return Idefics3ForConditionalGeneration(config)


def mrope(words: PreTrainedTokenizerBase) -> dict[str, Any]:
    """What Qwen2-VL and Qwen2.5-VL have alike."""
    text = TEXT | ends(words) | {
        "vocab_size": len(words), "rope_theta": 10000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]},
    }  # fmt: skip
    found = ids(
        words, image_token_id="<|image_pad|>", video_token_id="<|video_pad|>",
        vision_start_token_id="<|vision_start|>", vision_end_token_id="<|vision_end|>",
    )  # fmt: skip
    return {"text_config": text, **found, **ends(words)}


def qwen2_vl(words: PreTrainedTokenizerBase) -> PreTrainedModel:
    vision = {
        "depth": 2, "embed_dim": 16, "hidden_size": TEXT["hidden_size"], "num_heads": 2,
        "mlp_ratio": 2, "patch_size": PATCH, "spatial_merge_size": 2, "temporal_patch_size": 2,
    }  # fmt: skip
    return Qwen2VLForConditionalGeneration(Qwen2VLConfig(vision_config=vision, **mrope(words)))


def qwen2_5_vl(words: PreTrainedTokenizerBase) -> PreTrainedModel:
    vision = {
        "depth": 2, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2,
        "out_hidden_size": TEXT["hidden_size"], "patch_size": PATCH, "spatial_merge_size": 2,
        "temporal_patch_size": 2, "window_size": 28, "fullatt_block_indexes": [1],
        "tokens_per_second": 2,
    }  # fmt: skip
    config = Qwen2_5_VLConfig(vision_config=vision, **mrope(words))
    return Qwen2_5_VLForConditionalGeneration(config)


def llava(words: PreTrainedTokenizerBase, **text: Any) -> PreTrainedModel:
    text = TEXT | ends(words) | {"model_type": "llama", "vocab_size": len(words)} | text
    config = LlavaConfig(
        text_config=text,
        vision_config=VISION | {"model_type": "clip_vision_model", "num_hidden_layers": 3},
        image_token_index=words.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-2, vision_feature_select_strategy="default",
        image_seq_length=(IMAGE // PATCH) ** 2, pad_token_id=words.pad_token_id,
    )  # fmt: skip
    return LlavaForConditionalGeneration(config)


def llava_wide(words: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Heads of 16: the fused rotary kernels of ONNX Runtime take no smaller ones."""
    return llava(words, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256)


def onevision(words: PreTrainedTokenizerBase) -> PreTrainedModel:
    text = TEXT | ends(words) | {"model_type": "qwen2", "vocab_size": len(words)}
    sides = [IMAGE * n for n in (1, 2, 3)]
    config = LlavaOnevisionConfig(
        text_config=text,
        vision_config=VISION | {"model_type": "siglip_vision_model", "vision_use_head": False},
        image_token_index=words.convert_tokens_to_ids("<image>"),
        video_token_index=words.convert_tokens_to_ids("<video>"),
        image_grid_pinpoints=[[rows, columns] for rows in sides for columns in sides],
        vision_aspect_ratio="anyres_max_4", vision_feature_layer=-1,
        vision_feature_select_strategy="full", **ends(words),
    )  # fmt: skip
    return LlavaOnevisionForConditionalGeneration(config)


def gemma3(words: PreTrainedTokenizerBase) -> PreTrainedModel:
    text = TEXT | ends(words) | {
        "vocab_size": len(words), "head_dim": 8, "query_pre_attn_scalar": 8,
        "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"],
        "rope_local_base_freq": 1000.0, "rope_theta": 10000.0,
    }  # fmt: skip
    config = Gemma3Config(
        text_config=text,
        vision_config=VISION | {"model_type": "siglip_vision_model", "vision_use_head": False},
        mm_tokens_per_image=4, tie_word_embeddings=False,
        **ids(words, image_token_index="<image_soft_token>", boi_token_index="<start_of_image>",
              eoi_token_index="<end_of_image>"),
        eos_token_id=[words.eos_token_id, words.convert_tokens_to_ids("<end_of_turn>")],
        bos_token_id=words.bos_token_id, pad_token_id=words.pad_token_id,
    )  # fmt: skip
    return Gemma3ForConditionalGeneration(config)


def paligemma(words: PreTrainedTokenizerBase) -> PreTrainedModel:
    text = TEXT | ends(words) | {"model_type": "gemma", "vocab_size": len(words), "head_dim": 8}
    config = PaliGemmaConfig(
        text_config=text,
        vision_config=VISION | {"model_type": "siglip_vision_model", "vision_use_head": False},
        image_token_index=words.convert_tokens_to_ids("<image>"),
        projection_dim=TEXT["hidden_size"], hidden_size=TEXT["hidden_size"],
        tie_word_embeddings=False, **ends(words),
    )  # fmt: skip
    return PaliGemmaForConditionalGeneration(config)


def fill(
    model: PreTrainedModel, words: PreTrainedTokenizerBase, seed: int, embedding_std: float
) -> None:
    """Random weights under which tokens wander, and go elsewhere for another image.

    Rows of the head get one length, so that no token wins everywhere; those of special tokens and
    of bytes that are no text alone are short, so that answers can be read.
    """
    weights.fill(model, seed, gain=2.4, embedding_std=embedding_std)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Conv2d | nn.Conv3d):  # what it sums over is more than a column
                weight = module.weight  # (out, in, ..., h, w)
                weight.mul_((weight.shape[-2] / weight[0].numel()) ** 0.5)
        head = model.get_output_embeddings().weight  # (V, H)
        head.mul_(head.norm() / len(head) ** 0.5 / head.norm(dim=1, keepdim=True))
        head[[i for i in range(len(head)) if not readable(words, i)]] *= UNREADABLE


def readable(words: PreTrainedTokenizerBase, token: int) -> bool:
    """Whether a token is text that can be seen, or a space."""
    if token in words.added_tokens_decoder:
        return False
    text = words.decode([token])
    return text.isascii() and text.isprintable()


def make(
    build: Any, words: PreTrainedTokenizerBase, seed: int, embedding_std: float = 1.0
) -> PreTrainedModel:
    """A model by one of the functions above, with eager attention."""
    torch.manual_seed(seed)
    model = build(words)
    model.set_attn_implementation("eager")
    fill(model, words, seed, embedding_std)
    return model.eval()
