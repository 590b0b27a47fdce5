"""Sums and products, with tensors, numbers and parameters; and what changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from dbq.deploy.operations.add import Add
from dbq.deploy.operations.multiply import Multiply
from dbq.deploy.tensors import Doubles, Shape
from dbq.lowering.handlers.quantized import numbers, scale_and_shift
from dbq.lowering.operands import Moved, Operand, Site
from dbq.lowering.values import Affine, Sums, Value, pick, pick_pixels
from dbq.model.reading.recording import Constant
from dbq.model.reading.sources import DROPOUT, UNCHANGED

Number = int | float
Factor = Number | Constant


def add(site: Site, a: Any, b: Any, alpha: Number = 1) -> Affine:
    return _sum(site, a, b, 1.0, float(alpha))


def sub(site: Site, a: Any, b: Any, alpha: Number = 1) -> Affine:
    return _sum(site, a, b, 1.0, -float(alpha))


def rsub(site: Site, a: Any, b: Any, alpha: Number = 1) -> Affine:
    return _sum(site, a, b, -float(alpha), 1.0)


def neg(site: Site, operand: Operand) -> Affine:
    return _sum(site, operand, 0, -1.0, 1.0)


def _sum(site: Site, a: Any, b: Any, of_a: float, of_b: float) -> Affine:
    """of_a * a + of_b * b; either may be a number or a parameter."""
    if isinstance(a, Factor):
        a, b, of_a, of_b = b, a, of_b, of_a
    if isinstance(b, Factor):
        value = site.resolve(a)
        slope = np.full(value.shape.channels, of_a)
        return scale_and_shift(site, value, slope, of_b * _per_channel(site, b, a, value))
    values = [site.resolve(operand) for operand in (a, b)]
    shape = _common_shape(site, *values)
    reads = [_spread(site, value, shape).wide() for value in values]
    sums = Sums(site.name, site.now(), shape, reads, Add, factors=((0,), (1,)))
    scales = np.broadcast_to(np.array([of_a, of_b]), (shape.channels, 2)).copy()
    bound = abs(of_a) * values[0].bound + abs(of_b) * values[1].bound
    return Affine(sums, scales, np.zeros(shape.channels), bound)


def mul(site: Site, a: Any, b: Any) -> Affine:
    if isinstance(a, Factor):
        a, b = b, a
    if isinstance(b, Factor):
        value = site.resolve(a)
        slope = _per_channel(site, b, a, value)
        return scale_and_shift(site, value, slope, np.zeros_like(slope))
    one, other = (site.resolve(operand) for operand in (a, b))
    shape = _common_shape(site, one, other)
    if one.shape != shape:
        one, other = other, one
    one = _spread(site, one, shape)
    gates = (shape, Shape(shape.channels, 1, 1), Shape(1, shape.height, shape.width))
    if other.shape not in gates:
        other = _spread(site, other, shape)
    reads = [value.wide() for value in (one, other)]
    sums = Sums(site.name, site.now(), shape, reads, Multiply, factors=((0, 1),))
    ones = np.ones((shape.channels, 1))
    return Affine(sums, ones, np.zeros(len(ones)), one.bound * other.bound)


def div(site: Site, a: Any, b: Any, rounding_mode: str | None = None) -> Affine:
    if not isinstance(b, Factor) or rounding_mode is not None:
        site.refuse("divides by a tensor that depends on the image, which cannot be lowered")
    value = site.resolve(a)
    slope = 1 / _per_channel(site, b, a, value)
    return scale_and_shift(site, value, slope, np.zeros_like(slope))


def power(site: Site, operand: Operand, exponent: Any) -> Affine:
    if exponent != 2:
        site.refuse(f"raises to the power of {exponent}; only squares can be lowered")
    return mul(site, operand, operand)


def square(site: Site, operand: Operand) -> Affine:
    return mul(site, operand, operand)


def unchanged(site: Site, operand: Operand, *_: Any, **__: Any) -> Operand:
    return operand


def dropout(
    site: Site, operand: Operand, p: float = 0.5, training: bool = True, **_: Any
) -> Operand:
    """Nothing in eval(), unless a functional call says otherwise."""
    if training and p:
        site.refuse("drops elements at random in eval(): call it with training=self.training")
    return operand


def _per_channel(site: Site, factor: Factor, operand: Any, value: Value) -> Doubles:
    """A number or a parameter as a number for each channel of `value`."""
    channels = value.shape.channels
    if isinstance(factor, Number):
        return np.full(channels, float(factor))
    array = numbers(factor.tensor)
    dimensions = operand.index.ndim if isinstance(operand, Moved) else 4
    array = array.reshape((1,) * (dimensions - array.ndim) + array.shape)
    if array.size not in (1, channels) or array.shape[1] != array.size:
        site.refuse(
            f"combines {list(value.shape)} with {factor.name or 'a constant'} of shape "
            f"{list(factor.tensor.shape)}; expected a number for each channel"
        )
    return np.broadcast_to(array.ravel(), channels).copy()


def _common_shape(site: Site, one: Value, other: Value) -> Shape:
    sides = [max(pair) for pair in zip(one.shape, other.shape, strict=True)]
    for shape in (one.shape, other.shape):
        if any(side not in (1, most) for side, most in zip(shape, sides, strict=True)):
            site.refuse(f"combines {list(one.shape)} and {list(other.shape)}, which do not fit")
    return Shape(*sides)


def _spread(site: Site, value: Value, shape: Shape) -> Value:
    """`value` repeated along the sides where it has 1 and `shape` has more."""
    channels, height, width = value.shape
    if channels != shape.channels:
        value = pick([value], [(0, 0)] * shape.channels, site.name, site.now())
    if (height, width) != shape[1:]:
        rows = range(height) if height == shape.height else [0] * shape.height
        columns = range(width) if width == shape.width else [0] * shape.width
        value = pick_pixels(value, rows, columns, site.name, site.now())
    return value


HANDLERS: dict[str, Any] = {
    "add": add,
    "sub": sub,
    "rsub": rsub,
    "neg": neg,
    "mul": mul,
    "div": div,
    "pow": power,
    "square": square,
    **dict.fromkeys(UNCHANGED, unchanged),
    **dict.fromkeys(DROPOUT, dropout),
}
