"""Configurations that a selection graph can carry out."""

from typing import Any

import numpy as np


def random_options(rng: np.random.Generator, vocab: int) -> dict[str, Any]:
    """Any of the options that the graph knows, each in a third of all cases."""

    def ids(most=40):
        return rng.choice(vocab, rng.integers(1, most), replace=False).tolist()

    values = {
        "logit_bias": {i: float(rng.normal(0, 3)) for i in ids()},
        "sequence_bias": {(i,): float(rng.normal(0, 3)) for i in ids()},
        "repetition_penalty": float(rng.uniform(0.5, 3)),
        "bad_words_ids": [[i] for i in ids()],
        "min_length": int(rng.integers(0, 12)),
        "min_new_tokens": int(rng.integers(0, 3)),
        "forced_bos_token_id": int(rng.integers(vocab)),
        "forced_eos_token_id": ids(3),
        "suppress_tokens": ids(),
        "begin_suppress_tokens": ids(),
        "temperature": float(rng.uniform(0.3, 2)),
        "top_k": int(rng.integers(1, vocab)),
        "top_p": float(rng.uniform(0.05, 1)),
        "min_p": float(rng.uniform(0, 0.3)),
        "renormalize_logits": True,
        "logprobs": True,
        "top_logprobs": int(rng.integers(1, 5)),
    }
    chosen = {name: value for name, value in values.items() if rng.random() < 0.35}
    chosen.setdefault("top_k", 0)
    return {**chosen, "eos_token_id": ids(4)}
