"""Beam search of one prompt from its specification, slow: whole rows, loops, no cache.

Float32 where transformers has float32: a score of -1e9 swallows what is added to it.
"""

import numpy as np

F = np.float32
LOW = F(-1e9)


def reference(
    logits_after,
    prompt,
    *,
    beams,
    room,
    stops=(),
    penalty=1.0,
    early=False,
    process=None,
    draw=None,
):
    """All finished slots, best first, each (tokens, beam indices, score).

    ``logits_after`` maps a row of ids to logits (V,), ``process`` changes log-probabilities of a
    row, ``draw`` picks K of the summed scores (N·V,) in place of the best.
    """
    count = max(2, 1 + len(stops)) * beams
    running = [([], [], F(0) if beam == 0 else LOW) for beam in range(beams)]
    slots = [([], [], LOW, False) for _ in range(beams)]
    length, is_open = 0, True
    while True:
        sums = [continuation_scores(logits_after, prompt, beam, process) for beam in running]
        flat = np.concatenate(sums)  # (N·V,)
        order = sorted(range(len(flat)), key=lambda i: (-flat[i], i))[:count]
        if draw is not None:
            order = sorted(draw(flat, count), key=lambda i: (-flat[i], i))
        length += 1
        candidates = []
        for index in order:
            beam, token = divmod(index, len(flat) // beams)
            tokens, beam_indices, _ = running[beam]
            hit = token in stops or length == room
            candidates.append(([*tokens, token], [*beam_indices, beam], flat[index], hit))
        finished = [
            (tokens, indices, F(score / F(length**penalty)), True)
            for tokens, indices, score, hit in candidates[:beams]
            if hit
        ]
        slots = sorted([*slots, *finished], key=lambda slot: -slot[2])[:beams]
        ranked = [(t, i, F(s + LOW) if hit else s) for t, i, s, hit in candidates]
        running = sorted(ranked, key=lambda beam: -beam[2])[:beams]
        far = early == "never" and penalty > 0
        best = F(running[0][2] / F((room if far else length) ** penalty))
        worst = [min(slot[2] for slot in slots) if slot[3] else LOW for slot in slots]
        is_open = is_open and any(best > score for score in worst)
        full = all(slot[3] for slot in slots) and early is True
        if not is_open or full or all(hit for *_, hit in candidates):
            return [slot[:3] for slot in slots]


def continuation_scores(logits_after, prompt, beam, process):
    tokens, _, score = beam
    row = [*prompt, *tokens]
    logits = logits_after(row).astype(F)
    shifted = logits - logits.max()
    scores = shifted - np.log(np.exp(shifted).sum())
    if process is not None:
        process(row, scores)
    return scores + score
