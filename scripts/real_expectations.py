"""What transformers says in float32 for 20 prompts: real_expectations.py CHECKPOINT OUT.json

Runs in the oracle environment that scripts/real_models makes. For each prompt: its ids, the 64
greedy tokens (fewer if the model ends) and, for each, how far the best logit was from the second.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

STEPS = 64
PLAIN = [
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "Water boils at 100 degrees Celsius because",
    "1, 1, 2, 3, 5, 8,",
    "Dear Sir or Madam,\n\nI am writing to",
    "The three laws of motion are:\n1.",
    "Photosynthesis",
    "Q: Why is the sky blue?\nA:",
    "In 1969, the first humans walked on the Moon. " * 12 + "Since then,",
]
CHATS = [
    "What is the capital of France?",
    "Write a haiku about autumn.",
    "Explain recursion to a child.",
    "List five vegetables.",
    "Translate 'good morning' into Spanish.",
    "Who wrote Romeo and Juliet?",
    "What is 12 times 12?",
    "Give me a recipe for pancakes.",
    "Summarise: The quick brown fox jumps over the lazy dog. " * 8,
    "Name a country that begins with J, and its capital. Antworte kurz, s'il vous plaît 😀.",
]


@torch.no_grad()
def greedy(model: Any, ids: list[int]) -> tuple[list[int], list[float]]:
    """By the plain cache of transformers; stops behind the end-of-sequence token."""
    fed, past, tokens, margins = torch.tensor([ids]), None, [], []
    while len(tokens) < STEPS:
        out = model(fed, past_key_values=past, use_cache=True)
        past = out.past_key_values
        best = out.logits[0, -1].topk(2)
        tokens.append(int(best.indices[0]))
        margins.append(round(float(best.values[0] - best.values[1]), 6))
        if tokens[-1] == model.config.eos_token_id:
            break
        fed = best.indices[None, :1]
    generated = model.generate(torch.tensor([ids]), max_new_tokens=STEPS, do_sample=False)
    assert generated[0, len(ids) :].tolist() == tokens, "generate takes other tokens"
    return tokens, margins


def main(checkpoint: str, out: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    rows = [{"text": text, "ids": tokenizer(text)["input_ids"]} for text in PLAIN]
    for text in CHATS:
        chat = [{"role": "user", "content": text}]
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True)
        rows.append({"chat": chat, "ids": ids})
    for row in rows:
        row["tokens"], row["margins"] = greedy(model, row["ids"])
        row["answer"] = tokenizer.decode(row["tokens"], skip_special_tokens=True)
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    Path(out).write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main(*sys.argv[1:3])
