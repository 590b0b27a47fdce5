"""Guards: numbers that stopped being numbers, and kernels that quantize to nothing, by layer name."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from dbq.decomposition import Branches
from dbq.errors import TrainingError


def stop_if_not_finite(model: nn.Module, loss: float, where: str) -> None:
    """Raise if the loss is NaN or infinite, naming the first parameter that is, or its gradient."""
    if loss - loss == 0:  # false for NaN and infinity
        return
    raise TrainingError(
        f"the loss is {loss} at {where}: {_first_bad(model)}; lower train.rate, or resume from the "
        "last checkpoint with another recipe"
    )


def _first_bad(model: nn.Module) -> str:
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            return f"{name} is not finite"
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            return f"the gradient of {name} is not finite"
    return "all parameters and gradients are finite, so it is the loss itself or an image"


def dead_kernels(layers: Mapping[str, Branches]) -> dict[str, int]:
    """How many kernels of each layer have no weight left but zero; layers without are left out.

    >>> codes, scales = torch.zeros(1, 2, 3, dtype=torch.int8), torch.ones(2, 1)
    >>> codes[0, 1] = 1
    >>> dead_kernels({"conv": Branches(codes, scales)})
    {'conv': 1}
    """
    found = {}
    for name, layer in layers.items():
        kernels = layer.weight.flatten(1)
        dead = int((kernels == 0).all(dim=1).sum())
        if dead:
            found[name] = dead
    return found
