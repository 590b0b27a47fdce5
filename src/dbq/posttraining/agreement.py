"""How well the quantized network agrees with the float one, on images that nothing was fitted to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dbq.errors import LayerError
from dbq.model.modes import evaluating

BATCH = 16


@dataclass(frozen=True)
class Agreement:
    """`same` is the share of images whose largest output is the same; `distance` judges stages.

    The distance is the mean Kullback-Leibler divergence of the class probabilities, or the squared error
    relative to the float output where the output is not one number for each class.
    """

    same: float | None
    distance: float


def tensors_of(output: Any) -> list[Tensor]:
    """The tensors in a network's output: itself, or those of a tuple, list or dict."""
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, tuple | list):
        return [tensor for part in output for tensor in tensors_of(part)]
    raise LayerError(f"the model returns a {type(output).__name__}, expected tensors")


@torch.no_grad()
def run(model: nn.Module, images: Tensor) -> list[Tensor]:
    """The outputs for all images, batch by batch."""
    with evaluating(model):
        parts = [tensors_of(model(part)) for part in torch.split(images, BATCH)]
    return [torch.cat(part) for part in zip(*parts, strict=True)]


def agreement(wanted: list[Tensor], got: list[Tensor]) -> Agreement:
    """Compare the outputs of the quantized network with those of the float one.

    >>> agreement([torch.tensor([[1.0, 0.0]])], [torch.tensor([[1.0, 0.0]])])
    Agreement(same=1.0, distance=0.0)
    """
    if is_classifier(wanted):
        same = float((wanted[0].argmax(1) == got[0].argmax(1)).double().mean())
        return Agreement(same, float(divergence(got[0], wanted[0])))
    pairs = list(zip(wanted, got, strict=True))
    error = sum(float((b - a).double().square().sum()) for a, b in pairs)
    power = sum(float(a.double().square().sum()) for a, _ in pairs)
    return Agreement(None, error / max(power, 1e-30))


def is_classifier(outputs: list[Tensor]) -> bool:
    return len(outputs) == 1 and outputs[0].ndim == 2 and outputs[0].shape[1] > 1


def divergence(got: Tensor, wanted: Tensor, temperature: float = 1.0) -> Tensor:
    """Mean KL(wanted || got) of softmax probabilities at a temperature, times its square."""
    ours, theirs = (F.log_softmax(x.float() / temperature, 1) for x in (got, wanted))
    kl = F.kl_div(ours, theirs, reduction="batchmean", log_target=True)
    return kl * temperature**2


def relative_errors(
    got: dict[str, Tensor],
    wanted: dict[str, Tensor],
    weigh: Callable[[Tensor, Tensor], Tensor | float] = lambda got, wanted: 1.0,
) -> Iterator[Tensor]:
    """Squared error of each tensor relative to the wanted one's power; `weigh` says what counts."""
    for name, target in wanted.items():
        weight = weigh(got[name].detach(), target)
        power = (weight * target.square()).mean().clamp(min=1e-12)
        yield (weight * (got[name] - target).square()).mean() / power
