"""IAO: integer-arithmetic-only quantization (Jacob et al. 2018), weights with the batch norm folded in.

    w_fold = gamma w / sqrt(var + eps)                            (section 3.2, eq. 14)
    q = round(w_fold / S) + Z,    w_fold ~ S (q - Z)              (eq. 1)

One range [a, b] for the whole layer, widened to hold 0, S = (b - a) / (2^bits - 2) and an integer zero
point Z, so that 0 is represented exactly; codes lie in [-127, 127] at 8 bits, never -128 (section 3.1).
The gradient is passed straight through.

What the layer computes with is S (q - Z) divided by gamma / sqrt(var + eps) again: its batch norm stays
where it is and multiplies by that factor, so the product is the folded layer's, and a prepared network
keeps its structure. The statistics in the factor are the running ones, as in eq. 14. After the part
`freeze` of the training the batch norm is put into eval mode, so that training then sees the
statistics it will be deployed with; before that, it normalises by those of the batch.

Because of Z there are two planes of codes with one scale: q, and the constant -Z. The engine has no
kernel for that; with `symmetric`, a = -b and Z = 0, there is one plane and the layer deploys.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dbq.plans.precision import Precision
from dbq.quantizers.contract import WeightQuantizer, check_finite, straight_through
from dbq.quantizers.dbq.branch import recompose
from dbq.quantizers.inputs import BatchNorm

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
        super().__init__(precision)
        self.kernels, self.freeze, self.symmetric = kernels, freeze, symmetric
        self.frozen = False  # follows from the progress of the training
        self._batch_norm: tuple[BatchNorm, ...] = ()  # in a tuple: it is saved elsewhere

    def follow(self, batch_norm: nn.Module | None) -> None:
        if isinstance(batch_norm, BatchNorm) and batch_norm.running_var is not None:
            self._batch_norm = (batch_norm,)

    def advance(self, progress: float, index: int, count: int) -> None:
        self.frozen = progress >= self.freeze

    def initialise(self, weight: Tensor) -> None:
        check_finite(weight)

    def forward(self, weight: Tensor) -> Tensor:
        if self.training and self.frozen:
            for batch_norm in self._batch_norm:
                batch_norm.eval()
        return straight_through(weight, recompose(*self._decompose(weight.detach())))

    @torch.no_grad()
    def codes(self, weight: Tensor) -> Tensor:
        return self._decompose(weight)[0]

    @torch.no_grad()
    def scales(self, weight: Tensor) -> Tensor:
        return self._decompose(weight)[1]

    def _decompose(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Codes and scales; with a zero point, the second plane of codes is -Z."""
        factor = self._factor(weight)  # [K]
        folded = weight * factor.reshape(-1, *[1] * (weight.ndim - 1))
        step, zero = self._grid(folded)
        largest = 2 ** (self.precision.size - 1) - 1
        q = ((folded / step).round() + zero).clamp(-largest, largest)
        planes = [q] if self.symmetric else [q, torch.full_like(q, -float(zero))]
        sign = factor.sign().reshape(-1, *[1] * (weight.ndim - 1))  # scales are never negative
        codes = torch.stack([plane * sign for plane in planes]).to(torch.int8)
        return codes, (step / factor.abs())[:, None].expand(-1, len(planes))

    def _factor(self, weight: Tensor) -> Tensor:
        """gamma / sqrt(var + eps) of the batch norm behind the layer; 1 where there is none."""
        for batch_norm in self._batch_norm:
            assert batch_norm.running_var is not None
            factor = (batch_norm.running_var + batch_norm.eps).rsqrt()
            if batch_norm.affine:
                factor = factor * batch_norm.weight.detach()
            factor = torch.where(factor.abs() > SMALLEST_FACTOR, factor, 1.0)
            return factor.to(weight)
        return weight.new_ones(self.kernels)

    def _grid(self, folded: Tensor) -> tuple[Tensor, Tensor]:
        """The step S and the zero point Z."""
        largest = 2 ** (self.precision.size - 1) - 1
        low, high = folded.amin().clamp(max=0), folded.amax().clamp(min=0)
        if self.symmetric:
            high = torch.maximum(-low, high)
            low = -high
        step = (high - low) / (2 * largest)
        step = torch.where(step > 0, step, 1.0)
        return step, (-largest - low / step).round()
