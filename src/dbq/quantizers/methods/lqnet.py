"""LQ-Nets: levels from a learned binary basis (Zhang et al. 2018, "LQ-Nets: Learned Quantization
for Highly Accurate and Compact Deep Neural Networks"), for weights and for activations.

    levels      sum_j v_j b_j with b in {-1, 1}^B; {0, 1}^B for activations after a ReLU
    forward     q(x) = the level nearest to x under the basis v as it stands
    gradient    dL/dx = dL/dq (straight-through); activations: only between the outermost levels
    state       in train(), each forward makes one QEM step (qem.py) and moves the basis towards it:
                  v* = least squares of x on the codes of q(x)
                  v <- (1 - momentum) v + momentum v*,  momentum = 0.1
    start       50 full QEM steps from multiples of a quartile (qem.py)

Each kernel has its basis, each activation tensor has one. The momentum counts as torch's batch norm
does; the authors' 0.9 is its complement. The output of a step uses the basis from before its
update, as in the authors' release. The basis of activations is fitted to the first batch; until
then, to each tensor, and not kept. eval() updates nothing.

We differ in four things. The start is fitted to the weights, which may be trained already; the
release starts from constants. Where codes depend on each other the release adds 1e-4 to the
diagonal of its equations and the old basis to the right; we leave what the codes do not determine
as it was. The least squares of activations use at most SAMPLE values of a batch, at a stride that
has no factor in common with its size, so that all channels and positions have their turn. And
processes that share a batch add up their equations and so share one basis; the release takes that of
its first device.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from dbq.plans.precision import Precision
from dbq.quantizers.contract import (
    HardQuantizer,
    InputQuantizer,
    compose,
    require_within,
)
from dbq.quantizers.fitting.qem import fit, nearest_codes, patterns, qem
from dbq.quantizers.tensors import (
    keep_nan,
    nearest,
    sorted_levels,
    straight_through,
    working_rows,
    working_type,
)

SAMPLE = 1 << 16
SMALLEST_BASIS = 1e-12  # of activations: batches of nothing but zeros have been seen


class LqNetQuantizer(HardQuantizer):
    """One to three binary branches per kernel, whose scales follow the weights.

    >>> quantizer = LqNetQuantizer(Precision("binary", 2), kernels=1)
    >>> weight = torch.tensor([[-3.0, -1.0, 1.0, 3.0]])
    >>> quantizer.initialise(weight)
    >>> quantizer.eval()(weight), quantizer.freeze(weight).scales
    (tensor([[-3., -1.,  1.,  3.]]), tensor([[1., 2.]]))
    """

    basis: Tensor
    patterns: Tensor

    def __init__(self, precision: Precision, kernels: int, momentum: float = 0.1) -> None:
        super().__init__(precision, kernels)
        require_within("lqnet", "momentum", momentum, 0, 1)
        self.momentum = momentum
        self.register_buffer("basis", torch.zeros(kernels, precision.size))
        self.register_buffer("patterns", patterns(precision.size, signed=True), persistent=False)

    def initialise(self, weight: Tensor) -> None:
        super().initialise(weight)
        self.basis.copy_(fit(working_rows(weight), self.patterns))

    def forward(self, weight: Tensor) -> Tensor:
        if not self.training:
            return super().forward(weight)
        rows = working_rows(weight)
        basis = self.basis.to(rows.dtype)
        codes, best = qem(rows, basis, self.patterns)
        hard = compose(codes, basis, weight)
        # After the last use of `basis`, which may be the same memory.
        self.basis.lerp_(best.to(self.basis.dtype), self.momentum)
        return straight_through(weight, hard)

    def decompose(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        basis = self.basis.to(rows.dtype)
        return nearest_codes(rows, basis, self.patterns), basis


class LqNetInputQuantizer(InputQuantizer):
    """2^b levels from one basis, a moving average over the batches.

    >>> quantizer = LqNetInputQuantizer(Precision("fixed", 2), signed=False)
    >>> quantizer(torch.tensor([0.0, 1.0, 2.0, 3.0])).round(decimals=4)
    tensor([0., 1., 2., 3.])
    """

    rule = "lqnet"
    basis: Tensor
    patterns: Tensor

    def __init__(self, precision: Precision, signed: bool) -> None:
        super().__init__(precision, signed)
        self.register_buffer("basis", torch.zeros(1, precision.size))  # zeros: no batch was seen
        self.register_buffer("patterns", patterns(precision.size, signed), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        basis = self._basis_for(x).to(working_type(x))
        if self.training:
            self.observe(x)
        levels, _ = sorted_levels(basis, self.patterns)
        result: Tensor = _NearestLevel.apply(x, levels)  # type: ignore[no-untyped-call]
        return result

    def grid(self) -> None:
        return None

    def observe(self, x: Tensor) -> None:
        """One QEM step from the basis that the batch is quantized with."""
        if not x.numel():
            return
        basis = self._basis_for(x)
        best = qem(self._rows(x), basis, self.patterns, shared=True)[1]
        self.basis.copy_(basis.lerp(best, self.momentum))
        if not self.basis.any():
            self.basis.fill_(SMALLEST_BASIS)

    def _basis_for(self, x: Tensor) -> Tensor:
        """A copy of the basis; before a batch has been seen, the one fitted to `x`.

        In train() that fit is kept, and repeated as long as batches hold nothing but zeros.
        """
        only_zeros = bool(self.basis.abs().amax() <= SMALLEST_BASIS)
        if not x.numel() or not (only_zeros if self.training else not self.has_seen):
            return self.basis.clone()
        basis = fit(self._rows(x), self.patterns, shared=self.training)
        if self.training:
            self.basis.copy_(basis)
        return basis

    def _rows(self, x: Tensor) -> Tensor:
        return sample(x.detach()).to(self.basis.dtype).unsqueeze(0)

    @property
    def has_seen(self) -> bool:
        return bool(self.basis.any())

    def reset(self) -> None:
        self.basis.zero_()


class _NearestLevel(torch.autograd.Function):
    """Keeps x itself for the backward pass: after a ReLU it is alive anyway."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, levels: Tensor) -> Tensor:
        ctx.save_for_backward(x, levels[0, [0, -1]])
        values = x.to(levels.dtype)
        taken = levels[0].index_select(0, nearest(values.reshape(1, -1), levels)[0])
        return keep_nan(x, taken.view(x.shape))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        x, (lowest, highest) = ctx.saved_tensors
        return gradients[0] * ((x >= lowest) & (x <= highest)), None


def sample(x: Tensor) -> Tensor:
    """At most SAMPLE elements, the same ones whenever the shape is the same."""
    size = x.numel()
    stride = max(1, -(-size // SAMPLE))
    while math.gcd(stride, size) > 1:
        stride += 1
    return x.reshape(-1)[::stride]
