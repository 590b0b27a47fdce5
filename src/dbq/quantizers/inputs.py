"""Activations: where to clip a tensor, and its fixed-point quantizer.

    q(x) = s * round(clip(x, 0, c) / s),   s = c / (2^b - 1)          unsigned, after a ReLU
    q(x) = s * round(clip(x, -c, c) / s),  s = c / (2^(b-1) - 1)      signed, otherwise

with the gradient passed where nothing is clipped. One c serves all channels: only then is the dot
product that follows a fixed-point one. Three rules give c: batch norm (eq. 13), a constant (ReLU6),
or a running range.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dbq.plans.precision import Precision

BatchNorm = nn.modules.batchnorm._BatchNorm

SMALLEST_CLIP = 1e-6  # keeps the step positive if a batch norm has died (all beta, gamma <= 0)


class BatchNormClip(nn.Module):
    """c = max over channels of beta + k|gamma| (unsigned) or |beta| + k|gamma| (signed).

    gamma may be negative, hence the modulus. If y ~ N(beta, gamma^2) in each channel, k = 6 clips
    one value in a billion at most. Read from the live batch norm at every call, never trained
    through; `cap` is the 6 of a ReLU6 between the two.
    """

    def __init__(self, batch_norm: BatchNorm, k: float, signed: bool, cap: float | None) -> None:
        super().__init__()
        # In a tuple the batch norm is not a submodule: it lives, and is saved, elsewhere.
        self._batch_norm = (batch_norm,)
        self.k, self.signed, self.cap = k, signed, cap

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        (batch_norm,) = self._batch_norm
        if batch_norm.affine:
            beta = batch_norm.bias.abs() if self.signed else batch_norm.bias
            clip = (beta + self.k * batch_norm.weight.abs()).max().float()
        else:
            clip = torch.tensor(self.k, device=x.device)
        return clip.clamp(SMALLEST_CLIP, self.cap)

    def extra_repr(self) -> str:
        return f"k={self.k:g}"


class ConstantClip(nn.Module):
    """c is a constant, as in ReLU6."""

    clip: Tensor

    def __init__(self, clip: float) -> None:
        super().__init__()
        self.register_buffer("clip", torch.tensor(clip), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.clip

    def extra_repr(self) -> str:
        return f"{float(self.clip):g}"


class Follower(nn.Module):
    """What follows the tensors that pass it in train(), of which `dbq.calibrate` makes it think anew.

    `momentum` is the weight of the newest batch. Where batches only give a parameter its first value,
    `is_learned` says so: that value is then the gradient's, and calibrating leaves it alone.
    """

    momentum = 0.1
    is_learned = False

    @property
    def has_seen(self) -> bool:
        """Whether any batch has left a trace."""
        raise NotImplementedError

    def reset(self) -> None:
        """Forget all batches."""
        raise NotImplementedError


class RunningClip(Follower):
    """c follows the largest |x| of the batches seen.

    Until one has been seen, each tensor is clipped at its own largest value.
    """

    limit: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("limit", torch.zeros(()))

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        if not x.numel():
            return self.limit.clamp(min=SMALLEST_CLIP)
        low, high = x.detach().aminmax()
        largest = torch.maximum(-low, high).to(self.limit.dtype)
        if self.training:
            if dist.is_available() and dist.is_initialized():
                dist.all_reduce(largest, dist.ReduceOp.MAX)  # of the batch of all processes
            moved = torch.lerp(self.limit, largest, self.momentum)
            self.limit.copy_(torch.where(self.limit > 0, moved, largest))
        clip = torch.where(self.limit > 0, self.limit, largest)
        return clip.clamp(min=SMALLEST_CLIP)

    @property
    def has_seen(self) -> bool:
        return bool(self.limit > 0)

    def reset(self) -> None:
        self.limit.zero_()


class InputQuantizer(nn.Module):
    """Fixed-point quantizer of the tensor a layer reads.

    >>> quantizer = InputQuantizer(Precision("fixed", 2), signed=False, clip=ConstantClip(6.0))
    >>> quantizer(torch.tensor([-1.0, 0.9, 3.5, 9.0]))
    tensor([0., 0., 4., 6.])
    """

    def __init__(self, precision: Precision, signed: bool, clip: nn.Module) -> None:
        super().__init__()
        self.precision, self.signed = precision, signed
        self.clip = clip

    @property
    def code_range(self) -> tuple[int, int]:
        """Smallest and largest integer code."""
        bits = self.precision.size
        return (1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1) if self.signed else (0, 2**bits - 1)

    def scale(self, x: Tensor) -> Tensor:
        """The step s between neighbouring codes, a scalar tensor."""
        step: Tensor = self.clip(x) / self.code_range[1]
        return step

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = _RoundAndClip.apply(x, self.scale(x), *self.code_range)  # type: ignore[no-untyped-call]
        return result

    def extra_repr(self) -> str:
        return f"{self.precision} {'signed' if self.signed else 'unsigned'}"


class _RoundAndClip(torch.autograd.Function):
    """Keeps x itself for the backward pass: after a ReLU it is alive anyway, a mask would not be."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, low: int, high: int) -> Tensor:
        ctx.save_for_backward(x, scale)
        ctx.code_range = low, high
        codes = (x.float() / scale).clamp_(low, high).round_()
        return codes.mul_(scale).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, scale = ctx.saved_tensors
        low, high = ctx.code_range
        # One new tensor, written three times: page faults, not arithmetic, are what costs here.
        # Unsigned: x < 0 does not occur after a ReLU, whose own gradient is zero there.
        inside = torch.empty_like(gradients[0])
        torch.le(torch.abs(x) if low < 0 else x, high * scale, out=inside)
        return inside.mul_(gradients[0]), None, None, None
