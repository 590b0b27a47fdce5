"""The 8-bit form: QuantizeLinear and DequantizeLinear around ordinary operations (QDQ).

Runtimes recognise DequantizeLinear - Conv - QuantizeLinear and run it as an int8 convolution. Branches
are merged into one (`dbq.onnx_weights`). 8-bit tensors are stored as the program's codes; wide ones,
which hold residuals, are float values.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dbq.deploy.onnx.graph import Graph
from dbq.deploy.onnx.moving import Summing, Values, gathered, walk, windowed
from dbq.deploy.onnx.weights import LARGEST, halved, merge, with_exact_bias
from dbq.deploy.program import (
    CODE_RANGE,
    Add,
    AveragePool,
    Convolution,
    Lookup,
    Program,
    Requantize,
    Result,
    Tensor,
)
from dbq.deploy.reference import DTYPES
from dbq.errors import LoweringError

Floats = npt.NDArray[np.float64]

# A layer with so few input channels costs little: its 8-bit codes are kept exactly, at twice the work.
# So are those of linear layers, and of depthwise ones, whose products runtimes do not add in pairs.
FEW_CHANNELS = 4

# i8 codes are stored as uint8 plus 128: onnxruntime wants one type on both sides of a convolution, and
# its kernels are for unsigned inputs.
ZERO_POINTS: dict[str, np.uint8] = {"u8": np.uint8(0), "i8": np.uint8(128)}


def emit(program: Program, graph: Graph, image: str) -> Values:
    """Every tensor of the program in `graph`; `image` is the name of the input."""
    return walk(
        program,
        graph,
        lookup=lambda values, op: _lookup(values, op, image),
        zero=lambda tensor: np.asarray(ZERO_POINTS.get(tensor.type, np.float32(0))),
        summing=_summing,
    )


def _lookup(values: Values, op: Lookup, image: str) -> str:
    """The table as arithmetic if that gives the same codes, else as a table."""
    graph, tensor = values.graph, values.program.tensors[op.tensor]
    planes = graph.add("Transpose", image, label=op.name, perm=(0, 3, 1, 2))
    line = _line(values.program, op, tensor)
    if line is not None:
        pixels = graph.add("Cast", planes, label=op.name, to=1)  # float
        slope, offset = (graph.constant(numbers[:, None, None]) for numbers in line)
        scaled = graph.add("Mul", pixels, slope, label=op.name)
        x = graph.add("Add", scaled, offset, label=op.name)
        limits = [float(code) * tensor.scale for code in _ends(op, tensor)]
        x = graph.add("Clip", x, *map(graph.constant, limits), label=op.name)
        return _quantized(values, x, tensor, op.name)
    return gathered(values, op, planes, op.table + ZERO_POINTS[tensor.type])


def _line(
    program: Program, op: Lookup, tensor: Tensor
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None:
    """Slope and offset for each channel, if (pixel / 255 - mean) / std explains the table."""
    mean, std = (np.asarray(program.facts.get(key, ()), np.float64) for key in ("mean", "std"))
    if not len(mean) == len(std) == len(op.table):
        return None
    codes = op.table.view(DTYPES[tensor.type]).astype(np.float64)
    low, high = _ends(op, tensor)
    t = ((np.arange(256) / 255 - mean[:, None]) / std[:, None]) / tensor.scale
    # Runtimes differ in the last bits, and numbers near a half would round either way: shift the line to
    # the middle of where it gives the codes of the table.
    least = np.where(codes > low, codes - 0.5 - t, -np.inf).max(axis=1)
    most = np.where(codes < high, codes + 0.5 - t, np.inf).min(axis=1)
    if not (most - least > 1e-3).all():
        return None
    shift = (np.maximum(least, -0.5) + np.minimum(most, 0.5)) / 2
    slope, offset = 1 / (255 * std), -mean / std + shift * tensor.scale
    return slope.astype(np.float32), offset.astype(np.float32)


def _ends(op: Lookup, tensor: Tensor) -> tuple[int, int]:
    """The smallest and largest code of the table."""
    codes = op.table.view(DTYPES[tensor.type])
    return int(codes.min()), int(codes.max())


def _summing(values: Values, op: Summing) -> None:
    """Results that stand for the same numbers share one computation."""
    made: list[tuple[Floats, Floats, str]] = []
    for result in op.results:
        slopes, offsets = _real(values, op, result)
        same = (
            name for s, o, name in made
            if np.allclose(s, slopes, rtol=1e-5) and np.allclose(o, offsets, rtol=1e-5, atol=1e-6)
        )  # fmt: skip
        name = next(same, "")
        if not name:
            name = _computed(values, op, slopes, offsets)
            made.append((slopes, offsets, name))
        values.names[result.tensor] = _stored(values, name, op, result)


def _real(values: Values, op: Summing, result: Result) -> tuple[Floats, Floats]:
    """Slopes [K, J] and offsets [K] from values to values, where a Result has them for codes."""
    tensors = values.program.tensors
    inputs = np.array([tensors[i].scale for i in op.reads])
    output = tensors[result.tensor].scale
    return result.scales * output / inputs, result.offsets.astype(np.float64) * output


def _computed(
    values: Values,
    op: Summing,
    slopes: Floats,
    offsets: Floats,
) -> str:
    match op:
        case Convolution():
            return _convolution(values, op, slopes, offsets)
        case AveragePool():
            x = _mean(values, op)
            return _affine(
                values.graph, x, slopes[:, 0] * math.prod(op.window.kernel), offsets, op.name
            )
        case Requantize():
            return _affine(values.graph, _value(values, op.input), slopes[:, 0], offsets, op.name)
        case Add():
            none = np.zeros_like(offsets)
            a, b = (
                _affine(values.graph, _value(values, tensor), slopes[:, j], none, op.name)
                for j, tensor in enumerate((op.a, op.b))
            )
            total = values.graph.add("Add", a, b, label=op.name)
            return _affine(values.graph, total, np.ones_like(offsets), offsets, op.name)


def _convolution(values: Values, op: Convolution, slopes: Floats, offsets: Floats) -> str:
    graph, stored = values.graph, values.names[op.input]
    x_scale = values.program.tensors[op.input].scale
    # A matrix product gives a vector, which no later layer could read as planes: only for the last one.
    is_linear = (
        op.writes == (values.program.output,)
        and op.window.kernel == values.shape(op.input)[1:]
        and op.window.padding == (0, 0)
        and op.groups == 1
    )
    doubled = op.groups == 1 and (is_linear or op.codes.shape[2] <= FEW_CHANNELS)
    merged = merge(op.codes, slopes, 127 if doubled or _is_depthwise(op) else LARGEST)
    merged = with_exact_bias(merged, offsets / x_scale, _finest(values, op) / x_scale)
    codes = merged.codes
    if doubled and np.abs(codes).max() > LARGEST:
        codes = halved(codes)
        stored = graph.add("Concat", stored, stored, label=op.name, axis=1)
    if is_linear:
        codes = codes.reshape(len(codes), -1)
        stored = graph.add("Flatten", stored, label=op.name)
    weight = _dequantized(graph, codes, merged.steps, f"{op.name}/weight")
    steps = merged.steps * np.float32(x_scale)
    bias_codes = np.clip(np.rint(offsets / steps), -(2**31) + 1, 2**31 - 1).astype(np.int32)
    bias = _dequantized(graph, bias_codes, steps, f"{op.name}/bias")
    x = _value(values, op.input, stored)
    if is_linear:
        return graph.add("Gemm", x, weight, bias, label=op.name, transB=1)
    output = values.shape(op.writes[0])
    x, attributes = windowed(values, op.input, op.window, output, op.name, x)
    return graph.add("Conv", x, weight, bias, label=op.name, group=op.groups, **attributes)


def _finest(values: Values, op: Convolution) -> float:
    """An eighth of a step of the 8-bit results; without those, anything will do."""
    tensors = (values.program.tensors[result.tensor] for result in op.results)
    return min((t.scale / 8 for t in tensors if t.type in ZERO_POINTS), default=math.inf)


def _is_depthwise(op: Convolution) -> bool:
    return op.groups > 1 and op.codes.shape[2] == 1


def _mean(values: Values, op: AveragePool) -> str:
    if op.window.dilation != (1, 1):
        raise LoweringError(f"{op.name}: average pooling with dilation has no form in this opset")
    shape, output = values.shape(op.input), values.shape(op.writes[0])
    x = _value(values, op.input)
    if op.window.kernel == shape[1:] and output[1:] == (1, 1) and op.window.padding == (0, 0):
        return values.graph.add("GlobalAveragePool", x, label=op.name)
    x, attributes = windowed(values, op.input, op.window, output, op.name, x)
    return values.graph.add("AveragePool", x, label=op.name, count_include_pad=1, **attributes)


def _affine(graph: Graph, x: str, slope: Floats, offset: Floats, label: str) -> str:
    """x * slope + offset for each channel, without what changes nothing."""
    if not np.allclose(slope, 1, rtol=1e-6):
        x = graph.add("Mul", x, graph.constant(_column(slope)), label=label)
    if np.any(offset):
        x = graph.add("Add", x, graph.constant(_column(offset)), label=label)
    return x


def _column(numbers: Floats) -> npt.NDArray[np.float32]:
    """[K] for a broadcast over [N, K, H, W]; one number if they are all alike."""
    few = numbers[:1] if np.allclose(numbers, numbers[0], rtol=1e-7) else numbers
    return few.astype(np.float32)[:, None, None]


def _stored(values: Values, x: str, op: Summing, result: Result) -> str:
    """The value as the program keeps it: clamped where it can go further, and codes if 8 bits wide."""
    graph, tensor = values.graph, values.program.tensors[result.tensor]
    if tensor.type == "f32":
        return x
    low, high = result.low, result.high
    if tensor.type in ZERO_POINTS:
        least, most = CODE_RANGE[tensor.type]  # where QuantizeLinear clamps
        # -127 is where signed codes end; one step further costs no operation.
        is_clamped = (low, high) == (least, most) or (tensor.type, low, high) == ("i8", -127, 127)
    else:
        reach = _reach(values, op, result)
        is_clamped = low <= -reach and reach <= high
        if low == 0 and reach <= high:
            x, is_clamped = graph.add("Relu", x, label=op.name), True
    if not is_clamped:
        limits = [graph.constant(float(limit) * tensor.scale) for limit in (low, high)]
        x = graph.add("Clip", x, *limits, label=op.name)
    return _quantized(values, x, tensor, op.name) if tensor.type in ZERO_POINTS else x


def _reach(values: Values, op: Summing, result: Result) -> float:
    """A bound on the result before it is clamped, in codes; a little less, for rounding."""
    largest = [max(CODE_RANGE[values.program.tensors[i].type]) for i in op.reads]
    scales = np.abs(result.scales.astype(np.float64))  # [K, J]
    match op:
        case Convolution():
            taps = np.abs(op.codes.astype(np.int16)).sum(axis=(2, 3, 4), dtype=np.float64)  # [J, K]
            sums = scales * taps.T * 255
        case AveragePool():
            sums = scales * math.prod(op.window.kernel) * largest[0]
        case _:
            sums = scales * np.array(largest, np.float64)
    return float((sums.sum(axis=1) + np.abs(result.offsets)).max() * (1 - 1e-5))


def _quantized(values: Values, x: str, tensor: Tensor, label: str) -> str:
    return values.graph.add("QuantizeLinear", x, *_grid(values.graph, tensor), label=label)


def _value(values: Values, tensor: int, name: str = "") -> str:
    """The value of a tensor as float; `name` stands for its codes, where they were reshaped."""
    found = values.program.tensors[tensor]
    name = name or values.names[tensor]
    if found.type not in ZERO_POINTS:
        return name
    return values.graph.add("DequantizeLinear", name, *_grid(values.graph, found), label=name)


def _grid(graph: Graph, tensor: Tensor) -> tuple[str, str]:
    zero: Any = np.asarray(ZERO_POINTS[tensor.type])
    return graph.constant(float(tensor.scale)), graph.constant(zero)


def _dequantized(
    graph: Graph,
    codes: npt.NDArray[np.int8] | npt.NDArray[np.int32],
    steps: npt.NDArray[np.float32],
    label: str,
) -> str:
    """Constant codes times a step for each index of the first axis."""
    zeros = np.zeros(len(steps), codes.dtype)
    constants = (graph.constant(codes, label), graph.constant(steps, f"{label}/step"),
                 graph.constant(zeros))  # fmt: skip
    return graph.add("DequantizeLinear", *constants, label=label, axis=0)
