"""The architectures: configuration, scale of the random weights, and whatever is special."""

from dataclasses import dataclass, field
from typing import Any

from .tokens import BOS_ID, EOS_ID, PAD_ID, VOCAB

COMMON = {
    "vocab_size": VOCAB,
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
    "pad_token_id": PAD_ID,
}
SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
#: heads of 16: the fused rotary kernels of ONNX Runtime take no smaller ones
WIDE = SMALL | {"hidden_size": 64, "intermediate_size": 64}

FALCON = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}


@dataclass(frozen=True)
class Family:
    """One architecture.

    `model_type` names the configuration class of transformers, `gain` and `embedding_std` scale the
    random weights (see weights.py), `use_cache` and `attention` say how the expectations are run.
    """

    model_type: str
    config: dict[str, Any]
    gain: float = 2.4
    embedding_std: float = 1.0
    use_cache: bool = True
    attention: str = "eager"
    #: settings that must change the tokens, so that a graph that ignores them is found out
    matters: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        return COMMON | self.config


FAMILIES: dict[str, Family] = {
    "llama": Family("llama", WIDE | {"tie_word_embeddings": True}),
    "gpt2": Family(
        "gpt2",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128},
    ),
    "gemma3_text": Family(
        "gemma3_text",
        SMALL
        | {
            "head_dim": 16,
            "num_hidden_layers": 3,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "query_pre_attn_scalar": 16,
            "rope_local_base_freq": 100.0,
            "rope_theta": 10_000.0,
            "tie_word_embeddings": False,
        },
        embedding_std=0.3,
        matters={"sliding_window": 1000},
    ),
    "bloom": Family(
        "bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "tie_word_embeddings": False}
    ),
    "gpt_bigcode": Family(
        "gpt_bigcode",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "multi_query": True},
    ),
    "lfm2": Family(
        "lfm2",
        WIDE
        | {
            "num_hidden_layers": 3,
            "layer_types": ["conv", "full_attention", "conv"],
            "conv_L_cache": 3,
            "block_auto_adjust_ff_dim": False,
            "tie_word_embeddings": True,
        },
        # 4.57.6 loses a state of its cache after a prompt shorter than the convolution
        use_cache=False,
    ),
    "qwen3": Family("qwen3", SMALL | {"head_dim": 16, "tie_word_embeddings": False}),
    "mistral": Family(
        "mistral",
        SMALL | {"head_dim": 16, "sliding_window": 8},
        matters={"sliding_window": None},
    ),
    "mistral-full": Family("mistral", SMALL | {"head_dim": 16, "sliding_window": None}),
    "phi3": Family("phi3", SMALL | {"original_max_position_embeddings": 128}),
    "opt": Family(
        "opt",
        {
            "hidden_size": 32,
            "word_embed_proj_dim": 32,
            "ffn_dim": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "max_position_embeddings": 128,
            "tie_word_embeddings": False,
        },
    ),
    "falcon": Family("falcon", FALCON | {"multi_query": True, "parallel_attn": True}),
    "falcon-alibi": Family(
        "falcon",
        FALCON | {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True},
        attention="sdpa",  # the eager code of 4.57.6 adds the bias twice
    ),
    "mpt": Family(
        "mpt",
        {
            "d_model": 32,
            "n_heads": 4,
            "n_layers": 2,
            "max_seq_len": 128,
            "tie_word_embeddings": False,
        },
    ),
    "gpt_neox": Family("gpt_neox", SMALL | {"rotary_pct": 0.5, "use_parallel_residual": True}),
    "codegen": Family(
        "codegen",
        {
            "n_embd": 32,
            "n_ctx": 128,
            "n_layer": 2,
            "n_head": 4,
            "rotary_dim": 4,
            "n_positions": 128,
        },
    ),
    "gpt_neo": Family(
        "gpt_neo",
        {
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 8,
            "max_position_embeddings": 128,
        },
        matters={"window_size": 1000},
    ),
    "cohere": Family("cohere", SMALL | {"logit_scale": 0.5}),
    "granite": Family(
        "granite",
        SMALL
        | {
            "embedding_multiplier": 4.0,
            "residual_multiplier": 0.7,
            "attention_multiplier": 0.2,
            "logits_scaling": 3.0,
        },
    ),
    "deepseek_v3": Family(
        "deepseek_v3",
        SMALL
        | {
            "num_key_value_heads": 4,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 12,
            "first_k_dense_replace": 2,
            "n_routed_experts": 4,
            "n_group": 1,
            "topk_group": 1,
            "num_experts_per_tok": 2,
        },
    ),
    "gpt_oss": Family(
        "gpt_oss",
        SMALL
        | {
            "head_dim": 8,
            "sliding_window": 8,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "rope_scaling": None,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        matters={"sliding_window": 1000},
    ),
    "gemma2": Family(
        "gemma2",
        SMALL
        | {
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": 8,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 8.0,
            "tie_word_embeddings": False,
        },
        embedding_std=0.3,
        matters={"sliding_window": 1000},
    ),
}
