"""BNN: the sign of the weight (Courbariaux et al. 2015, "BinaryConnect: Training Deep Neural
Networks with binary weights during propagations"; Courbariaux et al. 2016, "Binarized Neural
Networks").

    forward     q(w) = sign(w), with sign(0) = 1; the scale is 1
    gradient    dL/dw = dL/dq where |w| <= 1, else 0 (straight-through, the slope of a hard tanh)

There is nothing to initialise. Both publications also clip the weight to [-1, 1] after each update:
beyond it has no influence. Here that is done when the weight is next used in train(), in place. It
is safe with autograd: nothing in this file keeps the weight for the backward pass, only a mask;
whoever did keep it earlier in the same step (a penalty on the weights, say) is told by autograd,
with an error. Without the clipping a weight that momentum has carried out would never see a
gradient again. Frozen weights, and tensors computed from others, are left as they are.

BinaryConnect passes the gradient everywhere, which is the same once weights are clipped. We differ
in two things: its stochastic variant is not offered, and learning rates, which it scales by the
size of the layer, are the recipe's business.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dbq.plans.precision import Precision
from dbq.quantizers.contract import require_size
from dbq.quantizers.hard import HardQuantizer, signs


class BnnQuantizer(HardQuantizer):
    """One binary branch of scale 1.

    >>> BnnQuantizer(Precision("binary", 1), kernels=1)(torch.tensor([[-0.2, 0.0, 0.7]]))
    tensor([[-1.,  1.,  1.]])
    """

    def __init__(self, precision: Precision, kernels: int) -> None:
        super().__init__(precision)
        require_size("bnn", precision, 1)
        self.kernels = kernels

    def forward(self, weight: Tensor) -> Tensor:
        if self.training and weight.is_leaf and weight.requires_grad:
            with torch.no_grad():
                weight.clamp_(-1, 1)
        return super().forward(weight)

    def decompose(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return signs(rows).unsqueeze(0), rows.new_ones(len(rows), 1)

    def slope(self, rows: Tensor, scales: Tensor) -> Tensor:
        return rows.abs() <= 1
