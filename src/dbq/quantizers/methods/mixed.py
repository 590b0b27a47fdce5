"""Mixed precision: step and range of each layer are learned, and with them its number of bits.

Uhlich et al. 2020, "Mixed Precision DNNs: All you need is a good parametrization" (ICLR), case U3 of
its uniform quantizer. With step d and range q_max,

    q(w) = d round(w / d)   where |w| <= q_max,    dq/dd = (q(w) - w) / d,   dq/dw = 1   (eqs. 1, 2, 3c)
         = sign(w) q_max    elsewhere,             dq/dq_max = sign(w),      dq/dw = 0

    b = ceil(log2(q_max / d + 1) + 1)                                                     (section 4)

d is rounded to a power of two going forward; going back the float d is updated (section 2.2), and so
is the rounding of b passed over. Without a price, bits only grow: `size_penalty` is the publication's,
eq. 10 of constraint 8a, here in bits a weight instead of bytes.

Initialisation (section 2.3): d = 2^floor(log2(max|w| / (2^(b-1) - 1))), q_max = (2^(b-1) - 1) d, with
b = 4 (option `initial`); without `power_of_two`, d is not rounded down.

Where we differ:
- The plan's precision is an upper limit, which the publication does not have: q_max counts as d times
  the limit's largest code at most, and what is clipped there moves d. It counts as d at least: b >= 2.
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
from dbq.quantizers.contract import (
    WeightQuantizer,
    check_finite,
    require_size,
    straight_through,
    working_type,
)
from dbq.quantizers.learned import positive

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
        super().__init__(precision)
        require_size("mixed", precision, *range(2, 9))
        if initial < MIN_BITS:
            raise PlanError(f"option initial = {initial} of 'mixed': expected {MIN_BITS} or more")
        self.kernels, self.power_of_two = kernels, power_of_two
        self.initial = min(initial, precision.size)
        self.d = nn.Parameter(torch.ones(1))
        self.q_max = nn.Parameter(torch.full((1,), float(_largest_code(self.initial))))

    @property
    def precision(self) -> Precision:
        """What step and range come to."""
        with torch.no_grad():
            d, q_max = self._grid()
        return Precision(self._limit.kind, int((q_max / d).round()).bit_length() + 1)

    @precision.setter
    def precision(self, limit: Precision) -> None:
        self._limit = limit

    @torch.no_grad()
    def initialise(self, weight: Tensor) -> None:
        check_finite(weight)
        largest = _largest_code(self.initial)
        d = float(weight.abs().max()) / largest
        d = d if d > SMALLEST else 1.0  # zeros: any step will do
        d = 2.0 ** math.floor(math.log2(d)) if self.power_of_two else d
        self.d.fill_(d)
        self.q_max.fill_(largest * d)

    def bits(self) -> Tensor:
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
        """d and q_max as they are used: q_max = d times a code, from 1 to the largest of the limit."""
        d, q_max = self._step(), positive(self.q_max, SMALLEST)
        limit = d * _largest_code(self._limit.size)
        q_max = torch.where(q_max < d, d, q_max)
        q_max = torch.where(q_max > limit, limit, q_max)
        return d, straight_through(q_max, (q_max / d).round() * d)

    def forward(self, weight: Tensor) -> Tensor:
        d, q_max = (x.to(working_type(weight)) for x in self._grid())
        result: Tensor = _Uniform.apply(weight, d, q_max)  # type: ignore[no-untyped-call]
        return result

    @torch.no_grad()
    def codes(self, weight: Tensor) -> Tensor:
        d, q_max = (x.to(working_type(weight)) for x in self._grid())
        return _codes(weight, d, q_max).to(torch.int8).unsqueeze(0)

    @torch.no_grad()
    def scales(self, weight: Tensor) -> Tensor:
        return self._step().to(working_type(weight)).reshape(1, 1).expand(self.kernels, 1)


def _largest_code(bits: int) -> int:
    return int(2 ** (bits - 1) - 1)


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


def size_penalty(model: nn.Module, bits: float) -> Tensor | None:
    """max(0, mean bits of a weight - `bits`)^2 over all layers quantized by this method.

    None if there are none. Add it to the loss, times a weight of your choice: a small one, because
    the number of bits has the slope 1 / d, and d is small.
    """
    sizes, total = [], 0
    for layer in model.modules():
        quantizer = getattr(layer, "weight_quantizer", None)
        if isinstance(quantizer, MixedQuantizer):
            count = int(layer.get_parameter("weight").numel())
            sizes.append(quantizer.bits() * count)
            total += count
    return (torch.stack(sizes).sum() / total - bits).relu().square() if sizes else None
