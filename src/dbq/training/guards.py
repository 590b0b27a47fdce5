"""Guards: parameters or losses that are not finite, and kernels that quantize to zero, by layer name."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from dbq.errors import TrainingError
from dbq.quantizers.frozen import Branches

ADVICE = "lower train.rate and train again, or check the input of that layer"


def stop_if_broken(model: nn.Module, where: str) -> None:
    """Raise if a parameter or a statistic is NaN or infinite; the error names the first."""
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if not torch.isfinite(tensor).all():
            raise TrainingError(f"{name} is not finite at {where}; {ADVICE}")


def explain_loss(model: nn.Module, images: Tensor, loss: float) -> TrainingError:
    """Explain a non-finite loss: name the first parameter, or else output, that is not finite."""
    try:
        stop_if_broken(model, "the last step")
    except TrainingError as broken:
        return TrainingError(f"the loss is {loss}: {broken}")
    layer = _first_bad_output(model, images)
    if layer is None:
        return TrainingError(
            f"the loss is {loss}, yet all layers are finite; check images and labels"
        )
    return TrainingError(f"the loss is {loss}: the output of {layer} is not finite; {ADVICE}")


@torch.no_grad()
def _first_bad_output(model: nn.Module, images: Tensor) -> str | None:
    bad: list[str] = []

    def look(name: str, output: Any) -> None:
        if isinstance(output, Tensor) and not torch.isfinite(output).all():
            bad.append(name)

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
    return bad[0] if bad else None


def dead_kernels(layers: Mapping[str, Branches]) -> dict[str, int]:
    """How many kernels of each layer have only zero weights; layers without any are left out.

    >>> codes, scales = torch.zeros(1, 2, 3, dtype=torch.int8), torch.ones(2, 1)
    >>> codes[0, 1] = 1
    >>> dead_kernels({"conv": Branches(codes, scales)})
    {'conv': 1}
    """
    counts = {
        name: int((layer.weight.flatten(1) == 0).all(dim=1).sum()) for name, layer in layers.items()
    }
    return {name: count for name, count in counts.items() if count}
