"""Fixed-point weights: symmetric, 2 to 8 bits, one scale per output kernel or per tensor.

    q(w) = s * round(w / s),    s = max|w| / (2^(b-1) - 1)

The scale follows the live weight, so there is no state to save or to lose. The gradient is passed
straight through (nothing is clipped: the largest weight is the largest level).
"""

from __future__ import annotations

import torch
from torch import Tensor

from dbq.plans.precision import Precision
from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.frozen import FixedPoint
from dbq.quantizers.tensors import along_kernels, per_kernel, straight_through


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
