"""Activations: clamps, which are part of the formula behind sums, and curves, operations of their own.

A curve is a function g of straight segments, or x * g(x), and constant outside of an interval. The table
below chooses the interval and the number of segments so that g is off by 2^-13 at most, a thirtieth of
a step of 8-bit codes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from dbq.deploy.operations.add import Add
from dbq.deploy.operations.curve import Curve
from dbq.deploy.tensors import Doubles
from dbq.lowering.handlers.quantized import numbers
from dbq.lowering.operands import Operand, Site
from dbq.lowering.values import Affine, Clamp, Sums, Value
from dbq.model.reading.recording import Constant
from dbq.model.reading.sources import limits

GATE = 1  # form of x * g(x)


def clamp(site: Site, operand: Operand, *_: Any, **__: Any) -> Value:
    found = limits(site.call)
    if found is None:
        site.refuse("clamps by tensors; expected numbers")
    return site.resolve(operand).clamped(Clamp(*found), site.name)


def curve(
    function: Callable[[Tensor], Tensor], low: float, high: float, segments: int, form: int,
    site: Site, operand: Operand, **_: Any,
) -> Affine:  # fmt: skip
    """`function` between `low` and `high`, by knots at equal distances."""
    read = site.wide(operand)
    shape, bound = read.value.shape, read.value.bound
    knots = _knots(function, low, high, segments)
    make = partial(Curve, form=form, low=low, high=high, knots=knots)
    largest = float(np.abs(knots).max())
    sums = Sums(site.name, site.now(), shape, [read], make, factors=((),))
    ones = np.ones((shape.channels, 1))
    return Affine(sums, ones, np.zeros(len(ones)), largest * (bound if form == GATE else 1.0))


def _knots(
    function: Callable[[Tensor], Tensor], low: float, high: float, segments: int
) -> npt.NDArray[np.float32]:
    """Values of a function; of one that bends, such that segments are off as much above as below it.

    Between knots on the function, a segment is off by up to an eighth of the second difference, always
    on one side. Moving the knots by half of that halves the error.
    """
    step = (high - low) / segments
    x = torch.linspace(low - step, high + step, segments + 3, dtype=torch.float64)
    y = function(x).numpy()
    bend = y[2:] - 2 * y[1:-1] + y[:-2] if segments > 1 else 0.0
    knots: npt.NDArray[np.float32] = (y[1:-1] - bend / 16).astype(np.float32)
    return knots


def gelu(site: Site, operand: Operand, approximate: str = "none") -> Affine:
    """x * Phi(x), or with tanh in place of the error function."""
    normal = torch.special.ndtr if approximate == "none" else _nearly_normal
    return curve(normal, -5.0, 5.0, 160, GATE, site, operand)


def _nearly_normal(x: Tensor) -> Tensor:
    return 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def leaky_relu(site: Site, operand: Operand, negative_slope: float = 0.01) -> Affine:
    value = site.resolve(operand)
    return _two_slopes(site, value, np.full(value.shape.channels, float(negative_slope)))


def prelu(site: Site, operand: Operand, weight: Constant) -> Affine:
    value = site.resolve(operand)
    return _two_slopes(site, value, np.broadcast_to(numbers(weight.tensor), value.shape.channels))


def _two_slopes(site: Site, value: Value, slopes: Doubles) -> Affine:
    """max(x, 0) + slope * min(x, 0): two clamps of one tensor, added."""
    parts = (Clamp(low=0.0), Clamp(high=0.0))
    reads = [value.clamped(part, site.name).wide() for part in parts]
    sums = Sums(site.name, site.now(), value.shape, reads, Add, factors=((0,), (1,)))
    scales = np.stack([np.ones_like(slopes), slopes], axis=1)
    bound = value.bound * max(1.0, float(np.abs(slopes).max()))
    return Affine(sums, scales, np.zeros(len(slopes)), bound)


def elu(site: Site, operand: Operand, alpha: float = 1.0) -> Affine:
    """max(x, 0) + alpha * (exp(min(x, 0)) - 1): a clamp and a curve, added."""
    value = site.resolve(operand)
    below = curve(torch.expm1, -10.0, 0.0, 320, 0, site, value)
    reads = [value.clamped(Clamp(low=0.0), site.name).wide(), below.wide()]
    sums = Sums(site.name, site.now(), value.shape, reads, Add, factors=((0,), (1,)))
    scales = np.broadcast_to(np.array([1.0, alpha]), (value.shape.channels, 2)).copy()
    return Affine(sums, scales, np.zeros(len(scales)), max(value.bound, abs(alpha)))


def _mish_gate(x: Tensor) -> Tensor:
    return torch.tanh(F.softplus(x))


HANDLERS: dict[str, Any] = {
    **dict.fromkeys(("relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max"), clamp),
    "sigmoid": partial(curve, torch.sigmoid, -10.0, 10.0, 160, 0),
    "silu": partial(curve, torch.sigmoid, -10.0, 10.0, 160, GATE),
    "hardsigmoid": partial(curve, F.hardsigmoid, -3.0, 3.0, 1, 0),
    "hardswish": partial(curve, F.hardsigmoid, -3.0, 3.0, 1, GATE),
    "tanh": partial(curve, torch.tanh, -6.0, 6.0, 384, 0),
    "mish": partial(curve, _mish_gate, -12.0, 12.0, 384, GATE),
    "gelu": gelu,
    "elu": elu,
    "leaky_relu": leaky_relu,
    "prelu": prelu,
}
