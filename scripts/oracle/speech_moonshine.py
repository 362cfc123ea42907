"""What transformers' Moonshine says of a clip."""

import copy
from typing import Any

import numpy as np
import torch
from transformers import MoonshineForConditionalGeneration

from .speech_answers import MARGIN, pool
from .speech_cases import Case
from .speech_clips import samples
from .speech_generate import Margins
from .speech_models import MOONSHINE

JSON = dict[str, Any]
A_SECOND = 6.5


def run(
    model: MoonshineForConditionalGeneration, waveform: np.ndarray, arguments: JSON, noise: int = 0
) -> JSON:
    """Tokens without the start token, and the text; `noise` as a seed disturbs the samples."""
    heard = torch.from_numpy(waveform)[None]
    if noise:
        generator = torch.Generator().manual_seed(noise)
        heard = heard + 1e-7 * torch.randn(heard.shape, generator=generator)
    margins = Margins()
    given = dict(arguments)
    if given.get("max_length") == "seconds":
        given["max_length"] = int(len(waveform) * A_SECOND / 16_000)
    with torch.inference_mode():
        out = model.generate(
            heard.to(model.dtype), attention_mask=torch.ones(heard.shape, dtype=torch.long),
            logits_processor=[margins], **given,
        )  # fmt: skip
    tokens = out[0, 1:].tolist()
    row = {"tokens": tokens, "text": MOONSHINE.fast.decode(tokens, skip_special_tokens=True)}
    if given.get("num_beams", 1) == 1:
        row["margin"] = round(margins.least, 5)
    return row


def answer(model: MoonshineForConditionalGeneration, case: Case, turn: int) -> JSON | None:
    """The case as expected.json has it, or None: no clip gives an answer that is fit for a test."""
    double = copy.deepcopy(model).double()
    for (clip,) in pool(str(case.clips), turn):
        row = run(model, samples(clip), case.arguments)
        others = [run(model, samples(clip), case.arguments, noise=1),
                  run(double, samples(clip), case.arguments)]  # fmt: skip
        fit = case.wants(row) and row.get("margin", MARGIN) >= MARGIN
        if fit and all(other["tokens"] == row["tokens"] for other in others):
            return {"name": case.name, "audio": [clip], "arguments": case.arguments} | row
    return None
