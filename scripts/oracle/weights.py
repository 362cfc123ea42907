"""Random weights under which greedy tokens wander instead of falling into a fixed point."""

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D


def fill(model: PreTrainedModel, seed: int, gain: float, embedding_std: float) -> None:
    """Replaces every parameter in place.

    Matrices get the standard deviation gain / sqrt(fan in), so that queries and keys of unit-sized
    inputs give attention scores of a few units: a wrong mask or position changes the tokens.
    Vectors (norm weights, biases) keep their initial value plus noise, so that each one counts.
    """
    generator = torch.Generator().manual_seed(seed)
    done: set[int] = set()
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            if parameter.data_ptr() in done:  # tied to one that has been filled
                continue
            done.add(parameter.data_ptr())
            noise = torch.randn(parameter.shape, generator=generator)
            with torch.no_grad():
                if isinstance(module, nn.Embedding):
                    parameter.copy_(noise * embedding_std)
                elif parameter.dim() == 1:
                    parameter.add_(noise * 0.15)
                else:
                    parameter.copy_(noise * gain / fan_in(module, parameter) ** 0.5)


def fan_in(module: nn.Module, parameter: torch.Tensor) -> int:
    """How many inputs one output of the matrix sums over."""
    if isinstance(module, nn.Conv1d):
        return parameter.shape[1] * parameter.shape[2]
    if isinstance(module, nn.Linear):
        return parameter.shape[1]
    if isinstance(module, Conv1D):
        return parameter.shape[0]
    return parameter.shape[-2]  # stacked experts: (experts, in, out)
