"""Mixed precision: step and range of each layer are learned, and with them its number of bits.

Uhlich et al. 2020, "Mixed Precision DNNs: All you need is a good parametrization" (ICLR), case U3 of
its uniform quantizer. With step d and range q_max,

    q(w) = d round(w / d)   where |w| <= q_max,    dq/dd = (q(w) - w) / d,   dq/dw = 1   (eqs. 1, 2, 3c)
         = sign(w) q_max    elsewhere,             dq/dq_max = sign(w),      dq/dw = 0

    b = ceil(log2(q_max / d + 1) + 1)                                                     (section 4)

d is rounded to a power of two going forward; going back the float d is updated (section 2.2), and the
rounding of b is passed over likewise. Without a price, bits only grow: `learned_bits` feeds the
publication's penalty, eq. 10 of constraint 8a (dbq.model.penalty).

Initialisation (section 2.3): d = 2^floor(log2(max|w| / (2^(b-1) - 1))), q_max = (2^(b-1) - 1) d, with
b = 4 (option `initial`); without `power_of_two`, d is not rounded down.

Where we differ:
- The plan's precision is an upper limit, which the publication does not have: q_max counts as at most
  d times the limit's largest code, and what is clipped there moves d. It counts as at least d: b >= 2.
- q_max is rounded to a multiple of d, so that the largest level is a code, and b counts that.
- The penalty does not reach a layer that has 2 bits already.
- Biases are not counted, because they are not quantized here.
- d and q_max that training pushed to zero or below count by their size, at least 1e-12.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from dbq.errors import PlanError
from dbq.plans.precision import MIN_BITS, Precision
from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.frozen import FixedPoint
from dbq.quantizers.tensors import positive, straight_through, working_type

SMALLEST = 1e-12


class MixedQuantizer(WeightQuantizer):
    """Fixed-point weights that choose their bits; `precision` is the one chosen.

    >>> quantizer = MixedQuantizer(Precision("fixed", 8), kernels=1)
    >>> quantizer.initialise(torch.tensor([[-1.0, 0.3, 0.5]]))
    >>> str(quantizer.precision), quantizer.d.item(), quantizer.q_max.item()
    ('4b', 0.125, 0.875)
    """

    def __init__(
        self, precision: Precision, kernels: int, power_of_two: bool = True, initial: int = 4
    ) -> None:
        super().__init__(precision, kernels)
        if initial < MIN_BITS:
            raise PlanError(f"option initial = {initial} of 'mixed': expected {MIN_BITS} or more")
        self.power_of_two = power_of_two
        self.initial = Precision("fixed", min(initial, precision.size))
        self.d = nn.Parameter(torch.ones(1))
        self.q_max = nn.Parameter(torch.full((1,), float(self.initial.largest_code)))

    @property
    def precision(self) -> Precision:
        """The precision implied by the current step and range."""
        with torch.no_grad():
            d, q_max = self._grid()
        return Precision(self._limit.kind, int((q_max / d).round()).bit_length() + 1)

    @precision.setter
    def precision(self, limit: Precision) -> None:
        self._limit = limit

    @torch.no_grad()
    def initialise(self, weight: Tensor) -> None:
        super().initialise(weight)
        largest = self.initial.largest_code
        d = float(weight.abs().max()) / largest
        d = d if d > SMALLEST else 1.0  # zeros: any step will do
        d = 2.0 ** math.floor(math.log2(d)) if self.power_of_two else d
        self.d.fill_(d)
        self.q_max.fill_(largest * d)

    def learned_bits(self) -> Tensor:
        """b, with the gradient of log2(q_max / d + 1) + 1 where that is above 2."""
        smooth = (positive(self.q_max, SMALLEST) / self._step() + 1).log2() + 1
        return straight_through(
            smooth.clamp(min=MIN_BITS), torch.full_like(smooth, self.precision.size)
        ).squeeze()

    def _step(self) -> Tensor:
        d = positive(self.d, SMALLEST)
        if not self.power_of_two:
            return d
        exponent = d.detach().log2().round()
        return straight_through(d, torch.ldexp(torch.ones_like(d), exponent))

    def _grid(self) -> tuple[Tensor, Tensor]:
        """d and q_max as they are used: q_max is d times a code, from 1 to the limit's largest."""
        d, q_max = self._step(), positive(self.q_max, SMALLEST)
        limit = d * self._limit.largest_code
        q_max = torch.where(q_max < d, d, q_max)
        q_max = torch.where(q_max > limit, limit, q_max)
        return d, straight_through(q_max, (q_max / d).round() * d)

    def forward(self, weight: Tensor) -> Tensor:
        d, q_max = (x.to(working_type(weight)) for x in self._grid())
        result: Tensor = _Uniform.apply(weight, d, q_max)  # type: ignore[no-untyped-call]
        return result

    @torch.no_grad()
    def freeze(self, weight: Tensor) -> FixedPoint:
        d, q_max = (x.to(working_type(weight)) for x in self._grid())
        return FixedPoint(_codes(weight, d, q_max).to(torch.int8), d.expand(self.kernels))


def _codes(weight: Tensor, d: Tensor, q_max: Tensor) -> Tensor:
    largest = (q_max / d).round()
    return (weight.to(d.dtype) / d).round().clamp(-largest, largest)


class _Uniform(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, d: Tensor, q_max: Tensor) -> Tensor:
        ctx.save_for_backward(weight, d, q_max)
        return (_codes(weight, d, q_max) * d).to(weight.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weight, d, q_max = ctx.saved_tensors
        w, G = weight.to(d.dtype), gradients[0].to(d.dtype)
        inside = w.abs() <= q_max
        error = _codes(weight, d, q_max) - w / d
        d_d = torch.where(inside, G * error, 0.0).sum().reshape(1)
        d_q_max = torch.where(inside, 0.0, G * w.sign()).sum().reshape(1)
        return gradients[0] * inside, d_d, d_q_max
