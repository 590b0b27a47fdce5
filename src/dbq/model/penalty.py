"""size_penalty: the price of weights that take more bits than they should."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dbq.model.layers import quantized_weights


def size_penalty(model: nn.Module, bits: float) -> Tensor | None:
    """max(0, mean bits of a weight - `bits`)^2 over all layers whose precision is learned.

    None if there are no such layers. Add it to the loss, times a small factor: the number of bits has
    the slope 1 / d, and the step d is small.
    """
    sizes, total = [], 0
    for quantizer, weight in quantized_weights(model).values():
        learned = quantizer.learned_bits()
        if learned is not None:
            sizes.append(learned * weight.numel())
            total += weight.numel()
    return (torch.stack(sizes).sum() / total - bits).relu().square() if sizes else None
