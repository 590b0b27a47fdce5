"""The tensors of a network while it is lowered: real numbers for which no codes have been chosen yet.

A layer's output becomes codes only when it is read, and each reader says in which representation: a
convolution on the grid of its input quantizer, an addition or an average in `WIDE`, 32-bit codes as fine
as torch's floats. A value knows the step that computes it and what clamping makes of it:

    Image       what the network is given
    Affine      exact integer sums of an operation, then a scale and an offset per channel, then a clamp
    Selection   other values moved or chosen, never changed: it can be read in any representation

Another kind of value is another subclass of `Value` with a `Step` of its own; emission knows only these
two classes. Activations that clamp are part of the formula behind sums, `Clamp`; any other is an
operation of its own, which reads wide codes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dbq.deploy.operations.channels import ZEROS, Channels
from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.operations.max_pool import MaxPool
from dbq.deploy.operations.operation import Operation
from dbq.deploy.operations.pixels import NOTHING, Pixels
from dbq.deploy.operations.requantize import Requantize
from dbq.deploy.tensors import CODE_RANGE, Doubles, Grid, Result, Shape
from dbq.deploy.window import Pair, Window
from dbq.model.reading.recording import Recorded
from dbq.model.reading.sources import Limits

# 32 bits, with a scale found when all readers are known; the second is the float output.
WIDE: Literal["wide"] = "wide"
FLOAT = Grid("f32", 1.0, *CODE_RANGE["f32"])
Representation = Grid | Literal["wide"]
BYTES = Grid("u8", 1.0, 0, 255)  # of the image as it is given


class Reading(NamedTuple):
    """A value that is read, and in which representation."""

    value: Value
    representation: Representation


class Stored(NamedTuple):
    """A value as a tensor of the program."""

    value: Value
    grid: Grid
    tensor: int


class Step(ABC):
    """A future operation: what it reads, and when it runs. What it writes depends on its readers."""

    name: str
    order: float  # operations run in this order
    reads: list[Reading]
    addends: int = 1  # how many codes of a wide input are added up

    @abstractmethod
    def build(self, written: list[Stored], read: list[Stored]) -> Operation:
        """The operation; `read` are its `reads`, in their order."""


class Value(ABC):
    shape: Shape
    bound: float  # a number that |value| does not exceed, or hardly ever
    node: Recorded | None = None  # the tensor of the recorded run that has this value, if one has
    inputs: Sequence[Value] = ()  # values of which this one is made on one common grid

    @abstractmethod
    def step(self, representation: Representation) -> Step:
        """What computes it in this representation. One operation writes all values of a step."""

    @abstractmethod
    def clamped(self, clamp: Clamp, name: str) -> Value:
        """The value with every element clamped; `name` is for an operation that this may need."""

    def wide(self) -> Reading:
        """How an operation that computes with 32-bit codes reads it."""
        return Reading(self, WIDE)


@dataclass(eq=False)
class Image(Value):
    """What the network is given. `table(grid)` holds the code of each pixel value, bytes [C, 256].

    A layer that reads it has its codes from that table. If anything else reads it as well, the program
    looks up the bytes themselves, and `normalised` makes values of them: scales * byte + offsets.
    """

    shape: Shape
    table: Callable[[Grid], npt.NDArray[np.uint8]]
    scales: Doubles  # [C]
    offsets: Doubles  # [C]
    node: Recorded | None = None

    def __post_init__(self) -> None:
        self.bound = float((255 * np.abs(self.scales) + np.abs(self.offsets)).max())

    @cached_property
    def normalised(self) -> Affine:
        sums = Sums("image, normalised", -0.5, self.shape, [Reading(self, BYTES)], Requantize)
        return Affine(sums, self.scales[:, None], self.offsets, self.bound, node=self.node)

    def step(self, representation: Representation) -> Step:
        return _ImageLookup(self)

    def clamped(self, clamp: Clamp, name: str) -> Value:
        return self.normalised.clamped(clamp, name)

    def wide(self) -> Reading:
        return self.normalised.wide()


class _ImageLookup(Step):
    name, order = "image", -1.0

    def __init__(self, image: Image) -> None:
        self.image, self.reads = image, []

    def build(self, written: list[Stored], read: list[Stored]) -> Operation:
        (stored,) = written
        bytes_ = np.tile(np.arange(256, dtype=np.uint8), (self.image.shape.channels, 1))
        table = bytes_ if stored.grid == BYTES else self.image.table(stored.grid)
        return Lookup(self.name, stored.tensor, table)


class Clamp(Limits):
    """Limits as a `Result` applies them to codes."""

    @property
    def is_whole(self) -> bool:
        """Whether its limits are whole numbers, as a Result of floats has them; or there are none."""
        return all(math.isinf(limit) or limit == round(limit) for limit in self)

    @property
    def keeps_zero(self) -> bool:
        return self.low <= 0 <= self.high

    def then(self, other: Clamp) -> Clamp:
        return Clamp(max(self.low, other.low), min(self.high, other.high))

    def codes(self, grid: Grid) -> tuple[int, int]:
        """The smallest and the largest code on `grid`."""
        low = int(max(grid.low, np.rint(max(self.low, -1e9) / grid.scale)))
        high = int(min(grid.high, np.rint(min(self.high, 1e9) / grid.scale)))
        return low, high


NO_CLAMP = Clamp()


@dataclass(eq=False)
class Sums(Step):
    """An operation that makes integer sums; what it writes are `Affine` values.

    `factors` lists, for each sum, the inputs whose codes it multiplies: their scales are its unit.
    """

    name: str
    order: float
    shape: Shape
    reads: list[Reading]
    make: Callable[..., Operation]  # given its name, results, and the tensors it reads
    factors: Sequence[Sequence[int]] = ((0,),)
    addends: int = 1

    def build(self, written: list[Stored], read: list[Stored]) -> Operation:
        scales = [stored.grid.scale for stored in read]
        units = np.array([math.prod(scales[i] for i in inputs) for inputs in self.factors])
        results = tuple(_result(stored, units) for stored in written)
        return self.make(self.name, results, *(stored.tensor for stored in read))


def _result(stored: Stored, units: Doubles) -> Result:
    """Everything that is linear folded into one scale for each sum and channel."""
    value, grid = stored.value, stored.grid
    assert isinstance(value, Affine)
    scales, offsets = value.scales * units / grid.scale, value.offsets / grid.scale
    low, high = (0, 0) if grid == FLOAT and not value.is_clamped else value.clamp.codes(grid)
    return Result(stored.tensor, low, high, scales.astype(np.float32), offsets.astype(np.float32))


@dataclass(eq=False)
class Affine(Value):
    """clamp(sum_j scales[:, j] * S_j + offsets), S_j the sums in real units: codes times their scale."""

    sums: Sums
    scales: Doubles  # [K, J]
    offsets: Doubles  # [K]
    bound: float
    clamp: Clamp = NO_CLAMP
    node: Recorded | None = None

    def __post_init__(self) -> None:
        self.shape = self.sums.shape

    @property
    def is_clamped(self) -> bool:
        return self.clamp != NO_CLAMP

    def step(self, representation: Representation) -> Step:
        return self.sums

    def clamped(self, clamp: Clamp, name: str) -> Affine:
        both = self.clamp.then(clamp)
        bound = min(self.bound, max(abs(both.low), abs(both.high)))
        return Affine(self.sums, self.scales, self.offsets, bound, both)


@dataclass(eq=False)
class Selection(Value):
    """Elements of other values at other places; `make(inputs, output)` makes the operation."""

    name: str
    order: float
    shape: Shape
    inputs: Sequence[Value] = field()  # without the default of Value
    make: Callable[[list[int], int], Operation]
    node: Recorded | None = None

    def __post_init__(self) -> None:
        self.bound = max(value.bound for value in self.inputs)

    def step(self, representation: Representation) -> Step:
        return _Move(self, representation)

    def clamped(self, clamp: Clamp, name: str) -> Value:
        """Choosing and clamping commute, so the inputs are clamped, unless chosen zeros would change."""
        if not clamp.keeps_zero:
            return same(self, name, self.order + 0.5).clamped(clamp, name)
        inputs = [value.clamped(clamp, name) for value in self.inputs]
        return Selection(self.name, self.order, self.shape, inputs, self.make)


class _Move(Step):
    """A Selection in one representation, which is that of its inputs."""

    def __init__(self, selection: Selection, representation: Representation) -> None:
        self.name, self.order, self.make = selection.name, selection.order, selection.make
        self.reads = [
            value.wide() if representation == WIDE else Reading(value, representation)
            for value in selection.inputs
        ]

    def build(self, written: list[Stored], read: list[Stored]) -> Operation:
        (stored,) = written
        return self.make([each.tensor for each in read], stored.tensor)


def same(value: Value, name: str, order: float) -> Affine:
    """`value` itself, written by an operation that can scale, shift and clamp it."""
    sums = Sums(name, order, value.shape, [value.wide()], Requantize)
    ones = np.ones((value.shape.channels, 1))
    return Affine(sums, ones, np.zeros(len(ones)), value.bound, node=value.node)


def pick(
    inputs: Sequence[Value], sources: list[tuple[int, int]], name: str, order: int
) -> Selection:
    """Channels of one or more values: (which input, which channel) for each, or (ZEROS, 0)."""

    def make(tensors: list[int], output: int) -> Operation:
        named = ((ZEROS if i == ZEROS else tensors[i], channel) for i, channel in sources)
        return Channels(name, output, tuple(named))

    shape = inputs[0].shape._replace(channels=len(sources))
    return Selection(name, order, shape, inputs, make)


def largest_of(value: Value, window: Window, size: Pair, name: str, order: int) -> Selection:
    """Max pooling to `size` pixels. Codes are in the order of their values on any grid."""

    def make(tensors: list[int], output: int) -> Operation:
        return MaxPool(name, tensors[0], window, output)

    return Selection(name, order, Shape(value.shape.channels, *size), [value], make)


def pick_pixels(
    value: Value, rows: Sequence[int], columns: Sequence[int], name: str, order: int
) -> Selection:
    """Rows and columns of a value in a new order, perhaps repeated; NOTHING is one of zeros."""

    def make(tensors: list[int], output: int) -> Operation:
        return Pixels(name, tensors[0], output, tuple(rows), tuple(columns))

    shape = Shape(value.shape.channels, len(rows), len(columns))
    assert all(NOTHING >= place >= 0 for place in (*rows, *columns))
    return Selection(name, order, shape, [value], make)
