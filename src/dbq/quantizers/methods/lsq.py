"""LSQ: the step between neighbouring levels is learned, for weights and for activations.

Esser et al. 2020, "Learned Step Size Quantization" (ICLR). With Q_N codes below zero and Q_P above,

    v = round(clip(w / s, -Q_N, Q_P)),    q(w) = s v

    dq/ds = v - w/s    where -Q_N < w/s < Q_P,    dq/dw = 1
          = -Q_N       where w/s <= -Q_N,               = 0
          = Q_P        where w/s >= Q_P,                = 0

The gradient of s is multiplied by g = 1 / sqrt(N Q_P), so that steps and weights move at comparable
rates: for weights N counts those that share the step, for activations the features C H W of one
sample, as published. Both start at s = 2 mean|w| / sqrt(Q_P): weights when the quantizer is made,
activations at the first batch seen in train(). Until then, each tensor has the step of that rule.

Weights have Q_N = 2^(b-1), Q_P = 2^(b-1) - 1; activations Q_N = 0, Q_P = 2^b - 1 after a ReLU.
Where we differ:
- 8-bit weights have Q_N = 127, because the engine's codes are symmetric. At fewer bits they are as
  published, and the code -2^(b-1) costs a deployed layer one bit more; the option `symmetric`, Q_N =
  Q_P, saves it. Signed activations are always symmetric, as all of this package.
- A step that training pushed to zero or below counts by its size, at least 1e-12.
- One step a layer, as published; `per_channel` gives each output kernel its own.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from dbq.plans.precision import Precision
from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.frozen import FixedPoint
from dbq.quantizers.inputs import FixedPointInput
from dbq.quantizers.tensors import along_kernels, over_processes, positive, working_type

SMALLEST_STEP = 1e-12  # of activations: batches of nothing but zeros have been seen


class LsqQuantizer(WeightQuantizer):
    """Fixed-point weights with a learned step.

    >>> quantizer = LsqQuantizer(Precision("fixed", 2), kernels=1)
    >>> weight = torch.tensor([[-4.0, 0.5, 1.5]])
    >>> quantizer.initialise(weight)
    >>> quantizer.step.tolist(), quantizer(weight).tolist()
    ([4.0], [[-4.0, 0.0, 0.0]])
    """

    def __init__(
        self,
        precision: Precision,
        kernels: int,
        per_channel: bool = False,
        symmetric: bool = False,
    ) -> None:
        super().__init__(precision, kernels)
        high = precision.largest_code
        self.code_range = (-high if symmetric or precision.size == 8 else -high - 1), high
        self.step = nn.Parameter(torch.ones(kernels if per_channel else 1))

    @torch.no_grad()
    def initialise(self, weight: Tensor) -> None:
        super().initialise(weight)
        means = weight.reshape(len(self.step), -1).abs().mean(1)
        step = initial_step(means, self.code_range[1])
        self.step.copy_(torch.where(step > SMALLEST_STEP, step, 1.0))  # zeros: any step will do

    def forward(self, weight: Tensor) -> Tensor:
        sharing = weight.numel() / len(self.step)
        return round_and_clip(weight, self._step(weight), self.code_range, sharing)

    def _step(self, weight: Tensor) -> Tensor:
        """K x 1 x ... (per channel) or 1 x 1 x ..."""
        return along_kernels(positive(self.step, SMALLEST_STEP).to(working_type(weight)), weight)

    @torch.no_grad()
    def freeze(self, weight: Tensor) -> FixedPoint:
        step = self._step(weight)
        codes = codes_of(weight, step, self.code_range).to(torch.int8)
        return FixedPoint(codes, step.flatten().expand(self.kernels))


class LsqInputQuantizer(FixedPointInput):
    """Fixed-point activations with a learned step, which the first batch initialises.

    >>> quantizer = LsqInputQuantizer(Precision("fixed", 2), signed=False)
    >>> _ = quantizer(torch.full((1, 4), 3.0))
    >>> round(quantizer.step.item(), 4)  # 2 * 3 / sqrt(3)
    3.4641
    """

    rule = "lsq"
    is_learned = True

    def __init__(self, precision: Precision, signed: bool) -> None:
        super().__init__(precision, signed)
        self.step = nn.Parameter(torch.zeros(()))

    @property
    def has_seen(self) -> bool:
        return bool(self.step != 0)

    @torch.no_grad()
    def reset(self) -> None:
        self.step.zero_()

    def scale(self) -> Tensor:
        return positive(self.step, SMALLEST_STEP)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.observe(x)
        features = x.numel() / max(1, len(x))
        return round_and_clip(x, self._step(x), self.code_range, features)

    def _step(self, x: Tensor) -> Tensor:
        """With its gradient; before any batch has been seen, the step that suits `x`."""
        step: Tensor = self.step
        if not self.has_seen:
            step = initial_step(x.detach().abs().mean(), self.code_range[1])
        return positive(step, SMALLEST_STEP).to(working_type(x))

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Set the step, unless a batch has done so; after one of zeros the next is asked again."""
        if not self.step.abs() <= SMALLEST_STEP:  # a NaN stays, for the loss to show it
            return
        sums = torch.stack([x.abs().sum(dtype=torch.float32), x.new_tensor(x.numel()).float()])
        total, count = over_processes(sums)  # so that all get the same step
        if count > 0:
            step = initial_step(total / count, self.code_range[1])
            self.step.copy_(step.clamp(min=SMALLEST_STEP))


def initial_step(mean: Tensor, high: int) -> Tensor:
    """2 mean|w| / sqrt(Q_P)."""
    return 2 * mean / math.sqrt(high)


def codes_of(x: Tensor, step: Tensor, code_range: tuple[int, int]) -> Tensor:
    """v, as floats."""
    return (x.detach().to(step.dtype) / step).clamp_(*code_range).round_()


def round_and_clip(x: Tensor, step: Tensor, code_range: tuple[int, int], sharing: float) -> Tensor:
    """s v with the published gradients; `sharing` is the N of g."""
    rate = 1 / math.sqrt(max(1.0, sharing) * code_range[1])
    result: Tensor = _RoundAndClip.apply(x, step, code_range, rate)  # type: ignore[no-untyped-call]
    return result


class _RoundAndClip(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, step: Tensor, limits: tuple[int, int], rate: float) -> Tensor:
        ctx.save_for_backward(x, step)
        ctx.limits, ctx.rate = limits, rate
        return codes_of(x, step, limits).mul_(step).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, step = ctx.saved_tensors
        low, high = ctx.limits
        u = x.to(step.dtype) / step
        inside = (u > low) & (u < high)
        d_x = gradients[0] * inside
        if not ctx.needs_input_grad[1]:
            return d_x, None, None, None
        # v - u inside; outside, v alone is -Q_N or Q_P
        slope = u.clamp(low, high).round_().sub_(torch.where(inside, u, 0.0))
        d_step = slope.mul_(gradients[0]).sum_to_size(step.shape) * ctx.rate
        return d_x, d_step, None, None
