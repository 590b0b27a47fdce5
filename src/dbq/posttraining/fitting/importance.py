"""How much each pixel of a layer's output matters to what the network says.

A layer with a few levels cannot be right everywhere. An error in the background hardly changes the
classes; one on the object does. For small errors d of a layer's output, the divergence of the
network's outputs is d' F d / 2, with

    F = J' S J,   J = d outputs / d layer's output,   S = diag(p) - p p'

p are the class probabilities. The diagonal of F comes from one backward pass: for v ~ N(0, S), the
gradient g = J' v has E[g g'] = F. A pixel matters by the sum of g^2 over its channels, relative to its
image's mean: every image counts alike, however sure the network is of it. One v says little about a
single pixel, so part of the weight goes to all pixels alike, and none gets more than a multiple.

Outputs that are not one number for each class have S = 1: errors of them count squared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dbq.posttraining.agreement import is_classifier, tensors_of

EQUAL_SHARE = 0.1  # of the weight: the same for every pixel
LARGEST = 20.0  # times its image's mean: what a pixel counts at most

# For each layer, [images, *places]: how much a place of its output counts.
Importance = dict[str, Tensor]


def importance(
    model: nn.Module, images: Tensor, counts: dict[str, int], batch: int, seed: int
) -> Importance:
    """The importance of all places, for the first `counts[name]` images of each layer.

    Counts are rounded up to whole batches. A layer that the outputs do not depend on is left out.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Conv2d(2, 3, 2), nn.Flatten())
    >>> found = importance(net, torch.randn(4, 1, 2, 2), {"0": 4, "1": 2}, batch=2, seed=0)
    >>> [(name, tuple(of_layer.shape)) for name, of_layer in found.items()]
    [('0', (4, 2, 2)), ('1', (2, 1, 1))]
    """
    generator = torch.Generator().manual_seed(seed)
    parts: dict[str, list[Tensor]] = {}
    for start in range(0, len(images), batch):
        names = [name for name, count in counts.items() if start < count]
        if not names:
            break
        for name, gradient in _gradients(
            model, images[start : start + batch], names, generator
        ).items():
            is_image = gradient.ndim == 4
            squares = gradient.float().square().sum(1 if is_image else -1)
            parts.setdefault(name, []).append(_relative(squares))
    return {name: torch.cat(of_layer) for name, of_layer in parts.items()}


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
