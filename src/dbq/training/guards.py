"""Guards: numbers that stopped being numbers, and kernels that quantize to nothing, by layer name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dbq.errors import TrainingError
from dbq.quantizers.frozen import Branches

ADVICE = "lower train.rate and train again, or look at what that layer was given"


def stop_if_broken(model: nn.Module, where: str) -> None:
    """Raise if a parameter is NaN or infinite, naming the first that is."""
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise TrainingError(f"{name} is not finite at {where}; {ADVICE}")


def explain_loss(model: nn.Module, images: Tensor, loss: float) -> TrainingError:
    """Why the loss is no number: the parameter that is none, or the layer that makes one of none."""
    try:
        stop_if_broken(model, "the last step")
    except TrainingError as broken:
        return TrainingError(f"the loss is {loss}: {broken}")
    layer = _first_bad_output(model, images) or "the loss itself: look at the images and labels"
    return TrainingError(f"the loss is {loss}, and what is first not finite is {layer}; {ADVICE}")


@torch.no_grad()
def _first_bad_output(model: nn.Module, images: Tensor) -> str | None:
    found: list[str] = []

    def look(name: str, output: Any) -> None:
        if isinstance(output, Tensor) and not torch.isfinite(output).all():
            found.append(f"the output of {name}")

    hooks = [
        module.register_forward_hook(lambda _, __, output, name=name: look(name, output))
        for name, module in model.named_modules()
        if name
    ]
    try:
        model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None


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
