"""What a model's config files say that its graph cannot: token ids, generation defaults, length."""

from collections.abc import Mapping
from typing import Any

from onnxgen.files import ModelFiles

GENAI_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
# In the order of trust; the first that is there counts.
LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
SUB_CONFIGS = ("text_config", "decoder", "language_config", "phi_config")


def generation_defaults(files: ModelFiles) -> dict[str, Any]:
    """generation_config.json alone if there is one, else what config.json holds of its keys.

    That order, without a mixture, is transformers'. genai_config.json gives token ids where
    neither file is there; its search options are that program's own.
    """
    if files.path("generation_config.json"):
        return files.json("generation_config.json")
    config = files.json("config.json")
    if config:
        nested = [config[key] for key in SUB_CONFIGS if isinstance(config.get(key), dict)]
        merged: dict[str, Any] = {}
        for part in [*nested, config]:
            merged.update({key: value for key, value in part.items() if value is not None})
        return merged
    model = _genai(files)
    return {key: model[key] for key in GENAI_IDS if model.get(key) is not None}


def graph_config(files: ModelFiles) -> dict[str, Any]:
    """The sizes that graphs may leave open, by config.json's names, from either config file."""
    decoder = _genai(files).get("decoder")
    sizes = {}
    if isinstance(decoder, Mapping):
        names = ("hidden_size", "num_attention_heads", "num_key_value_heads")
        sizes = {name: decoder[name] for name in names if name in decoder}
        sizes |= {"head_dim": decoder["head_size"]} if "head_size" in decoder else {}
    return {**sizes, **files.json("config.json")}


def context_length(files: ModelFiles) -> int | None:
    """How many tokens the model was made for, None where no file says."""
    config = files.json("config.json")
    for part in [config, *(config.get(key) for key in SUB_CONFIGS)]:
        if isinstance(part, Mapping):
            for key in LENGTH_KEYS:
                if isinstance(part.get(key), int) and part[key] > 0:
                    return int(part[key])
    length = _genai(files).get("context_length")
    return length if isinstance(length, int) and length > 0 else None


def _genai(files: ModelFiles) -> Mapping[str, Any]:
    model = files.json("genai_config.json").get("model")
    return model if isinstance(model, dict) else {}
