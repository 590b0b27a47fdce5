"""Program: a network as integer operations, complete and immutable.

A tensor is C planes of H x W codes; a code times the tensor's scale is the value it stands for. Every
operation makes exact integer sums and turns them into codes by one formula, which `Result` states. What
an operation computes is specified by `dbq.deploy.reference`; `dbq.fileformat` writes it to a file.

Nothing here needs torch. A Program is checked once, when it is made: what comes out of the constructor
can run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dbq.errors import LoweringError

Type = Literal["u8", "i8", "i32", "f32"]
Codes = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float32]

# The codes an element of each type may take. i32 is for values that are added up later: its steps are
# so fine that only rounding to float32 limits them.
CODE_RANGE: dict[Type, tuple[int, int]] = {
    "u8": (0, 255),
    "i8": (-128, 127),
    "i32": (-(2**30), 2**30),
    "f32": (0, 0),
}
ZEROS = -1  # in `Channels`: a plane of zeros

# The limits of docs/format.md. With at most 2^16 weights in a kernel the sum of 8-bit products fits 32
# bits: 65536 * 255 * 127 < 2^31.
MAX_SIDE = MAX_CHANNELS = 65_535
MAX_PIXELS = 2**26
MAX_TAPS = 2**16
MAX_WINDOW = 255
MAX_TENSORS = 2**14
LARGEST_SCALE = 1e20
LARGEST_SUM = 2**31 - 1


class Shape(NamedTuple):
    channels: int
    height: int
    width: int


@dataclass(frozen=True)
class Tensor:
    """C x H x W elements; `code * scale` is the value. The scale of f32 is 1."""

    type: Type
    shape: Shape
    scale: float


@dataclass(frozen=True, eq=False)
class Result:
    """One output of an operation, from its exact integer sums s_0 .. s_{J-1} in channel k:

        t = s_0 * scales[k, 0] + ... + s_{J-1} * scales[k, J-1] + offsets[k]
        f32: t                others: round_half_even(min(max(t, low), high))

    from left to right, each step rounded to float32. A ReLU is low = 0; batch norm, the scales of
    weights and of both tensors are all inside `scales` and `offsets`.
    """

    tensor: int
    low: int
    high: int
    scales: Floats  # [K, J]
    offsets: Floats  # [K]


class Window(NamedTuple):
    """The pixels an output pixel reads; bottom and right padding are what the output's size leaves."""

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)  # top, left
    dilation: tuple[int, int] = (1, 1)


@dataclass(frozen=True, eq=False)
class Lookup:
    """The uint8 image [H, W, C] to planes of codes, by a table [C, 256] of code bytes."""

    name: str
    tensor: int
    table: npt.NDArray[np.uint8]

    @property
    def reads(self) -> tuple[int, ...]:
        return ()

    @property
    def writes(self) -> tuple[int, ...]:
        return (self.tensor,)


@dataclass(frozen=True, eq=False)
class _Summing:
    """What operations with results share."""

    name: str
    results: tuple[Result, ...]

    @property
    def writes(self) -> tuple[int, ...]:
        return tuple(result.tensor for result in self.results)


@dataclass(frozen=True, eq=False)
class Convolution(_Summing):
    """One sum for each branch of the weights; outside of the image the input is 0.

    `codes` is [branches, K, C / groups, rows, columns]. `bits` is None for ternary branches, else the
    width of the fixed-point codes. A linear layer is a convolution with a kernel of its input's size.
    """

    input: int
    window: Window
    groups: int
    codes: Codes
    bits: int | None

    @property
    def reads(self) -> tuple[int, ...]:
        return (self.input,)

    @property
    def precision(self) -> str:
        return f"{len(self.codes)}T" if self.bits is None else f"{self.bits}b"


@dataclass(frozen=True, eq=False)
class Add(_Summing):
    """s_0 = a, s_1 = b."""

    a: int
    b: int

    @property
    def reads(self) -> tuple[int, ...]:
        return (self.a, self.b)


@dataclass(frozen=True, eq=False)
class Requantize(_Summing):
    """s_0 = input: the same tensor in another precision."""

    input: int

    @property
    def reads(self) -> tuple[int, ...]:
        return (self.input,)


@dataclass(frozen=True, eq=False)
class AveragePool(_Summing):
    """s_0 = the sum over the window, zeros outside of the image; the divisor is in the scales."""

    input: int
    window: Window

    @property
    def reads(self) -> tuple[int, ...]:
        return (self.input,)


@dataclass(frozen=True, eq=False)
class MaxPool:
    """The largest code in the window; a 1x1 window with a stride takes every n-th pixel."""

    name: str
    input: int
    window: Window
    tensor: int

    @property
    def reads(self) -> tuple[int, ...]:
        return (self.input,)

    @property
    def writes(self) -> tuple[int, ...]:
        return (self.tensor,)


@dataclass(frozen=True, eq=False)
class Channels:
    """Each channel is one of another tensor: concatenation, split, shuffle, zero channels.

    `sources` holds (tensor, channel) for each; the tensor ZEROS stands for a plane of zeros.
    """

    name: str
    tensor: int
    sources: tuple[tuple[int, int], ...]

    @property
    def reads(self) -> tuple[int, ...]:
        return tuple(sorted({tensor for tensor, _ in self.sources if tensor != ZEROS}))

    @property
    def writes(self) -> tuple[int, ...]:
        return (self.tensor,)


Operation = Lookup | Convolution | Add | Requantize | AveragePool | MaxPool | Channels


@dataclass(frozen=True, eq=False)
class Program:
    """Operations in an order in which they can run: a uint8 NHWC image in, float logits out.

    `facts` is for people: plan, normalisation, how well it agrees with the network it came from.
    """

    name: str
    tensors: tuple[Tensor, ...]
    operations: tuple[Operation, ...]
    output: int
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "facts", MappingProxyType(dict(self.facts)))
        check(self)

    @property
    def input_shape(self) -> Shape:
        """Channels, height and width of the image."""
        return self.tensors[self.operations[0].writes[0]].shape

    @property
    def convolutions(self) -> tuple[Convolution, ...]:
        return tuple(op for op in self.operations if isinstance(op, Convolution))

    def macs(self, op: Operation) -> int:
        """Multiply-accumulates of a convolution, branches counted once; 0 for the rest."""
        if not isinstance(op, Convolution):
            return 0
        shape = self.tensors[op.writes[0]].shape
        return int(prod(op.codes.shape[1:])) * shape.height * shape.width

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.input_shape))
        return f"Program({self.name!r}, image {shape}, {len(self.operations)} operations)"


def check(program: Program) -> None:
    """Raise LoweringError unless `program` can run: the rules of docs/format.md."""
    _require(program.operations, "a program has operations")
    many = max(len(program.tensors), len(program.operations))
    _require(many <= MAX_TENSORS, f"{many} tensors or operations, over {MAX_TENSORS}")
    first = program.operations[0]
    _require(isinstance(first, Lookup), "the first operation is a lookup of the image")
    for tensor in program.tensors:
        _check_tensor(tensor)
    written: set[int] = set()
    largest: dict[int, int] = {}  # no code of the tensor is larger in size
    for number, op in enumerate(program.operations):
        where = f"operation {number} ({type(op).__name__} {op.name})"
        for index in (*op.reads, *op.writes):
            _require(0 <= index < len(program.tensors), f"{where}: no tensor {index}")
        for index in op.reads:
            _require(index in written, f"{where} reads tensor {index} before it is written")
        for index in op.writes:
            _require(index not in written, f"{where} writes tensor {index} a second time")
            written.add(index)
        _require(op is first or not isinstance(op, Lookup), f"{where}: a second lookup")
        _check_operation(program, op, where)
        largest.update(_largest_codes(op, largest))
        if isinstance(op, AveragePool):
            most = prod(op.window.kernel) * largest[op.input]
            _require(most <= LARGEST_SUM, f"{where}: sums up to {most}, over {LARGEST_SUM}")
    _require(written == set(range(len(program.tensors))), "a tensor is never written")
    _require(program.output in written, f"no output tensor {program.output}")
    _require(program.tensors[program.output].type == "f32", "the output is f32")


def _largest_codes(op: Operation, known: dict[int, int]) -> dict[int, int]:
    if isinstance(op, Lookup):
        return {op.tensor: 255}
    if isinstance(op, MaxPool | Channels):
        return {op.tensor: max(known[index] for index in op.reads)}
    return {
        result.tensor: int(max(-np.float32(result.low), np.float32(result.high)))
        for result in op.results
    }


def _require(condition: object, problem: str) -> None:
    if not condition:
        raise LoweringError(f"not a valid program: {problem}")


def _check_tensor(tensor: Tensor) -> None:
    channels, height, width = tensor.shape
    _require(0 < channels <= MAX_CHANNELS, f"a tensor of {channels} channels")
    _require(0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE, f"a tensor of {height} x {width}")
    _require(
        height * width <= MAX_PIXELS, f"a tensor of {height} x {width}, over {MAX_PIXELS} pixels"
    )
    finite = np.isfinite(tensor.scale) and 0 < tensor.scale <= LARGEST_SCALE
    _require(finite, f"a tensor with scale {tensor.scale}")


def _check_operation(program: Program, op: Operation, where: str) -> None:
    tensors = program.tensors
    for index in op.reads:
        _require(tensors[index].type != "f32", f"{where} reads float numbers")
    if isinstance(op, Lookup):
        output = tensors[op.tensor]
        _require(output.type in ("u8", "i8"), f"{where}: table of {output.type}")
        _require(op.table.shape == (output.shape.channels, 256), f"{where}: shape of the table")
        return
    if isinstance(op, Channels):
        _check_channels(tensors, op, where)
        return
    input = tensors[op.reads[0]]
    if isinstance(op, MaxPool):
        output = tensors[op.tensor]
        _require((output.type, output.scale) == (input.type, input.scale), f"{where}: changes type")
        _require(output.shape.channels == input.shape.channels, f"{where}: changes channels")
        _check_pooling(op.window, input.shape, output.shape, where)
        return
    shape = tensors[op.writes[0]].shape
    sums = len(op.codes) if isinstance(op, Convolution) else len(op.reads)
    for result in op.results:
        _require(tensors[result.tensor].shape == shape, f"{where}: results of unlike shape")
        _check_result(result, tensors[result.tensor], sums, where)
    if isinstance(op, Convolution):
        _check_convolution(op, input, shape, where)
    elif isinstance(op, AveragePool):
        _require(shape.channels == input.shape.channels, f"{where}: changes channels")
        _check_pooling(op.window, input.shape, shape, where)
    else:
        for index in op.reads:
            _require(tensors[index].shape == shape, f"{where}: changes shape")


def _check_channels(tensors: tuple[Tensor, ...], op: Channels, where: str) -> None:
    output = tensors[op.tensor]
    _require(len(op.sources) == output.shape.channels, f"{where}: one source for each channel")
    _require(op.reads, f"{where}: nothing but zeros")
    for index, channel in op.sources:
        if index == ZEROS:
            continue
        source = tensors[index]
        same = (source.type, source.scale, source.shape[1:]) == (
            output.type, output.scale, output.shape[1:])  # fmt: skip
        _require(same, f"{where}: tensor {index} differs in type, scale or size")
        _require(0 <= channel < source.shape.channels, f"{where}: no channel {channel} in {index}")


def _check_result(result: Result, tensor: Tensor, sums: int, where: str) -> None:
    channels = tensor.shape.channels
    _require(result.scales.shape == (channels, sums), f"{where}: shape of the scales")
    _require(result.offsets.shape == (channels,), f"{where}: shape of the offsets")
    for floats in (result.scales, result.offsets):
        _require(floats.dtype == np.float32, f"{where}: scales are float32")
        fine = np.isfinite(floats).all() and np.abs(floats).max() <= LARGEST_SCALE
        _require(fine, f"{where}: a scale or offset that is NaN or too large")
    low, high = CODE_RANGE[tensor.type]
    inside = low <= result.low <= result.high <= high
    _require(inside, f"{where}: codes {result.low} to {result.high} in a tensor of {tensor.type}")


def _check_convolution(op: Convolution, input: Tensor, shape: Shape, where: str) -> None:
    _require(input.type in ("u8", "i8"), f"{where} reads {input.type}, expected u8 or i8")
    branches, kernels, channels, *kernel = op.codes.shape
    _require(op.codes.dtype == np.int8, f"{where}: codes are int8")
    _require(op.groups > 0 and channels * op.groups == input.shape.channels, f"{where}: groups")
    _require(kernels == shape.channels and kernels % op.groups == 0, f"{where}: kernels")
    _require(tuple(kernel) == op.window.kernel, f"{where}: kernel size")
    _require(channels * prod(kernel) <= MAX_TAPS, f"{where}: more than {MAX_TAPS} weights a kernel")
    _require(branches == 1 or (op.bits is None and branches <= 3), f"{where}: {branches} branches")
    limit = 1 if op.bits is None else 2 ** (op.bits - 1) - 1
    _require(op.bits is None or 2 <= op.bits <= 8, f"{where}: {op.bits} bits")
    _require(np.abs(op.codes.astype(np.int16)).max() <= limit, f"{where}: codes beyond {limit}")
    _check_window(op.window, input.shape, shape, where)


def _check_pooling(window: Window, input: Shape, output: Shape, where: str) -> None:
    _require(window.dilation == (1, 1), f"{where}: a pool with dilation {window.dilation}")
    _check_window(window, input, output, where)


def _check_window(window: Window, input: Shape, output: Shape, where: str) -> None:
    """Every window must hold at least one pixel of the image."""
    for axis in (0, 1):
        kernel, stride = window.kernel[axis], window.stride[axis]
        padding, dilation = window.padding[axis], window.dilation[axis]
        sizes = all(1 <= size <= MAX_WINDOW for size in (kernel, stride, dilation))
        _require(sizes, f"{where}: window {window}")
        extent = (kernel - 1) * dilation + 1
        _require(0 <= padding < extent, f"{where}: padding {padding}, window {extent}")
        last = (output[1 + axis] - 1) * stride - padding
        _require(last < input[1 + axis], f"{where}: a window beyond the image")
