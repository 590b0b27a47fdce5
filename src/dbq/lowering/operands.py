"""What the operations of a graph are applied to, and how it becomes a value: views, slices, shuffles.

Instead of knowing every way to write a channel shuffle, we let torch do it to a tensor of indices and
look at the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import numpy.typing as npt

from dbq.deploy.tensors import Shape
from dbq.deploy.window import Pair, Window
from dbq.errors import LoweringError
from dbq.lowering.values import Reading, Value, largest_of, pick


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
    resolved: Value | None = None  # as planes, once an operation has asked for them

    @property
    def is_flattened(self) -> bool:
        """True for a whole tensor in its own order, seen as a vector."""
        return np.array_equal(self.index, np.arange(np.prod(self.base.shape))[None])


Operand = Value | Padded | Moved


@dataclass
class Site:
    """The place in the graph that is being read, by the name a user knows it by."""

    name: str = ""
    clock: Iterator[int] = field(default_factory=count)

    def now(self) -> int:
        """A number for a new operation: operations run in the order they were made."""
        return next(self.clock)

    def resolve(self, operand: Operand) -> Value:
        """`operand` as planes: as it is, or as a Selection of channels and of every n-th pixel."""
        if isinstance(operand, Padded):
            raise LoweringError(
                f"{self.name} reads a tensor padded by {operand.node}: only convolutions read "
                "padding; give the padding to the layer itself"
            )
        if not isinstance(operand, Moved):
            return operand
        if operand.resolved is None:
            operand.resolved = self._resolved(operand)
        return operand.resolved

    def wide(self, operand: Operand) -> Reading:
        """`operand` for an operation that reads 32-bit codes."""
        return self.resolve(operand).wide(self.name)

    def _resolved(self, moved: Moved) -> Value:
        channels, stride = _analyse(moved, self.name)
        value = moved.base
        if stride != (1, 1):
            window = Window((1, 1), stride)
            size = window.output(value.shape, (0, 0))
            value = largest_of(value, window, size, self.name, self.now())
        if channels != list(range(value.shape.channels)):
            value = pick([value], [(0, channel) for channel in channels], self.name, self.now())
        if value.node is None:
            value.node = moved.node
        return value


def _analyse(moved: Moved, name: str) -> tuple[list[int], Pair]:
    """Which channel each plane is, and the stride at which its pixels were taken."""
    _, height, width = moved.base.shape
    index = moved.index[0]
    if index.ndim == 1 and height * width == 1:
        index = index[:, None, None]
    if index.ndim == 3:
        first = index[:, 0, 0] // (height * width)
        pattern = index - (first * height * width)[:, None, None]
        stride = _stride(pattern[0], height, width)
        if stride is not None and (pattern == pattern[:1]).all():
            return first.tolist(), stride
    raise LoweringError(
        f"{name} reads {moved.node}, a rearrangement of pixels, shape {list(moved.index.shape)}: "
        "lowering knows whole channels moved, every n-th pixel, and flattening before a linear layer"
    )


def _stride(pattern: npt.NDArray[np.int64], height: int, width: int) -> Pair | None:
    """The n of "every n-th row and column" if that is what `pattern` shows, else None."""
    rows, columns = pattern.shape
    down = max(1, int(pattern[1, 0]) // width if rows > 1 else height)
    across = max(1, int(pattern[0, 1]) if columns > 1 else width)
    pixels = np.arange(height * width).reshape(height, width)[::down, ::across]
    return (down, across) if np.array_equal(pixels, pattern) else None
