"""Random weights under which an encoder-decoder wanders from token to token, and now and then ends.

Beside what weights.py does for decoders:

- the norm before the head gets random signs: with tied embeddings a token would otherwise be
  followed by itself;
- the rows of the head get one length, so that no token wins everywhere; those of special tokens are
  short, so that runs are text, and that of eos is long, so that some runs end by it;
- where norms follow the sum (BART, Marian), attention and feed-forward layers of the decoder are
  damped, for they would drown the token;
- positions that are computed stay as they are.
"""

import torch
from torch import nn
from transformers import PreTrainedModel

from . import weights
from .seq2seq_families import Family

GAIN = 2.4
SPECIAL = 0.4  # length of a special token's row


def make(family: Family, seed: int) -> PreTrainedModel:
    """The family's model with random weights."""
    torch.manual_seed(seed)
    model = family.model(family.config)
    waves = [m for m in model.modules() if "Sinusoidal" in type(m).__name__]
    computed = [(m.weight, m.weight.clone()) for m in waves if isinstance(m, nn.Embedding)]
    weights.fill(model, seed, GAIN, family.embedding_std)
    head = model.get_output_embeddings().weight  # (V, H)
    with torch.no_grad():
        for weight, value in computed:
            weight.copy_(value)
        for name, module in model.named_modules():
            if isinstance(module, nn.Conv2d):  # filled as if it summed over one column only
                module.weight.mul_((module.weight.shape[2] / module.weight[0].numel()) ** 0.5)
            if "decoder" in name and name.endswith(("out_proj", "fc2")):
                module.weight.mul_(family.branch)
        norm = last_norm(model).weight
        norm.mul_(family.sharpness * (torch.randint(0, 2, norm.shape) * 2 - 1))
        head.mul_(head.norm() / len(head) ** 0.5 / head.norm(dim=1, keepdim=True))
        head[sorted(family.special)] *= SPECIAL
        head[family.ids["eos_token_id"]] *= family.eos / SPECIAL
    return model.eval()


def last_norm(model: PreTrainedModel) -> nn.Module:
    """The norm before the head."""
    named = model.get_decoder().named_modules()
    norms = {name: module for name, module in named if "Norm" in type(module).__name__}
    return [norm for name, norm in norms.items() if "embedding" not in name][-1]
