"""What the functions of a run are applied to, and how it becomes a value: views, slices, padding.

Instead of knowing every way to write a channel shuffle, we let torch do it to a tensor of indices and
look at the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from dbq.deploy.operations.pixels import NOTHING
from dbq.deploy.tensors import Grid, Shape
from dbq.errors import LoweringError
from dbq.lowering.values import Reading, Value, pick, pick_pixels
from dbq.model.reading.recording import Call, Recorded

Indices = npt.NDArray[np.int64]


@dataclass(eq=False)
class Padded:
    """A value with zeros around it; convolutions pad by themselves, others read pixels that are zero."""

    value: Value
    top: int
    left: int
    bottom: int
    right: int
    node: Recorded | None = None
    resolved: Value | None = None

    @property
    def shape(self) -> Shape:
        channels, height, width = self.value.shape
        return Shape(channels, height + self.top + self.bottom, width + self.left + self.right)


@dataclass(eq=False)
class Moved:
    """A value seen through views and slices: where each element comes from, as torch computed it.

    `index` has the tensor's present shape, [images, ...]; in the first image, an element i is element i
    of the flattened base, and the other images come behind it.
    """

    base: Value
    index: Indices
    node: Recorded | None = None
    resolved: Value | None = None  # as planes, once an operation has asked for them

    @property
    def is_flattened(self) -> bool:
        """True for a whole tensor in its own order, seen as a vector."""
        return np.array_equal(self.index[0], np.arange(np.prod(self.base.shape)))


@dataclass(eq=False)
class Quantized:
    """What an input quantizer made of a tensor: codes on its grid, for the layer that follows."""

    operand: Value | Padded | Moved
    grid: Grid
    node: Recorded | None = None


Plain = Value | Padded | Moved
Operand = Plain | Quantized


@dataclass
class Site:
    """The call that is being read."""

    call: Call
    images: int  # in the recorded run
    clock: Iterator[int]
    whole_ratios: bool  # branches become one integer

    @property
    def name(self) -> str:
        """Of the operations it becomes."""
        return self.call.name

    def refuse(self, problem: str) -> NoReturn:
        raise LoweringError(f"{self.call.place}: {problem}")

    def now(self) -> int:
        """A number for a new operation: operations run in the order they were made."""
        return next(self.clock)

    def resolve(self, operand: Operand) -> Value:
        """`operand` as planes: as it is, or as a Selection of channels and pixels."""
        if isinstance(operand, Quantized):
            self.refuse(
                "reads the quantized input of a layer; only its own convolution can do that"
            )
        if isinstance(operand, Value):
            return operand
        if not isinstance(operand, Padded | Moved):
            self.refuse(
                f"has a {type(operand).__name__.lower()} where lowering expects a tensor of the network"
            )
        if operand.resolved is None:
            padded = isinstance(operand, Padded)
            operand.resolved = self._with_zeros(operand) if padded else self._moved(operand)  # type: ignore[arg-type]
            if operand.resolved.node is None:
                operand.resolved.node = operand.node
        return operand.resolved

    def wide(self, operand: Operand) -> Reading:
        """`operand` for an operation that reads 32-bit codes."""
        return self.resolve(operand).wide()

    def _with_zeros(self, padded: Padded) -> Value:
        _, height, width = padded.value.shape
        rows = [NOTHING] * padded.top + [*range(height)] + [NOTHING] * padded.bottom
        columns = [NOTHING] * padded.left + [*range(width)] + [NOTHING] * padded.right
        return pick_pixels(padded.value, rows, columns, self.name, self.now())

    def _moved(self, moved: Moved) -> Value:
        channels, rows, columns = self._analyse(moved)
        value = moved.base
        if channels != list(range(value.shape.channels)):
            value = pick([value], [(0, channel) for channel in channels], self.name, self.now())
        _, height, width = value.shape
        if rows != list(range(height)) or columns != list(range(width)):
            value = pick_pixels(value, rows, columns, self.name, self.now())
        return value

    def _analyse(self, moved: Moved) -> tuple[list[int], list[int], list[int]]:
        """Which channel each plane is, and which rows and columns of it are seen."""
        _, height, width = moved.base.shape
        size = int(np.prod(moved.base.shape))
        index = moved.index[0]
        same = all(np.array_equal(other - i * size, index) for i, other in enumerate(moved.index))
        if index.ndim == 1 and height * width == 1:
            index = index[:, None, None]
        if same and index.ndim == 3 and index.size:
            channels = index[:, 0, 0] // (height * width)
            pattern = index - (channels * height * width)[:, None, None]
            rows, columns = pattern[0, :, 0] // width, pattern[0, 0, :] % width
            if (pattern == (rows[:, None] * width + columns)[None]).all():
                return channels.tolist(), rows.tolist(), columns.tolist()
        made = f"{moved.node.call.place}, " if moved.node and moved.node.call else ""
        return self.refuse(
            f"reads {made}a rearrangement of pixels, shape {list(moved.index.shape[1:])}: lowering "
            "knows whole channels moved, rows and columns chosen, flattening before a linear layer"
        )
