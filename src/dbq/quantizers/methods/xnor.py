"""XNOR: the sign of the weight times the mean modulus of its kernel (Rastegari et al. 2016,
"XNOR-Net: ImageNet Classification Using Binary Convolutional Neural Networks", the
Binary-Weight-Network of section 3.1).

    forward     q(w) = alpha sign(w),  alpha = |w|_1 / n  over the n weights of a kernel, sign(0) = 1
    gradient    dL/dw_i = dL/dq_i (1/n + alpha 1{|w_i| <= 1})

alpha is the least-squares scale of sign(w). It follows the live weight: there is no state.

The gradient is the publication's, 1/n elementwise. It is not the derivative of alpha sign(w): alpha
depends on all weights of the kernel, which would give sign(w_i)/n sum_k dL/dq_k sign(w_k) in place
of dL/dq_i / n. The publication prints the slope of the sign as r 1{|r| <= 1} and says that it is
that of BNN; we take it from there, without the factor r. XNOR-Net's binary activations are not part
of this.
"""

from __future__ import annotations

from torch import Tensor

from dbq.plans.precision import Precision
from dbq.quantizers.contract import HardQuantizer, require_size
from dbq.quantizers.tensors import signs


class XnorQuantizer(HardQuantizer):
    """One binary branch per kernel.

    >>> import torch
    >>> XnorQuantizer(Precision("binary", 1), kernels=1)(torch.tensor([[-0.25, 0.0, 1.25]]))
    tensor([[-0.5000,  0.5000,  0.5000]])
    """

    def __init__(self, precision: Precision, kernels: int) -> None:
        super().__init__(precision, kernels)
        require_size("xnor", precision, 1)

    def decompose(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return signs(rows).unsqueeze(0), rows.abs().mean(1, keepdim=True)

    def slope(self, rows: Tensor, scales: Tensor) -> Tensor:
        return 1 / rows.shape[1] + scales * (rows.abs() <= 1)
