"""Tiny random models of transformers, and the step protocol on one of them, without a cache."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

VOCAB = 40


@cache
def tiny_model(seed: int) -> torch.nn.Module:
    """A Llama for even seeds, a GPT-2 for odd ones; weights wide enough for clear preferences."""
    torch.manual_seed(seed)
    if seed % 2:
        config = GPT2Config(
            vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=2, n_positions=64, initializer_range=0.3
        )
        model = GPT2LMHeadModel(config)
    else:
        config = LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=64,
            initializer_range=0.3,
        )
        model = LlamaForCausalLM(config)
    model.generation_config.bos_token_id = model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = None
    return model.eval()


class TorchSteps:
    """Runs each row's whole text in each step, unless it is in ``known``."""

    def __init__(self, model: torch.nn.Module, known: dict | None = None) -> None:
        self.model, self.vocab_size, self.capacity = model, VOCAB, 64
        self.rows: list[list[int]] | None = None
        self.known = {} if known is None else known  # logits (V,) after a row

    @torch.no_grad()
    def step(self, tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        rows = self.rows or [[] for _ in tokens]
        news = [new[:count].tolist() for new, count in zip(tokens, lengths, strict=True)]
        self.rows = [row + new for row, new in zip(rows, news, strict=True)]
        new = {tuple(row) for row in self.rows} - self.known.keys()
        for size in {len(row) for row in new}:
            batch = sorted(row for row in new if len(row) == size)
            logits = self.model(torch.tensor(batch), use_cache=False).logits[:, -1]
            self.known.update(zip(batch, logits.numpy(), strict=True))
        return np.stack([self.known[tuple(row)] for row in self.rows])

    def reorder(self, rows: Sequence[int]) -> None:
        self.rows = [list(self.rows[row]) for row in rows]
