"""TTQ: trained ternary quantization (Zhu et al. 2016, "Trained Ternary Quantization").

    threshold   Delta = t * max |w| over the layer, t = 0.05
    forward     q(w) = W_p u_p where w > Delta, -W_n u_n where w < -Delta, else 0
    gradient    dL/dW_p = u_p * sum of dL/dq where w > Delta
                dL/dW_n = -u_n * sum of dL/dq where w < -Delta
                dL/dw   = dL/dq times W_p where w > Delta, W_n where w < -Delta, 1 elsewhere
    start       W_p = W_n = 1

W_p and W_n are learned, one of each for a layer, as published. The publication prints the gradient
of W_n without the minus sign, as if -W_n were the number that is learned; with the level -W_n the
chain rule gives the minus, and only so does descent descend.

We differ in the units u_p, u_n. The publication divides the weights of a layer by their largest, so
that W_p = 1 is a sensible start. Weights of a trained network should stay what they are; here the
unit of a side is the mean |w| of the weights that take it at the start (1 if there are none), which
fits the levels to them. Learning the level itself, without a unit, does not work: the gradient is a
sum over a layer, and in front of a batch norm it grows as the level shrinks, so that at a level of
0.1 a step goes a hundred times as far, relative to the level, as at 1 (ResNet-20 on CIFAR-10 came to
28 % with a rate of 0.01).

A branch with two scales has two planes of codes, {0, 1} for the positive side and {-1, 0} for the
negative one, with the scales |W_p| u_p and |W_n| u_n. A scale that training has made negative negates
its plane.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dbq.plans.precision import Precision
from dbq.quantizers.contract import HardQuantizer, compose, require_size, require_within
from dbq.quantizers.tensors import per_kernel, straight_through, working_rows


class TtqQuantizer(HardQuantizer):
    """One ternary branch with a learned scale for each sign.

    >>> quantizer = TtqQuantizer(Precision("ternary", 1), kernels=1)
    >>> weight = torch.tensor([[-2.0, 0.05, 0.5, 1.0]])
    >>> quantizer.initialise(weight)
    >>> quantizer.eval()(weight).detach()
    tensor([[-2.0000,  0.0000,  0.7500,  0.7500]])
    """

    planes = 2
    units: Tensor

    def __init__(self, precision: Precision, kernels: int, threshold: float = 0.05) -> None:
        super().__init__(precision, kernels)
        require_size("ttq", precision, 1)
        require_within("ttq", "threshold", threshold, 0, 1)
        self.threshold = threshold
        self.W_p = nn.Parameter(torch.ones(1))
        self.W_n = nn.Parameter(torch.ones(1))
        self.register_buffer("units", torch.ones(1, 2))  # u_p, u_n

    @torch.no_grad()
    def initialise(self, weight: Tensor) -> None:
        super().initialise(weight)
        rows = working_rows(weight)
        for side, plane in enumerate(self._planes(rows)):
            count = plane.abs().sum()
            self.units[:, side] = (rows * plane).sum() / count if count else 1.0
        self.W_p.fill_(1.0)
        self.W_n.fill_(1.0)

    def forward(self, weight: Tensor) -> Tensor:
        rows = working_rows(weight)
        planes, levels = self._planes(rows), self._levels(rows)
        hard = compose(planes, levels.detach(), weight)
        planes, factors = planes.to(weight.dtype), self._factors(rows).detach().to(weight.dtype)
        slope = 1 + (_along(factors - 1) * planes.abs()).sum(0)
        # Linear in the weight and in both factors, so that their gradients are those above.
        soft = per_kernel(weight) * slope + (_along(levels.to(weight.dtype)) * planes).sum(0)
        return straight_through(soft.reshape(weight.shape), hard)

    def decompose(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self._planes(rows), self._levels(rows).detach()

    def _factors(self, rows: Tensor) -> Tensor:
        return torch.stack([self.W_p, self.W_n], 1).to(rows.dtype)  # 1 x 2

    def _levels(self, rows: Tensor) -> Tensor:
        return self._factors(rows) * self.units.to(rows.dtype)

    def _planes(self, rows: Tensor) -> Tensor:
        """2 x K x D: 1 where W_p is taken, and -1 where W_n is."""
        delta = self.threshold * rows.abs().max()
        return torch.stack([(rows > delta).to(rows.dtype), -(rows < -delta).to(rows.dtype)])


def _along(pair: Tensor) -> Tensor:
    """1 x 2 as 2 x 1 x 1: a number for each plane."""
    return pair.T.unsqueeze(2)
