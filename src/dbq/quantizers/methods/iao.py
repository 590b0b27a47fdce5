"""IAO: integer-arithmetic-only quantization (Jacob et al. 2018), weights with the batch norm folded in.

    w_fold = gamma w / sqrt(var + eps)                            (section 3.2, eq. 14)
    q = round(w_fold / S) + Z,    w_fold ~ S (q - Z)              (eq. 1)

One range [a, b] for the whole layer, widened to hold 0, S = (b - a) / (2^bits - 2) and an integer zero
point Z, so that 0 is represented exactly; codes lie in [-127, 127] at 8 bits, never -128 (section 3.1).
The gradient is passed straight through.

What the layer computes with is S (q - Z) divided by gamma / sqrt(var + eps) again: its batch norm stays
where it is and multiplies by that factor, so the product is the folded layer's, and a prepared network
keeps its structure. The statistics in the factor are the running ones, as in eq. 14. Once the share
`freeze` of the training is over, the batch norm stays in eval mode, so that training sees the
statistics it will be deployed with; before that, it normalises by those of the batch.

The engine has no kernel for weights with a zero point; with `symmetric`, a = -b and Z = 0, the layer
deploys.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dbq.plans.precision import Precision
from dbq.quantizers.contract import BatchNorm, WeightQuantizer
from dbq.quantizers.frozen import FixedPoint
from dbq.quantizers.tensors import along_kernels, keep_nan, straight_through

SMALLEST_FACTOR = 1e-12  # a batch norm that has died (gamma = 0) is not folded


class IaoQuantizer(WeightQuantizer):
    """Affine fixed-point weights of the folded layer.

    >>> quantizer = IaoQuantizer(Precision("fixed", 3), kernels=1)  # seven levels
    >>> quantizer(torch.tensor([[-1.0, 0.2, 3.4, 5.0]]))
    tensor([[-1.,  0.,  3.,  5.]])
    """

    def __init__(
        self, precision: Precision, kernels: int, freeze: float = 0.5, symmetric: bool = False
    ) -> None:
        super().__init__(precision, kernels)
        self.freeze_at, self.symmetric = freeze, symmetric
        self.frozen = False  # follows from the progress of the training
        self._batch_norm: tuple[BatchNorm, ...] = ()  # in a tuple: it is saved elsewhere

    def follow(self, batch_norm: nn.Module | None) -> None:
        if isinstance(batch_norm, BatchNorm) and batch_norm.running_var is not None:
            self._batch_norm = (batch_norm,)

    def advance(self, progress: float, index: int, count: int) -> None:
        self.frozen = progress >= self.freeze_at

    def forward(self, weight: Tensor) -> Tensor:
        if self.training and self.frozen:
            # In every step: `model.train()` puts the batch norm back into training mode. The layer
            # runs before it, so this takes effect in the same step.
            for batch_norm in self._batch_norm:
                batch_norm.eval()
        return straight_through(weight, keep_nan(weight, self.freeze(weight).weight))

    @torch.no_grad()
    def freeze(self, weight: Tensor) -> FixedPoint:
        factor = self._factor(weight)  # [K]
        folded = weight * along_kernels(factor, weight)
        step, zero = self._grid(folded)
        largest = self.precision.largest_code
        q = ((folded / step).round() + zero).clamp(-largest, largest)
        sign = factor.sign()  # moves to codes and zero points: scales are never negative
        codes = (q * along_kernels(sign, weight)).to(torch.int8)
        zeros = None if self.symmetric else (zero * sign).to(torch.int8)
        return FixedPoint(codes, step / factor.abs(), zeros)

    def _factor(self, weight: Tensor) -> Tensor:
        """gamma / sqrt(var + eps) of the batch norm behind the layer; 1 where there is none."""
        for batch_norm in self._batch_norm:
            assert batch_norm.running_var is not None
            factor = (batch_norm.running_var + batch_norm.eps).rsqrt()
            if batch_norm.affine:
                factor = factor * batch_norm.weight.detach()
            return torch.where(factor.abs() > SMALLEST_FACTOR, factor, 1.0).to(weight)
        return weight.new_ones(self.kernels)

    def _grid(self, folded: Tensor) -> tuple[Tensor, Tensor]:
        """The step S and the zero point Z."""
        largest = self.precision.largest_code
        low, high = folded.amin().clamp(max=0), folded.amax().clamp(min=0)
        if self.symmetric:
            high = torch.maximum(-low, high)
            low = -high
        step = (high - low) / (2 * largest)
        step = torch.where(step > 0, step, 1.0)
        return step, (-largest - low / step).round()
