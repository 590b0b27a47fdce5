"""Methods whose weights are sums of scaled codes in train() as well: only the gradient is soft.

    forward     q(w) = sum_j scale_j * code_j, the same value in train() and in eval()
    gradient    dL/dw = dL/dq * slope, elementwise; a slope of 1 is the plain straight-through estimator

A method says how a weight is decomposed, and what its slope is.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from dbq.errors import PlanError
from dbq.quantizers.contract import (
    WeightQuantizer,
    check_finite,
    per_kernel,
    straight_through,
    working_type,
)
from dbq.quantizers.dbq.staircase import sum_branches


class HardQuantizer(WeightQuantizer):
    """Half-precision weights are decomposed in float32: means and levels need all their bits."""

    @abstractmethod
    def decompose(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Codes [branches, K, D] and scales [K, branches] of `rows` [K, D], in its data type.

        If all kernels share their scales, they may be one row: [branches, 1, K D], [1, branches].
        Here scales may be negative.
        """

    def slope(self, rows: Tensor, scales: Tensor) -> Tensor:
        """What a gradient is multiplied with on its way to the weight, to broadcast with K x D."""
        return rows.new_ones(1, 1)

    def initialise(self, weight: Tensor) -> None:
        check_finite(weight)

    def forward(self, weight: Tensor) -> Tensor:
        with torch.no_grad():
            rows = working_rows(weight)
            codes, scales = self.decompose(rows)
            hard = compose(codes, scales, weight)
            slope = self.slope(rows, scales).to(weight.dtype)
        return straight_through((per_kernel(weight) * slope).reshape(weight.shape), hard)

    @torch.no_grad()
    def codes(self, weight: Tensor) -> Tensor:
        codes, _ = nonnegative(*self.decompose(working_rows(weight)))
        return codes.to(torch.int8).reshape(-1, *weight.shape)

    @torch.no_grad()
    def scales(self, weight: Tensor) -> Tensor:
        _, scales = nonnegative(*self.decompose(working_rows(weight)))
        return scales.expand(len(weight), -1)


def working_rows(weight: Tensor) -> Tensor:
    """K x D, at least float32, without gradient."""
    return per_kernel(weight.detach()).to(working_type(weight))


def compose(codes: Tensor, scales: Tensor, weight: Tensor) -> Tensor:
    """The value of a decomposition of `weight`, in its shape and type."""
    value = sum_branches(codes.unbind(0), scales).reshape(weight.shape).to(weight.dtype)
    # A NaN is on neither side of a threshold; it must not come out as an innocent level.
    return torch.where(weight.isnan(), weight, value)


def signs(x: Tensor) -> Tensor:
    """1 where x >= 0, else -1: a binary code has no zero.

    >>> signs(torch.tensor([-2.0, -0.0, 0.0, 3.0]))
    tensor([-1.,  1.,  1.,  1.])
    """
    return (x >= 0).to(x.dtype).mul_(2).sub_(1)


def nonnegative(codes: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """The same sums, to the bit, with scales >= 0: a negative one turns its codes round."""
    return codes * signs(scales).T.unsqueeze(2), scales.abs()


def require_within(method: str, option: str, value: float, low: float, high: float) -> None:
    """Raise PlanError unless low <= value <= high."""
    if not low <= value <= high:
        raise PlanError(f"option {option} = {value:g} of {method!r}: expected {low:g} to {high:g}")
