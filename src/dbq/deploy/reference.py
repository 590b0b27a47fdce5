"""The specification of a Program: numpy, plain integer arithmetic, one requantization formula.

Slow and short on purpose. The native engine gives the same bits. Sums are computed as float64 products
of integers, which are exact below 2^53 (ours stay below 2^31) and let BLAS do them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dbq.deploy.program import (
    ZEROS,
    Add,
    AveragePool,
    Channels,
    Convolution,
    Lookup,
    MaxPool,
    Operation,
    Program,
    Requantize,
    Result,
    Shape,
    Type,
    Window,
)
from dbq.errors import EngineError

Array = npt.NDArray[Any]
Images = npt.NDArray[np.uint8]

DTYPES: dict[Type, type[np.generic]] = {
    "u8": np.uint8,
    "i8": np.int8,
    "i32": np.int32,
    "f32": np.float32,
}


def run(program: Program, images: Images) -> npt.NDArray[np.float32]:
    """Logits [N, K] of uint8 images [N, H, W, C]; [N, K, H, W] if the output has pixels."""
    codes = np.asarray(trace(program, images)[program.output], np.float32)
    return codes[:, :, 0, 0] if codes.shape[2:] == (1, 1) else codes


def trace(program: Program, images: Images) -> list[Array]:
    """Every tensor of a run, [N, C, H, W] in the type of the tensor."""
    shape = program.input_shape
    expected = (shape.height, shape.width, shape.channels)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != expected:
        found = f"{images.dtype} {list(images.shape)}"
        raise EngineError(
            f"images are {found}; {program.name} expects uint8 [N, *{list(expected)}]"
        )
    values: dict[int, Array] = {}
    for op in program.operations:
        values.update(execute(program, op, [values[i] for i in op.reads], images))
    return [values[i] for i in range(len(program.tensors))]


def execute(
    program: Program, op: Operation, inputs: list[Array], images: Images
) -> Iterator[tuple[int, Array]]:
    """What `op` writes, given what it reads: pairs of tensor index and codes."""
    match op:
        case Lookup():
            dtype = DTYPES[program.tensors[op.tensor].type]
            planes = [op.table[c].view(dtype)[images[..., c]] for c in range(images.shape[3])]
            yield op.tensor, np.stack(planes, axis=1)
        case MaxPool():
            yield op.tensor, _max_pool(inputs[0], op.window, program.tensors[op.tensor].shape)
        case Channels():
            yield op.tensor, _channels(program, op, inputs)
        case _:
            sums = _sums(program, op, inputs)
            for result in op.results:
                yield result.tensor, requantize(sums, result, program.tensors[result.tensor].type)


def requantize(sums: list[Array], result: Result, type: Type) -> Array:
    """The formula of `Result`; every step is rounded to float32 by itself."""
    scales = result.scales.T[:, :, None, None]  # [J, K, 1, 1]
    t: Array = sums[0].astype(np.float32) * scales[0]
    for s, scale in zip(sums[1:], scales[1:], strict=True):
        t = t + s.astype(np.float32) * scale
    t = t + result.offsets[:, None, None]
    if type == "f32":
        return t
    clipped = np.clip(t, np.float32(result.low), np.float32(result.high))
    codes: Array = np.rint(clipped).astype(DTYPES[type])  # halves go to the even neighbour
    return codes


def _sums(
    program: Program, op: Convolution | Add | Requantize | AveragePool, inputs: list[Array]
) -> list[Array]:
    shape = program.tensors[op.writes[0]].shape
    match op:
        case Convolution():
            return [convolve(inputs[0], branch, op, shape) for branch in op.codes]
        case AveragePool():
            padded = _padded(inputs[0].astype(np.int64), op.window, shape, 0)
            return [sum(_taps(padded, op.window, shape))]  # type: ignore[list-item]
        case Add() | Requantize():
            return inputs


def convolve(x: Array, codes: npt.NDArray[np.int8], op: Convolution, shape: Shape) -> Array:
    """Exact sums [N, K, H, W] of one branch."""
    padded = _padded(x.astype(np.float64), op.window, shape, 0)
    total = np.zeros((len(x), shape.channels, shape.height * shape.width))
    per_in, per_out = codes.shape[1], shape.channels // op.groups
    weights = codes.reshape(op.groups, per_out, per_in, -1).astype(np.float64)
    for tap, pixels in enumerate(_taps(padded, op.window, shape)):
        rows = pixels.reshape(len(x), op.groups, per_in, -1)  # [N, G, C/G, HW]
        total += (weights[..., tap] @ rows).reshape(total.shape)
    return total.astype(np.int64).reshape(len(x), *shape)


def _padded(x: Array, window: Window, output: Shape, value: float) -> Array:
    """x with `value` all around, as far as windows reach."""
    pads = []
    for axis in (0, 1):
        extent = (window.kernel[axis] - 1) * window.dilation[axis] + 1
        reach = (output[1 + axis] - 1) * window.stride[axis] + extent
        before = window.padding[axis]
        pads.append((before, max(0, reach - before - x.shape[2 + axis])))
    return np.pad(x, [(0, 0), (0, 0), *pads], constant_values=value)


def _taps(padded: Array, window: Window, output: Shape) -> Iterator[Array]:
    """For each position in the kernel, row by row: the pixel it sees, [N, C, H, W]."""
    for row in range(window.kernel[0]):
        for column in range(window.kernel[1]):
            y, x = row * window.dilation[0], column * window.dilation[1]
            ends = [
                start + (size - 1) * stride + 1
                for start, size, stride in zip((y, x), output[1:], window.stride, strict=True)
            ]
            yield padded[:, :, y : ends[0] : window.stride[0], x : ends[1] : window.stride[1]]


def _max_pool(x: Array, window: Window, output: Shape) -> Array:
    lowest = np.iinfo(x.dtype).min  # nothing is smaller: outside of the image there is nothing
    taps = _taps(_padded(x, window, output, lowest), window, output)
    largest: Array = np.maximum.reduce(list(taps))
    return largest


def _channels(program: Program, op: Channels, inputs: list[Array]) -> Array:
    read = dict(zip(op.reads, inputs, strict=True))
    tensor = program.tensors[op.tensor]
    some = next(iter(inputs))
    zeros = np.zeros((len(some), *tensor.shape[1:]), DTYPES[tensor.type])
    planes = [zeros if index == ZEROS else read[index][:, c] for index, c in op.sources]
    return np.stack(planes, axis=1)
