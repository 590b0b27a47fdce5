"""Tensor helpers that several quantizers share. K is the number of kernels, D their length."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def per_kernel(weight: Tensor) -> Tensor:
    """K x D: one row for each output kernel."""
    return weight.reshape(weight.shape[0], -1)


def working_type(x: Tensor) -> torch.dtype:
    """Half-precision tensors are quantized in float32: levels and steps need all their bits."""
    return torch.promote_types(x.dtype, torch.float32)


def working_rows(weight: Tensor) -> Tensor:
    """K x D, at least float32, without gradient."""
    return per_kernel(weight.detach()).to(working_type(weight))


def along_kernels(x: Tensor, weight: Tensor) -> Tensor:
    """One number per kernel (or one for all), shaped to broadcast against `weight`."""
    return x.reshape(-1, *[1] * (weight.ndim - 1))


def keep_nan(weight: Tensor, hard: Tensor) -> Tensor:
    """`hard` in the type of `weight`, but NaN where `weight` is NaN.

    Comparisons with NaN are false, so without this a NaN weight would come out as an ordinary level
    and the damage would go unnoticed.
    """
    return torch.where(weight.isnan(), weight, hard.to(weight.dtype))


def signs(x: Tensor) -> Tensor:
    """1 where x >= 0, else -1: a binary code has no zero.

    >>> signs(torch.tensor([-2.0, -0.0, 0.0, 3.0]))
    tensor([-1.,  1.,  1.,  1.])
    """
    return (x >= 0).to(x.dtype).mul_(2).sub_(1)


def midpoints(values: Tensor) -> Tensor:
    return (values[..., 1:] + values[..., :-1]) / 2


def nearest(rows: Tensor, levels: Tensor) -> Tensor:
    """Which of its K x N ascending levels each of K x D numbers is nearest to.

    >>> nearest(torch.tensor([[0.1, 0.9]]), torch.tensor([[0.0, 1.0]]))
    tensor([[0, 1]])
    """
    return torch.searchsorted(midpoints(levels).contiguous(), rows.contiguous())


def sorted_levels(alpha: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """The levels sum_j e_ij alpha_j of each kernel in ascending order, and their rows in `codes`.

    `alpha` is K x B, `codes` N x B, both results are K x N. The sort is stable, so equal levels keep
    the order of `codes`.
    """
    per_branch = codes.T.to(alpha).unsqueeze(1)  # B x 1 x N
    return sum_branches(per_branch.unbind(0), alpha).sort(dim=1, stable=True)


def sum_branches(codes: tuple[Tensor, ...], scales: Tensor) -> Tensor:
    """sum_j scales[:, j] * codes[j], added in the order of j so that equal codes give equal bits."""
    total = codes[0] * scales[:, :1]
    for j in range(1, len(codes)):
        total = total + codes[j] * scales[:, j : j + 1]
    return total


def over_processes(x: Tensor, largest: bool = False) -> Tensor:
    """The sum (or the largest) of `x` over all processes of a training, in place."""
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(x, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM)
    return x


def straight_through(weight: Tensor, quantized: Tensor) -> Tensor:
    """`quantized` going forward; going back, its gradient is handed to `weight` unchanged.

    >>> w = torch.tensor([0.3, -2.0], requires_grad=True)
    >>> (straight_through(w, w.detach().sign()) * torch.tensor([5.0, 7.0])).sum().backward()
    >>> w.grad
    tensor([5., 7.])
    """
    result: Tensor = _StraightThrough.apply(weight, quantized)  # type: ignore[no-untyped-call]
    return result


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, quantized: Tensor) -> Tensor:
        return quantized.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


def positive(parameter: Tensor, smallest: float) -> Tensor:
    """|p|, at least `smallest`; its gradient is the sign of p (1 at zero), below `smallest` too.

    An optimizer may step over zero, and where the gradient vanished the parameter could never leave.

    >>> positive(torch.tensor([-2.0, 0.0, 3.0]), smallest=0.5)
    tensor([2.0000, 0.5000, 3.0000])
    """
    size = torch.where(parameter < 0, -parameter, parameter)
    return straight_through(size, size.detach().clamp(min=smallest))
