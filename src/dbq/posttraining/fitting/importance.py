"""How much each pixel of a layer's output matters to what the network says, and which errors cancel.

A layer with a few levels cannot be right everywhere. An error in the background hardly changes the
classes; one on the object does. For small errors d of a layer's output, the divergence of the
network's outputs is d' F d / 2, with

    F = J' S J,   J = d outputs / d layer's output,   S = diag(p) - p p'

p are the class probabilities. The diagonal of F comes from one backward pass: for v ~ N(0, S), the
gradient g = J' v has E[g g'] = F. A pixel matters by the sum of g^2 over its channels, relative to its
image's mean: every image counts alike, however sure the network is of it. One v says little about a
single pixel, so part of the weight goes to all pixels alike, and none gets more than a multiple.

The same gradients say what errors of different channels do together: of one pixel's errors e of all
channels, the network makes e' G e with G = E[g g'], again with every image counting alike. Errors in
channels whose gradients always come together cancel if they have opposite signs.

Outputs that are not one number for each class have S = 1: errors of them count squared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dbq.posttraining.agreement import is_classifier, tensors_of

EQUAL_SHARE = 0.1  # of the weight: the same for every pixel
LARGEST = 20.0  # times its image's mean: what a pixel counts at most
MOST_CHANNELS = 4096  # of a layer, for G to be summed up: it has their square
OWN_SHARE = 0.1  # of the mean diagonal of G: added, because few places of few images were looked at


@dataclass(frozen=True)
class Importance:
    """What errors of a layer's output do: how much each place counts, and channels together.

    `places` is [images, *places]; `channels` is G, [K, K], with a mean diagonal of 1 before a share of
    the identity was added, or None if there are too many.
    """

    places: Tensor
    channels: Tensor | None


def importance(
    model: nn.Module, images: Tensor, counts: dict[str, int], batch: int, seed: int
) -> dict[str, Importance]:
    """The importance of all places, for the first `counts[name]` images of each layer.

    Counts are rounded up to whole batches. A layer that the outputs do not depend on is left out.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Conv2d(2, 3, 2), nn.Flatten())
    >>> found = importance(net, torch.randn(4, 1, 2, 2), {"0": 4, "1": 2}, batch=2, seed=0)
    >>> [(name, tuple(of.places.shape), tuple(of.channels.shape)) for name, of in found.items()]
    [('0', (4, 2, 2), (2, 2)), ('1', (2, 1, 1), (3, 3))]
    """
    generator = torch.Generator().manual_seed(seed)
    parts: dict[str, list[Tensor]] = {}
    sums: dict[str, Tensor] = {}
    for start in range(0, len(images), batch):
        names = [name for name, count in counts.items() if start < count]
        if not names:
            break
        for name, gradient in _gradients(
            model, images[start : start + batch], names, generator
        ).items():
            gradient = gradient.float()
            if gradient.ndim == 4:
                gradient = gradient.movedim(1, -1)
            squares = gradient.square().sum(-1)
            parts.setdefault(name, []).append(_relative(squares))
            if gradient.shape[-1] <= MOST_CHANNELS:
                sums[name] = sums.get(name, 0.0) + _together(gradient)
    return {
        name: Importance(torch.cat(of_layer), _definite(sums[name]) if name in sums else None)
        for name, of_layer in parts.items()
    }


def _together(gradient: Tensor) -> Tensor:
    """The sum of g g' over all places, [K, K]; images count alike, those without gradients nothing."""
    rows = gradient.flatten(1, -2) if gradient.ndim > 2 else gradient.unsqueeze(1)
    squares = rows.square().sum((1, 2), keepdim=True)
    rows = (rows * torch.where(squares > 0, squares, 1.0).rsqrt()).flatten(0, 1)
    return (rows.mT @ rows).double()


def _definite(together: Tensor) -> Tensor:
    """Relative to the mean diagonal, and positive definite."""
    mean = together.diagonal().mean()
    return together / mean.where(mean > 0, 1.0) + OWN_SHARE * torch.eye(len(together)).to(together)


def _relative(squares: Tensor) -> Tensor:
    """To the mean of each image, within limits; images that nothing depends on count evenly."""
    rows = squares.flatten(1) if squares.ndim > 1 else squares.unsqueeze(1)
    mean = rows.mean(1, keepdim=True)
    rows = torch.where(mean > 0, rows / mean.where(mean > 0, 1.0), 1.0).clamp(max=LARGEST)
    rows = rows / rows.mean(1, keepdim=True)
    return (EQUAL_SHARE + (1 - EQUAL_SHARE) * rows).reshape(squares.shape)


def _gradients(
    model: nn.Module, images: Tensor, names: list[str], generator: torch.Generator
) -> dict[str, Tensor]:
    """J' v of each layer's output."""
    kept: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., Any]:
        def hook(module: nn.Module, args: Any, output: Any) -> Any:
            if not isinstance(output, Tensor):
                return output
            kept[name] = output
            return output.clone()  # what follows may write in place

        return hook

    handles = [model.get_submodule(name).register_forward_hook(keep(name)) for name in names]
    try:
        with torch.enable_grad():
            leaf = images.detach().clone().requires_grad_()
            outputs = [y for y in tensors_of(model(leaf.clone())) if y.requires_grad]
    finally:
        for handle in handles:
            handle.remove()
    reached = {name: y for name, y in kept.items() if y.requires_grad}
    if not (outputs and reached):
        return {}
    directions = [_direction(y.detach(), is_classifier(outputs), generator) for y in outputs]
    found = torch.autograd.grad(outputs, list(reached.values()), directions, allow_unused=True)
    return {name: g for name, g in zip(reached, found, strict=True) if g is not None}


def _direction(outputs: Tensor, classes: bool, generator: torch.Generator) -> Tensor:
    """v ~ N(0, S) for each image."""
    drawn = torch.randn(outputs.shape, generator=generator).to(outputs)
    if not classes:
        return drawn
    p = outputs.softmax(1)
    root = p.sqrt() * drawn
    return root - p * root.sum(1, keepdim=True)
