"""BNN: the sign of the weight (Courbariaux et al. 2015, "BinaryConnect: Training Deep Neural
Networks with binary weights during propagations"; Courbariaux et al. 2016, "Binarized Neural
Networks").

    forward     q(w) = sign(w), with sign(0) = 1; the scale is 1
    gradient    dL/dw = dL/dq where |w| <= 1, else 0 (straight-through, the slope of a hard tanh)

There is nothing to initialise. Both publications also clip the weight to [-1, 1] after each update:
values beyond that have no influence, and without the clipping a weight that momentum has carried out
would never see a gradient again. A quantizer is not told about updates, so it does this when the
weight is next used in train(), in place.

BinaryConnect passes the gradient everywhere, which is the same once weights are clipped. We differ
in two things: its stochastic variant is not offered, and learning rates, which it scales by the
size of the layer, are the recipe's business.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dbq.plans.precision import Precision
from dbq.quantizers.contract import HardQuantizer, require_size
from dbq.quantizers.tensors import signs


class BnnQuantizer(HardQuantizer):
    """One binary branch of scale 1.

    >>> BnnQuantizer(Precision("binary", 1), kernels=1)(torch.tensor([[-0.2, 0.0, 0.7]]))
    tensor([[-1.,  1.,  1.]])
    """

    def __init__(self, precision: Precision, kernels: int) -> None:
        super().__init__(precision, kernels)
        require_size("bnn", precision, 1)

    def forward(self, weight: Tensor) -> Tensor:
        if self.training and weight.is_leaf and weight.requires_grad:  # not frozen, not computed
            # Safe with autograd: only a mask is kept for the backward pass, not the weight. If
            # something else kept the weight earlier in the same step (a penalty on it, say), autograd
            # raises an error.
            with torch.no_grad():
                weight.clamp_(-1, 1)
        return super().forward(weight)

    def decompose(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return signs(rows).unsqueeze(0), rows.new_ones(len(rows), 1)

    def slope(self, rows: Tensor, scales: Tensor) -> Tensor:
        return rows.abs() <= 1
