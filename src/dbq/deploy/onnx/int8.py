"""The 8-bit form: QuantizeLinear and DequantizeLinear around ordinary operations (QDQ).

Runtimes recognise DequantizeLinear - Conv - QuantizeLinear and run it as an int8 convolution. Branches
are merged into one (`weights.py`). 8-bit tensors are stored as the program's codes; wide ones, which
hold residuals, are float values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dbq.deploy.onnx.graph import Graph
from dbq.deploy.onnx.values import Values
from dbq.deploy.tensors import CODE_RANGE, Doubles, Floats, Result, Tensor

# i8 codes are stored as uint8 plus 128: onnxruntime wants one type on both sides of a convolution, and
# its kernels are for unsigned inputs.
ZERO_POINTS: dict[str, np.uint8] = {"u8": np.uint8(0), "i8": np.uint8(128)}


def real_units(values: Values, units: Doubles, result: Result) -> tuple[Doubles, Doubles]:
    """Slopes [K, J] and offsets [K] from values to values; a Result has them for sums in `units`."""
    output = values.tensors[result.tensor].scale
    return result.scales * output / units, result.offsets.astype(np.float64) * output


def value(values: Values, tensor: int, name: str = "") -> str:
    """A tensor as float numbers; `name` stands for its codes, where they were reshaped."""
    found = values.tensors[tensor]
    name = name or values.names[tensor]
    if found.type not in ZERO_POINTS:
        return name
    return values.graph.add("DequantizeLinear", name, *_grid(values.graph, found), label=name)


def affine(graph: Graph, x: str, slope: Doubles, offset: Doubles, label: str) -> str:
    """x * slope + offset for each channel, without what changes nothing."""
    if not np.allclose(slope, 1, rtol=1e-6):
        x = graph.add("Mul", x, graph.constant(_column(slope)), label=label)
    if np.any(offset):
        x = graph.add("Add", x, graph.constant(_column(offset)), label=label)
    return x


def _column(numbers: Doubles) -> Floats:
    """[K] for a broadcast over [N, K, H, W]; one number if they are all alike."""
    few = numbers[:1] if np.allclose(numbers, numbers[0], rtol=1e-7) else numbers
    return few.astype(np.float32)[:, None, None]


def stored(values: Values, x: str, largest_sums: Doubles, result: Result, label: str) -> str:
    """x as the program keeps it: clamped where it can go further, and codes if 8 bits wide."""
    graph, tensor = values.graph, values.tensors[result.tensor]
    low, high = result.low, result.high
    if tensor.type == "f32":
        is_clamped = not result.clamps_floats
    elif tensor.type in ZERO_POINTS:
        least, most = CODE_RANGE[tensor.type]  # where QuantizeLinear clamps
        # -127 is where signed codes end; one step further costs no operation.
        is_clamped = (low, high) == (least, most) or (tensor.type, low, high) == ("i8", -127, 127)
    else:
        reach = _reach(largest_sums, result)
        is_clamped = low <= -reach and reach <= high
        if low == 0 and reach <= high:
            x, is_clamped = graph.add("Relu", x, label=label), True
    if not is_clamped:
        limits = [graph.constant(float(limit) * tensor.scale) for limit in (low, high)]
        x = graph.add("Clip", x, *limits, label=label)
    return quantized(values, x, tensor, label) if tensor.type in ZERO_POINTS else x


def _reach(largest_sums: Doubles, result: Result) -> float:
    """A bound on the result before it is clamped, in codes; a little less, for rounding."""
    sums = np.abs(result.scales.astype(np.float64)) * largest_sums  # [K, J]
    return float((sums.sum(axis=1) + np.abs(result.offsets)).max() * (1 - 1e-5))


def quantized(values: Values, x: str, tensor: Tensor, label: str) -> str:
    return values.graph.add("QuantizeLinear", x, *_grid(values.graph, tensor), label=label)


def _grid(graph: Graph, tensor: Tensor) -> tuple[str, str]:
    zero: Any = np.asarray(ZERO_POINTS[tensor.type])
    return graph.constant(float(tensor.scale)), graph.constant(zero)


def dequantized(graph: Graph, codes: str, steps: Floats, label: str) -> str:
    """int8 codes times a step for each index of the first axis."""
    step, zeros = graph.constant(steps), graph.constant(np.zeros(len(steps), np.int8))
    return graph.add("DequantizeLinear", codes, step, zeros, label=label, axis=0)
