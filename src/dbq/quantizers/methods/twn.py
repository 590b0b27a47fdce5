"""TWN: ternary weight networks (Li et al. 2016, "Ternary Weight Networks").

    threshold   Delta = factor * mean |w|
    forward     q(w) = alpha sign(w) where |w| > Delta, else 0;  alpha = mean of |w| over |w| > Delta
    gradient    dL/dw = dL/dq (straight-through)

For its own Delta, alpha is the least-squares scale. The Delta that goes with the best alpha has no
closed form; the publication's rule of thumb lies between the optima for uniform and for normal
weights. Its factor is 0.7; later versions of the text say 0.75. Both follow the live weight: there
is no state.

We differ in one thing: the publication has one Delta and alpha for a layer, here each kernel has
its own, as in the other methods of this package. `per_channel = false` is the publication's.
"""

from __future__ import annotations

import math

from torch import Tensor

from dbq.plans.precision import Precision
from dbq.quantizers.contract import HardQuantizer, require_size, require_within


class TwnQuantizer(HardQuantizer):
    """One ternary branch with a threshold that is a multiple of the mean modulus.

    >>> import torch
    >>> TwnQuantizer(Precision("ternary", 1), kernels=1)(torch.tensor([[-2.0, 0.5, 0.5, 1.0]]))
    tensor([[-1.5000,  0.0000,  0.0000,  1.5000]])
    """

    def __init__(
        self, precision: Precision, kernels: int, factor: float = 0.7, per_channel: bool = True
    ) -> None:
        super().__init__(precision, kernels)
        require_size("twn", precision, 1)
        require_within("twn", "factor", factor, 0, math.inf)
        self.factor, self.per_channel = factor, per_channel

    def decompose(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        groups = rows if self.per_channel else rows.reshape(1, -1)
        modulus = groups.abs()
        beyond = modulus > self.factor * modulus.mean(1, keepdim=True)
        count = beyond.sum(1, keepdim=True).clamp(min=1)  # none in a kernel of zeros
        alpha = (modulus * beyond).sum(1, keepdim=True) / count
        return (groups.sign() * beyond).unsqueeze(0), alpha
