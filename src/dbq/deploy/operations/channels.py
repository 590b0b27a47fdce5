"""Channels: concatenation, split, shuffle and zero channels, none of which computes anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dbq.deploy.file.binary import ByteReader, ByteWriter
from dbq.deploy.onnx import int8
from dbq.deploy.onnx.graph import Graph
from dbq.deploy.onnx.values import Values
from dbq.deploy.operations.operation import Operation
from dbq.deploy.tensors import DTYPES, Array, Shape, Tensor, require

ZEROS = -1  # stands for a tensor of zeros
ZEROS_IN_FILE = 0xFFFFFFFF

Sources = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Channels(Operation):
    """`sources` names the (tensor, channel) of each channel; the tensor ZEROS is a plane of zeros."""

    kind = "channels"
    layout = "u32 tensor, (u32 tensor, u32 channel)[channels]"

    tensor: int
    sources: Sources

    @property
    def reads(self) -> tuple[int, ...]:
        return tuple(sorted({tensor for tensor, _ in self.sources if tensor != ZEROS}))

    def check(self, tensors: Sequence[Tensor], largest: Mapping[int, int]) -> None:
        output = tensors[self.tensor]
        require(len(self.sources) == output.shape.channels, "not one source for each channel")
        require(self.reads, "nothing but zeros")
        for index, channel in self.sources:
            if index == ZEROS:
                continue
            source = tensors[index]
            same = (source.type, source.scale, source.shape[1:]) == (
                output.type, output.scale, output.shape[1:])  # fmt: skip
            require(same, f"tensor {index} differs in type, scale or size")
            require(0 <= channel < source.shape.channels, f"no channel {channel} in {index}")

    def run(self, tensors: Sequence[Tensor], inputs: list[Array]) -> dict[int, Array]:
        read = dict(zip(self.reads, inputs, strict=True))
        output = tensors[self.tensor]
        zeros = np.zeros((len(inputs[0]), *output.shape[1:]), DTYPES[output.type])
        planes = [zeros if index == ZEROS else read[index][:, c] for index, c in self.sources]
        return {self.tensor: np.stack(planes, axis=1)}

    def write(self, file: ByteWriter) -> None:
        file.put("I", self.tensor)
        for tensor, channel in self.sources:
            file.put("II", ZEROS_IN_FILE if tensor == ZEROS else tensor, channel)

    @classmethod
    def read(cls, file: ByteReader, name: str) -> Self:
        tensor = file.number()
        count = file.channels(tensor)
        flat = np.frombuffer(file.take(8 * count), "<u4").reshape(count, 2).tolist()
        sources = ((ZEROS if i == ZEROS_IN_FILE else i, channel) for i, channel in flat)
        return cls(name, tensor, tuple(sources))

    def onnx_exact(self, values: Values) -> None:
        values.names[self.tensor] = self._onnx(values, np.zeros((), np.float32))

    def onnx_int8(self, values: Values) -> None:
        zero = int8.ZERO_POINTS.get(values.tensors[self.tensor].type, np.float32(0))
        values.names[self.tensor] = self._onnx(values, np.asarray(zero))

    def _onnx(self, values: Values, zero: Array) -> str:
        """Concatenation, then the order, then zero planes at both ends; each only where needed."""
        graph, reads = values.graph, list(self.reads)
        counts = [values.shape(i).channels for i in reads]
        starts = dict(zip(reads, np.cumsum([0, *counts[:-1]]).tolist(), strict=True))
        total = sum(counts)
        inner, before, after = _without_zeros(self.sources)
        indices = [total if i == ZEROS else starts[i] + channel for i, channel in inner]
        x = values.names[reads[0]]
        if len(reads) > 1:
            x = graph.add("Concat", *(values.names[i] for i in reads), label=self.name, axis=1)
        if total in indices:
            x = _pad(graph, x, 0, 1, zero, self.name)
        planes = Shape(total + (total in indices), *values.shape(self.tensor)[1:])
        x = _select(graph, x, indices, planes, self.name)
        return _pad(graph, x, before, after, zero, self.name)


def _without_zeros(sources: Sources) -> tuple[Sources, int, int]:
    """The sources between the zero planes at the front and at the back, and how many those are."""
    real = [position for position, (tensor, _) in enumerate(sources) if tensor != ZEROS]
    first, last = real[0], real[-1]
    return sources[first : last + 1], first, len(sources) - 1 - last


def _select(graph: Graph, x: str, indices: list[int], planes: Shape, label: str) -> str:
    """The channels `indices` of x, by the simplest node that takes them."""
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
    # openvino 2026.4 mistakes a permutation in front of a convolution for one that is its own inverse
    # (it reorders the weights by it, as for RGB and BGR): never show it a whole one.
    half = len(indices) // 2
    parts = [_gather(graph, x, part, label) for part in (indices[:half], indices[half:])]
    return graph.add("Concat", *parts, label=label, axis=1)


def _gather(graph: Graph, x: str, indices: list[int], label: str) -> str:
    order = graph.constant(indices)
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


def _pad(graph: Graph, x: str, before: int, after: int, zero: Any, label: str) -> str:
    if before == after == 0:
        return x
    pads = graph.constant([0, before, 0, 0, 0, after, 0, 0])
    return graph.add("Pad", x, pads, graph.constant(zero), label=label)
