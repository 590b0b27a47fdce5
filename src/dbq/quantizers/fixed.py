"""Fixed-point weights: symmetric, 2 to 8 bits, one scale per output kernel or per tensor.

    q(w) = s * round(w / s),    s = max|w| / (2^(b-1) - 1)

The scale follows the live weight, so there is no state to save or to lose. The gradient is passed
straight through (nothing is clipped: the largest weight is the largest level).
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from dbq.plans.precision import MAX_BITS, Precision
from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.fitting.output_error import (
    descend,
    grouped,
    in_turn,
    output_error,
    round_in_order,
)
from dbq.quantizers.frozen import FixedPoint
from dbq.quantizers.tensors import along_kernels, per_kernel, straight_through

SWEEPS = 3
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)  # of the largest weight that the last level may stand for


def _to_grid(column: Tensor, step: Tensor, largest: int) -> Tensor:
    return (column / step).round().clamp(-largest, largest) * step


class FixedPointQuantizer(WeightQuantizer):
    """Symmetric fixed-point weights.

    >>> quantizer = FixedPointQuantizer(Precision("fixed", 2), kernels=1)
    >>> quantizer(torch.tensor([[-1.0, 0.2, 0.6]]))
    tensor([[-1.,  0.,  1.]])
    """

    def __init__(self, precision: Precision, kernels: int, per_channel: bool = True) -> None:
        super().__init__(precision, kernels)
        self.per_channel = per_channel

    def forward(self, weight: Tensor) -> Tensor:
        codes, scale = self._decompose(weight)
        return straight_through(weight, codes * scale)

    @torch.no_grad()
    def fit(self, target: Tensor, moments: Tensor, together: Tensor | None = None) -> Tensor:
        """Codes by output error, for several scales; each kernel keeps its best.

        The scale is that of the largest weight, so a kernel's largest weight must take the last level:
        what the codes came to is quantized again by the rule, and judged as such.
        """
        self.initialise(target)
        moments = moments.double()
        if together is None or len(moments) > 1 or not self.per_channel:
            return self._fit(target, moments)
        rows = per_kernel(target.detach())
        weight = torch.empty_like(rows)

        def fit_some(chosen: Tensor, wanted: Tensor) -> Tensor:
            weight[chosen] = self._fit(wanted.to(rows), moments)
            return self._rows(weight[chosen], moments)[0]

        in_turn(rows.double(), together, fit_some)
        return weight.reshape(target.shape)

    def _fit(self, target: Tensor, moments: Tensor) -> Tensor:
        """Each kernel for itself."""
        rows = grouped(per_kernel(target.detach()).double(), moments)
        largest = self.precision.largest_code
        peak = rows.abs().amax(2, keepdim=True)
        peak = peak if self.per_channel else peak.amax((0, 1), keepdim=True).expand_as(peak)
        best = target.detach().clone()
        least = output_error(self._rows(best, moments), rows, moments)
        for share in SHARES if self.precision.size < MAX_BITS else SHARES[:1]:
            step = (peak * share / largest).squeeze(2)
            step = torch.where(step > 0, step, 1.0)
            on_grid = partial(_to_grid, step=step, largest=largest)
            found = descend(round_in_order(rows, moments, on_grid), rows, moments, on_grid, SWEEPS)
            weight = found.reshape(target.shape).to(target.dtype)
            error = output_error(self._rows(weight, moments), rows, moments)
            better = (
                error < least if self.per_channel else (error.sum() < least.sum()).expand_as(error)
            )
            best = torch.where(along_kernels(better.flatten(), weight), weight, best)
            least = torch.where(better, error, least)
        return best

    def _rows(self, weight: Tensor, moments: Tensor) -> Tensor:
        codes, scale = self._decompose(weight)
        return grouped(per_kernel(codes * scale).double(), moments)

    @torch.no_grad()
    def freeze(self, weight: Tensor) -> FixedPoint:
        codes, scale = self._decompose(weight)
        return FixedPoint(codes.to(torch.int8), scale.flatten().expand(self.kernels))

    def _decompose(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Codes, and scales that broadcast against them; a kernel of zeros has scale 1, codes 0."""
        weight, largest = weight.detach(), self.precision.largest_code
        rows = per_kernel(weight) if self.per_channel else weight.reshape(1, -1)
        scale = rows.abs().amax(dim=1) / largest
        scale = torch.where(scale > 0, scale, 1.0)  # zeros, or too small for a scale
        scale = along_kernels(scale, weight)
        return (weight / scale).round().clamp(-largest, largest), scale
