"""ABC-Net: weights as a sum of scaled binary bases (Lin et al. 2017, "Towards Accurate Binary
Convolutional Neural Network"), M bases for a precision of M binary branches.

    bases       B_m = sign(w - mean(w) + u_m std(w)),  u_m = -1 + 2 (m - 1) / (M - 1),  u_1 = 0 if M = 1
    scales      alpha = the least-squares solution of w ~ sum_m alpha_m B_m
    forward     q(w) = sum_m alpha_m B_m
    gradient    dL/dw = dL/dq sum_m alpha_m

sign(0) = 1 and std is that of the weights themselves (divided by n). All of it follows the live
weight: there is no state. Where bases coincide, in a constant kernel for one, the first takes the whole
scale.

How we read the gradient: the publication goes back through each base with the straight-through
estimator, dB_m/dw = 1, the alphas taken as constants, and sums over the bases. It writes the sum as
that of alpha_m dc/dB_m; taken with dc/dB_m = alpha_m dc/dq it would count alpha_m twice. By the
chain rule, with alpha_m B_m as one term of q, each base contributes alpha_m dL/dq; that is what we
do. Nothing is clipped.

We differ in one thing: mean, std and alphas are those of a kernel. `per_channel = false` is the
main text's, one set for a layer; the publication mentions both. Its binary activations are not part
of this.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dbq.plans.precision import Precision
from dbq.quantizers.contract import HardQuantizer
from dbq.quantizers.fitting.least_squares import normal_equations, solve
from dbq.quantizers.tensors import signs


class AbcNetQuantizer(HardQuantizer):
    """One to three binary branches, cut at the mean and at one standard deviation from it.

    >>> quantizer = AbcNetQuantizer(Precision("binary", 2), kernels=1)
    >>> quantizer(torch.tensor([[-3.0, -0.5, 0.5, 3.0]]))
    tensor([[-3.,  0.,  0.,  3.]])
    """

    def __init__(self, precision: Precision, kernels: int, per_channel: bool = True) -> None:
        super().__init__(precision, kernels)
        self.per_channel = per_channel

    def decompose(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        groups = rows if self.per_channel else rows.reshape(1, -1)
        centred = groups - groups.mean(1, keepdim=True)
        deviation = groups.std(1, correction=0, keepdim=True)
        M = self.precision.size
        shifts = [-1 + 2 * m / (M - 1) for m in range(M)] if M > 1 else [0.0]
        bases = torch.stack([signs(centred + u * deviation) for u in shifts])
        return bases, solve(normal_equations(bases, groups), groups.new_zeros(len(groups), M))

    def slope(self, rows: Tensor, scales: Tensor) -> Tensor:
        return scales.sum(1, keepdim=True)
