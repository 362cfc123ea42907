"""Builds the demo model: ``python -m scripts.demo_model MODEL.gguf FOLDER``."""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from .gguf_weights import GgufModel
from .graph import write_decoder
from .tokenizer import make_tokenizer, special_id, tokenizer_config


def main() -> None:
    parser = argparse.ArgumentParser(prog="demo_model", description=__doc__)
    parser.add_argument("gguf", type=Path, help="a GGUF file: architecture llama, layers in Q4_1")
    parser.add_argument("folder", type=Path, help="where to write; replaced if it exists")
    options = parser.parse_args()
    build(options.gguf, options.folder)


def build(gguf: Path, folder: Path) -> None:
    """Writes the graph, its weights, the tokenizer and the configuration files into ``folder``.

    The folder appears when all of it is written.
    """
    model = GgufModel(gguf)
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    ids = {f"{role}_token_id": special_id(model, role) for role in ("bos", "eos", "pad")}
    _save(part / "config.json", model_config(model) | ids)
    _save(part / "generation_config.json", ids)
    _save(part / "tokenizer_config.json", tokenizer_config(model))
    make_tokenizer(model).save(str(part / "tokenizer.json"))
    write_decoder(model, part)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def model_config(model: GgufModel) -> dict[str, Any]:
    """The content of ``config.json`` but for the ids of special tokens."""
    sizes = model.sizes
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": sizes.vocabulary,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.feed_forward,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head,
        "hidden_act": "silu",
        "max_position_embeddings": sizes.context,
        "rms_norm_eps": sizes.norm_epsilon,
        "rope_theta": sizes.rope_base,
        "tie_word_embeddings": "output.weight" not in model,
    }


def _save(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
