"""The tokenizer of a GGUF file as the ``tokenizers`` library and transformers keep it."""

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from .gguf_weights import GgufModel

GGUF_ROLES = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
CONTROL, USER_DEFINED = 3, 4  # GGUF's types of tokens that no merge makes


def make_tokenizer(model: GgufModel) -> Tokenizer:
    """Byte-level BPE with SmolLM's way to cut text: each digit alone, then words as GPT-2 does."""
    kind = (model.field("tokenizer.ggml.model"), model.field("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise ValueError(f"the GGUF file has a tokenizer of the kind {kind}, wanted SmolLM's")
    tokens = model.field("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in model.field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(BPE({token: index for index, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, model.field("tokenizer.ggml.token_type"), strict=True):
        if kind in (CONTROL, USER_DEFINED):
            special = kind == CONTROL
            tokenizer.add_tokens([AddedToken(token, special=special, normalized=False)])
    return tokenizer


def tokenizer_config(model: GgufModel) -> dict[str, Any]:
    """The content of ``tokenizer_config.json``: the roles of special tokens, the chat template."""
    tokens = model.field("tokenizer.ggml.tokens")
    return {
        "tokenizer_class": "GPT2Tokenizer",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": model.sizes.context,
        **{f"{role}_token": tokens[special_id(model, role)] for role in GGUF_ROLES},
        "chat_template": model.field("tokenizer.chat_template"),
    }


def special_id(model: GgufModel, role: str) -> int:
    """The id of the token for a ``role``: bos, eos, unk or pad."""
    return int(model.field(f"tokenizer.ggml.{GGUF_ROLES[role]}_token_id"))
