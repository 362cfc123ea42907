"""A batch in a decoder with GroupQueryAttention: padded on the right, caches longer than needed.

Letters: B rows, S tokens of the longest prompt, C places of a cache, D the decoder's width.
"""

import numpy as np

from .vlm_replay import Graphs, Prompt

Arrays = dict[str, np.ndarray]


def greedy(graphs: Graphs, prompts: list[Prompt], new: int) -> list[list[int]]:
    """`new` tokens for each prompt."""
    lengths = np.array([prompt.ids.shape[1] for prompt in prompts])
    longest = int(lengths.max())
    rows = [
        np.pad(graphs.embeds(prompt), ((0, 0), (0, longest - length), (0, 0)))
        for prompt, length in zip(prompts, lengths, strict=True)
    ]
    past = graphs.empty(len(rows), longest + new)
    logits, past = run(graphs, np.concatenate(rows), ones(lengths, longest), past)
    chosen = [logits[np.arange(len(rows)), lengths - 1].argmax(-1)]
    for done in range(1, new):
        embeds = graphs.embed.run(None, {"input_ids": chosen[-1][:, None]})[0]  # (B,1,D)
        logits, past = run(graphs, embeds, ones(lengths + done, longest + done), past)
        chosen.append(logits[:, -1].argmax(-1))
    return np.stack(chosen, 1).tolist()


def ones(lengths: np.ndarray, total: int) -> np.ndarray:
    """The mask (B,total): each row's ones come first."""
    return (np.arange(total) < lengths[:, None]).astype(np.int64)


def run(
    graphs: Graphs, embeds: np.ndarray, mask: np.ndarray, past: Arrays
) -> tuple[np.ndarray, Arrays]:
    """Logits (B,S,V) and caches, as long as they were."""
    logits, found = graphs.run({"inputs_embeds": embeds, "attention_mask": mask, **past})
    assert all(found[name].shape == past[name].shape for name in past)
    return logits, found
