"""Batch norm over the batches of all processes together, on any device.

torch's own SyncBatchNorm refuses CPU tensors, and it replaces modules, which would break the link
between an input quantizer and its batch norm. This one changes the class of the module in place, and
autograd differentiates through the sums.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class SyncedBatchNorm2d(nn.BatchNorm2d):
    """nn.BatchNorm2d whose training statistics are those of the global batch."""

    def forward(self, input: Tensor) -> Tensor:
        alone = not (dist.is_initialized() and dist.get_world_size() > 1)
        if alone or not self.training:
            return super().forward(input)
        dtype = torch.promote_types(
            input.dtype, torch.float32
        )  # half precision is too coarse for a variance
        x = input.to(dtype)
        count = x.new_tensor([x.numel() / x.shape[1]])
        dist.all_reduce(count)
        # Two passes: the variance about the global mean does not cancel as E[x^2] - E[x]^2 does.
        mean = _total(x.sum((0, 2, 3))) / count
        centred = x - mean[:, None, None]
        variance = _total(centred.square().sum((0, 2, 3))) / count
        self._track(mean.detach(), variance.detach() * (count / (count - 1)))
        y = centred * torch.rsqrt(variance + self.eps)[:, None, None]
        if self.affine:
            y = y * self.weight[:, None, None] + self.bias[:, None, None]
        return y.to(input.dtype)

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor) -> None:
        if not self.track_running_stats:
            return
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        momentum = self.momentum
        if momentum is None:
            momentum = 1 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean, momentum)
        self.running_var.lerp_(variance, momentum)


class _Total(torch.autograd.Function):
    """The sum over all processes; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _summed(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _summed(gradients[0])


def _summed(x: Tensor) -> Tensor:
    total = x.contiguous().clone()
    dist.all_reduce(total)
    return total


def _total(x: Tensor) -> Tensor:
    result: Tensor = _Total.apply(x)  # type: ignore[no-untyped-call]
    return result


def synchronise_batch_norms(model: nn.Module) -> None:
    """Make every plain BatchNorm2d of `model` a synchronised one, in place."""
    for module in model.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = SyncedBatchNorm2d
