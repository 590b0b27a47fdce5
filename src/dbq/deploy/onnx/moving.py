"""Operations of a Program that only move or compare elements, and the geometry of windows, in ONNX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dbq.deploy.onnx.graph import Graph
from dbq.deploy.program import (
    ZEROS,
    Add,
    AveragePool,
    Channels,
    Convolution,
    Lookup,
    MaxPool,
    Program,
    Requantize,
    Shape,
    Tensor,
    Window,
)

Summing = Convolution | Add | Requantize | AveragePool


@dataclass
class Values:
    """Which ONNX value holds each tensor of the program, [N, C, H, W]."""

    program: Program
    graph: Graph
    names: dict[int, str] = field(default_factory=dict)

    def shape(self, tensor: int) -> Shape:
        return self.program.tensors[tensor].shape


def walk(
    program: Program,
    graph: Graph,
    lookup: Callable[[Values, Lookup], str],
    zero: Callable[[Tensor], npt.NDArray[Any]],
    summing: Callable[[Values, Summing], None],
) -> Values:
    """Every tensor of the program in `graph`; how tables, zeros and sums are written is the form's."""
    values = Values(program, graph)
    for op in program.operations:
        match op:
            case Lookup():
                values.names[op.tensor] = lookup(values, op)
            case MaxPool():
                values.names[op.tensor] = max_pool(values, op)
            case Channels():
                fill = zero(program.tensors[op.tensor])
                values.names[op.tensor] = channels(values, op, fill)
            case _:
                summing(values, op)
    return values


def gathered(values: Values, op: Lookup, planes: str, table: npt.NDArray[Any]) -> str:
    """Pixels through `table` [channels, 256]: one table for all channels, one after the other."""
    graph = values.graph
    pixels = graph.add("Cast", planes, label=op.name, to=6)  # int32
    starts = np.arange(len(table), dtype=np.int32)[:, None, None] * 256
    indices = graph.add("Add", pixels, graph.constant(starts), label=op.name)
    constant = graph.constant(table.ravel(), "image/table")
    return graph.add("Gather", constant, indices, label=op.name, axis=0)


def max_pool(values: Values, op: MaxPool) -> str:
    """Outside of the image there is nothing, in ONNX as in a Program."""
    if op.window.kernel == (1, 1):
        return _every_nth(values, op)
    x, attributes = windowed(values, op.input, op.window, values.shape(op.tensor), op.name)
    return values.graph.add("MaxPool", x, label=op.name, **attributes)


def _every_nth(values: Values, op: MaxPool) -> str:
    ends = [
        (size - 1) * stride + 1
        for size, stride in zip(values.shape(op.tensor)[1:], op.window.stride, strict=True)
    ]
    indices = ([0, 0], ends, [2, 3], list(op.window.stride))
    constants = [values.graph.constant(numbers) for numbers in indices]
    return values.graph.add("Slice", values.names[op.input], *constants, label=op.name)


def windowed(
    values: Values, tensor: int, window: Window, output: Shape, label: str, name: str = ""
) -> tuple[str, dict[str, Any]]:
    """The value to slide over, and the attributes of the node that does it.

    `name` is the value, where it is not the stored one. ONNX derives the output's size from the input's:
    if that would give more pixels than the program has, the input is cut.
    """
    shape, x = values.shape(tensor), name or values.names[tensor]
    after, cut = [], []
    for axis in (0, 1):
        extent = (window.kernel[axis] - 1) * window.dilation[axis] + 1
        reach = (output[1 + axis] - 1) * window.stride[axis] + extent - window.padding[axis]
        after.append(max(0, reach - shape[1 + axis]))
        rest = shape[1 + axis] - reach
        cut.append(reach if rest >= window.stride[axis] else shape[1 + axis])
    if tuple(cut) != tuple(shape[1:]):
        indices = [values.graph.constant(numbers) for numbers in ([0, 0], cut, [2, 3])]
        x = values.graph.add("Slice", x, *indices, label=label)
    attributes: dict[str, Any] = {
        "kernel_shape": window.kernel,
        "strides": window.stride,
        "pads": (*window.padding, *after),
    }
    if window.dilation != (1, 1):
        attributes["dilations"] = window.dilation
    return x, attributes


def channels(values: Values, op: Channels, zero: np.ndarray[Any, Any]) -> str:
    """Concatenation, then the order, then zero planes at both ends; each only where it is needed."""
    graph, reads = values.graph, list(op.reads)
    starts = dict(
        zip(reads, np.cumsum([0, *(values.shape(i).channels for i in reads)]), strict=False)
    )
    total = sum(values.shape(i).channels for i in reads)
    inner, before, after = _without_zeros(op.sources)
    indices = [total if i == ZEROS else int(starts[i]) + channel for i, channel in inner]
    x = values.names[reads[0]]
    if len(reads) > 1:
        x = graph.add("Concat", *(values.names[i] for i in reads), label=op.name, axis=1)
    if total in indices:
        x = _pad(graph, x, 0, 1, zero, op.name)
    planes = Shape(total + (total in indices), *values.shape(op.tensor)[1:])
    x = _select(graph, x, indices, planes, op.name)
    return _pad(graph, x, before, after, zero, op.name)


def _without_zeros(
    sources: tuple[tuple[int, int], ...],
) -> tuple[tuple[tuple[int, int], ...], int, int]:
    """The sources between the zero planes at the front and at the back, and how many those are."""
    real = [position for position, (tensor, _) in enumerate(sources) if tensor != ZEROS]
    first, last = real[0], real[-1]
    return sources[first : last + 1], first, len(sources) - 1 - last


def _select(graph: Graph, x: str, indices: list[int], planes: Shape, label: str) -> str:
    """The channels `indices` of x, by the simplest operation that takes them."""
    shuffled, groups = _shuffle(indices, planes.channels)
    if groups > 1:
        grouped = (groups, planes.channels // groups, *planes[1:])
        x = graph.add("Reshape", x, graph.constant([0, *grouped]), label=label)
        x = graph.add("Transpose", x, label=label, perm=(0, 2, 1, 3, 4))
        x = graph.add("Reshape", x, graph.constant([0, *planes]), label=label)
        indices = shuffled
    first, last = indices[0], indices[-1] + 1
    if indices == list(range(planes.channels)):
        return x
    if indices == list(range(first, last)):
        constants = [graph.constant([number]) for number in (first, last, 1)]
        return graph.add("Slice", x, *constants, label=label)
    if sorted(indices) != list(range(planes.channels)):
        return _gather(graph, x, indices, label)
    # openvino 2026.4 takes a permutation in front of a convolution for one that is its own inverse
    # (it reorders the weights by it, as for RGB and BGR): never show it a whole one.
    half = len(indices) // 2
    parts = [_gather(graph, x, part, label) for part in (indices[:half], indices[half:])]
    return graph.add("Concat", *parts, label=label, axis=1)


def _gather(graph: Graph, x: str, indices: list[int], label: str) -> str:
    order = graph.constant(indices, label=f"{label}/order")
    return graph.add("Gather", x, order, label=label, axis=1)


def _shuffle(indices: list[int], total: int) -> tuple[list[int], int]:
    """Positions of `indices` after a shuffle of that many groups; 1 group if none makes them adjacent.

    >>> _shuffle([1, 4, 2], 6), _shuffle([0, 1, 2], 6)
    (([2, 3, 4], 2), ([0, 1, 2], 1))
    """
    for groups in range(1, total // 2 + 1):
        if total % groups == 0:
            order = np.arange(total).reshape(groups, -1).T.ravel().tolist()
            start = order.index(indices[0]) if indices[0] < total else total
            if order[start : start + len(indices)] == indices:
                return list(range(start, start + len(indices))), groups
    return indices, 1


def _pad(
    graph: Graph, x: str, before: int, after: int, zero: np.ndarray[Any, Any], label: str
) -> str:
    if before == after == 0:
        return x
    pads = graph.constant([0, before, 0, 0, 0, after, 0, 0])
    return graph.add("Pad", x, pads, graph.constant(zero), label=label)
