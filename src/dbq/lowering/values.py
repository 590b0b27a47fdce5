"""The tensors of a network while it is being lowered: real numbers that no code has been chosen for.

A layer's output becomes codes only when someone reads it, and each reader says in which representation:
a convolution in that of its input quantizer, an addition or an average in `WIDE`, 32-bit codes, as
fine as torch's floats. So a value is either

    Image       what the network is given
    Affine      exact integer sums of an operation, then a scale and an offset per channel, then a clamp
    Selection   values moved or chosen, never changed: it can be read in any representation
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dbq.deploy.operations.operation import Operation
from dbq.deploy.tensors import Result, Shape, Type

Doubles = npt.NDArray[np.float64]


class Codes(NamedTuple):
    """A representation: value = code * scale, low <= code <= high."""

    type: Type
    scale: float
    low: int
    high: int

    @property
    def clip(self) -> float:
        return self.scale * self.high


# 32 bits, with a scale found when all readers are known; the second is the float output.
WIDE: Literal["wide"] = "wide"
FLOAT = Codes("f32", 1.0, 0, 0)
Representation = Codes | Literal["wide"]


@dataclass(eq=False)
class Image:
    shape: Shape
    node: str | None = None


class Reading(NamedTuple):
    """A value an operation reads, and in which representation."""

    value: Value
    representation: Representation


@dataclass(eq=False)
class Sums:
    """An operation that will make integer sums; what it writes is collected from its readers."""

    name: str
    order: int  # operations run in this order
    shape: Shape
    reads: list[Reading]
    build: Callable[[tuple[Result, ...], list[int]], Operation]
    addends: int = 1  # how many codes of a wide input are added up


@dataclass(eq=False)
class Affine:
    """clamp(sum_j scales[:, j] * S_j + offsets), S_j the sums in real units: codes times their scale.

    `bound` is a number that |value| does not exceed, or hardly ever.
    """

    sums: Sums
    scales: Doubles  # [K, J]
    offsets: Doubles  # [K]
    bound: float
    low: float = -math.inf
    high: float = math.inf
    node: str | None = None  # the node of the graph that has this value, if one has

    @property
    def shape(self) -> Shape:
        return self.sums.shape

    @property
    def is_clamped(self) -> bool:
        return self.low > -math.inf or self.high < math.inf


@dataclass(eq=False)
class Selection:
    """Values of other tensors at other places; `build(inputs, output)` makes the operation."""

    name: str
    order: int
    shape: Shape
    inputs: list[Value]
    build: Callable[[list[int], int], Operation]
    node: str | None = None


Value = Image | Affine | Selection


def bound_of(value: Value) -> float:
    """A number that |value| hardly ever exceeds."""
    if isinstance(value, Affine):
        return value.bound
    inputs = [] if isinstance(value, Image) else value.inputs
    return max((bound_of(input) for input in inputs), default=math.inf)


@dataclass(eq=False)
class Padded:
    """A value with zeros around it; only a convolution can read it."""

    value: Value
    top: int
    left: int
    bottom: int
    right: int
    node: str | None = None

    @property
    def shape(self) -> Shape:
        channels, height, width = self.value.shape
        return Shape(channels, height + self.top + self.bottom, width + self.left + self.right)


@dataclass(eq=False)
class Moved:
    """A value seen through views and slices: where each element comes from, as torch computed it.

    `index` has the tensor's present shape, [1, ...]; an element i is element i of the flattened base.
    """

    base: Value
    index: npt.NDArray[np.int64]
    node: str | None = None
    settled: Value | None = None  # as planes, once someone has asked for them


Anything = Value | Padded | Moved
