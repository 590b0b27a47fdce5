"""Fixed point weights: symmetric, 2 to 8 bits, one scale per output kernel or per tensor.

    q(w) = s * round(w / s),    s = max|w| / (2^(b-1) - 1)

The scale follows the live weight, so there is no state to save or to lose. The gradient is passed
straight through (nothing is clipped: the largest weight is the largest level).
"""

from __future__ import annotations

import torch
from torch import Tensor

from dbq.plans.precision import Precision
from dbq.quantizers.contract import WeightQuantizer, check_finite, per_kernel, straight_through


class FixedPointQuantizer(WeightQuantizer):
    """Symmetric fixed-point weights.

    >>> quantizer = FixedPointQuantizer(Precision("fixed", 2), kernels=1)
    >>> quantizer(torch.tensor([[-1.0, 0.2, 0.6]]))
    tensor([[-1.,  0.,  1.]])
    """

    def __init__(self, precision: Precision, kernels: int, per_channel: bool = True) -> None:
        super().__init__(precision)
        self.kernels = kernels
        self.per_channel = per_channel

    def initialise(self, weight: Tensor) -> None:
        check_finite(weight)

    def forward(self, weight: Tensor) -> Tensor:
        scale = self._scale(weight)
        return straight_through(weight, self._codes(weight, scale) * scale)

    def _scale(self, weight: Tensor) -> Tensor:
        """K x 1 x ... (per channel) or 1 x 1 x ...; a kernel of zeros gets scale 1, codes 0."""
        rows = per_kernel(weight.detach()) if self.per_channel else weight.detach().reshape(1, -1)
        peak = rows.abs().amax(dim=1)
        scale = peak / self._largest_code
        scale = torch.where(scale > 0, scale, 1.0)  # zeros, or too small for a scale
        return scale.reshape(-1, *[1] * (weight.ndim - 1))

    @property
    def _largest_code(self) -> int:
        return int(2 ** (self.precision.size - 1) - 1)

    def _codes(self, weight: Tensor, scale: Tensor) -> Tensor:
        limit = self._largest_code
        return (weight.detach() / scale).round().clamp(-limit, limit)

    @torch.no_grad()
    def codes(self, weight: Tensor) -> Tensor:
        return self._codes(weight, self._scale(weight)).to(torch.int8).unsqueeze(0)

    @torch.no_grad()
    def scales(self, weight: Tensor) -> Tensor:
        return self._scale(weight).reshape(-1, 1).expand(self.kernels, 1)
