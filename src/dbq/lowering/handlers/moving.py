"""Views, slices and shuffles: what did they do to the channels and pixels of a tensor?

Instead of knowing every way to write a channel shuffle, we let torch do it to a tensor of indices and
look at the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dbq.deploy.operations.channels import ZEROS, Channels
from dbq.deploy.operations.max_pool import MaxPool
from dbq.deploy.operations.operation import Operation
from dbq.deploy.tensors import Shape
from dbq.deploy.window import Window
from dbq.errors import LoweringError
from dbq.lowering.values import Affine, Anything, Image, Moved, Padded, Selection, Value

Clock = Iterator[int]  # gives each operation a number: they run in the order they were made


def settle(thing: Anything, name: str, clock: Clock) -> Value:
    """`thing` as planes: as it is, or as a Selection of channels and of every n-th pixel."""
    if isinstance(thing, Padded):
        raise LoweringError(
            f"{name} reads a tensor padded by {thing.node}: only convolutions read padding; "
            "give the padding to the layer itself"
        )
    if not isinstance(thing, Moved):
        return thing
    if thing.settled is None:
        thing.settled = _settle(thing, name, clock)
    return thing.settled


def _settle(thing: Moved, name: str, clock: Clock) -> Value:
    channels, pixels = _analyse(thing, name)
    value = thing.base
    if pixels is not None:
        value = every_nth(value, pixels, name, next(clock))
    if channels != list(range(value.shape.channels)):
        value = pick([value], [(0, channel) for channel in channels], name, next(clock))
    if value.node is None:
        value.node = thing.node
    return value


def is_flattened(thing: Anything) -> bool:
    """True for a whole tensor in its own order, seen as a vector."""
    if not isinstance(thing, Moved) or thing.index.ndim != 2:
        return False
    size = int(np.prod(thing.base.shape))
    return thing.index.size == size and bool((thing.index.ravel() == np.arange(size)).all())


def pick(inputs: list[Value], sources: list[tuple[int, int]], name: str, order: int) -> Selection:
    """Channels of one or more tensors: (which input, which channel) for each, or (ZEROS, 0)."""

    def build(tensors: list[int], output: int) -> Operation:
        named = ((ZEROS if i == ZEROS else tensors[i], channel) for i, channel in sources)
        return Channels(name, output, tuple(named))

    shape = inputs[0].shape._replace(channels=len(sources))
    return Selection(name, order, shape, inputs, build)


def every_nth(value: Value, stride: tuple[int, int], name: str, order: int) -> Selection:
    """Every n-th row and column, from the first."""
    channels, height, width = value.shape
    shape = Shape(channels, -(-height // stride[0]), -(-width // stride[1]))
    return largest_of(value, Window((1, 1), stride), shape, name, order)


def largest_of(value: Value, window: Window, shape: Shape, name: str, order: int) -> Selection:
    """Max pooling: order-preserving, so it may be done on codes of any scale."""

    def build(tensors: list[int], output: int) -> Operation:
        return MaxPool(name, tensors[0], window, output)

    return Selection(name, order, shape, [value], build)


def concatenate(values: Sequence[Value], name: str, order: int) -> Selection:
    sources = [(i, c) for i, value in enumerate(values) for c in range(value.shape.channels)]
    return pick(list(values), sources, name, order)


def clamped(value: Value, low: float, high: float, name: str) -> Value:
    """min(max(value, low), high). Choosing and clamping commute, so a Selection clamps its inputs."""
    if isinstance(value, Image):
        raise LoweringError(f"{name} clips the image itself; do that before the network")
    if isinstance(value, Selection):
        inputs = [clamped(each, low, high, name) for each in value.inputs]
        return Selection(value.name, value.order, value.shape, inputs, value.build)
    low, high = max(low, value.low), min(high, value.high)
    bound = min(value.bound, max(abs(low), abs(high)))
    return Affine(value.sums, value.scales, value.offsets, bound, low, high)


def _analyse(moved: Moved, name: str) -> tuple[list[int], tuple[int, int] | None]:
    """Which channel each plane is, and the stride if pixels were left out."""
    _, height, width = moved.base.shape
    index = moved.index[0]
    if index.ndim == 1 and height * width == 1:
        index = index[:, None, None]
    if index.ndim != 3:
        raise _lost(moved, name)
    first = index[:, 0, 0] // (height * width)
    pattern = index - (first * height * width)[:, None, None]
    if not (pattern == pattern[:1]).all():
        raise _lost(moved, name)
    stride = _stride(pattern[0], height, width)
    if stride is None:
        raise _lost(moved, name)
    return first.tolist(), None if stride == (1, 1) else stride


def _stride(pattern: npt.NDArray[np.int64], height: int, width: int) -> tuple[int, int] | None:
    """The n of "every n-th row and column" if that is what `pattern` shows, else None."""
    rows, columns = pattern.shape
    down = int(pattern[1, 0]) // width if rows > 1 else height
    across = int(pattern[0, 1]) if columns > 1 else width
    down, across = max(1, down), max(1, across)
    grid = np.arange(height * width).reshape(height, width)[::down, ::across]
    if grid.shape != pattern.shape or not (grid == pattern).all():
        return None
    return down, across


def _lost(moved: Moved, name: str) -> LoweringError:
    return LoweringError(
        f"{name} reads {moved.node}, a rearrangement of pixels, shape {list(moved.index.shape)}: "
        "lowering knows channels moved as wholes, every n-th pixel, and flattening before a linear layer"
    )
