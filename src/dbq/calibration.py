"""calibrate: batch-norm statistics and activation ranges of the hard network, without labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from dbq.activations import BatchNorm, RunningClip
from dbq.errors import DbqError
from dbq.roles import evaluating


@torch.no_grad()
def calibrate(model: nn.Module, batches: Iterable[Any]) -> int:
    """Estimate batch-norm statistics and running ranges anew; returns the number of batches.

    A batch is an input tensor, or a tuple or list whose first element is one (labels are ignored).
    Quantizing shifts what each batch norm sees, and re-estimating repairs most of the damage
    without training. Statistics are plain averages over the batches, weights are hard.

    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    >>> calibrate(net, [torch.randn(16, 3, 8, 8), torch.randn(16, 3, 8, 8)])
    2
    >>> net[1].running_mean.abs().max() > 0
    tensor(True)
    """
    norms = [m for m in model.modules() if isinstance(m, BatchNorm) and m.track_running_stats]
    clips = [m for m in model.modules() if isinstance(m, RunningClip)]
    iterator = iter(batches)
    first = next(iterator, None)
    if first is None:
        raise DbqError("calibrate got no batches: give at least one")
    momenta = [norm.momentum for norm in norms]
    count = 0
    try:
        with evaluating(model):
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None  # None means: a plain average
                norm.train()
            for clip in clips:
                clip.reset()
                clip.train()
            batch: Any = first
            while batch is not None:
                model(_images(batch))
                count += 1
                batch = next(iterator, None)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
    return count


def _images(batch: Any) -> Tensor:
    images = batch[0] if isinstance(batch, tuple | list) else batch
    if not isinstance(images, Tensor):
        raise DbqError(f"calibrate: a batch is a {type(images).__name__}, expected a tensor")
    return images
