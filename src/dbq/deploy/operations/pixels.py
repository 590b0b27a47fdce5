"""Pixels: rows and columns at other places: crops, flips, padding, nearest neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np

from dbq.deploy.file.binary import ByteReader, ByteWriter
from dbq.deploy.onnx import int8
from dbq.deploy.onnx.functions import Add, adder
from dbq.deploy.onnx.graph import Graph
from dbq.deploy.onnx.values import Values
from dbq.deploy.operations.operation import Operation
from dbq.deploy.tensors import DTYPES, Array, Tensor, require

NOTHING = 0xFFFF  # stands for a row or column of zeros; no image has that many

Places = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Pixels(Operation):
    """Output pixel (i, j) is input pixel (rows[i], columns[j]), and 0 where either is NOTHING."""

    kind = "pixels"
    layout = "u32 input, u32 tensor, u16 rows[height], u16 columns[width]"

    input: int
    tensor: int
    rows: Sequence[int]
    columns: Sequence[int]

    def check(self, tensors: Sequence[Tensor], largest: Mapping[int, int]) -> None:
        input, output = tensors[self.input], tensors[self.tensor]
        require((output.type, output.scale) == (input.type, input.scale), "another type or scale")
        require(output.shape.channels == input.shape.channels, "another number of channels")
        for places, size, count, what in (
            (self.rows, input.shape.height, output.shape.height, "row"),
            (self.columns, input.shape.width, output.shape.width, "column"),
        ):
            require(len(places) == count, f"not one {what} of the input for each of the output")
            beyond = next((p for p in places if not (0 <= p < size or p == NOTHING)), None)
            require(beyond is None, f"{what} {beyond} of {size}")

    def run(self, tensors: Sequence[Tensor], inputs: list[Array]) -> dict[int, Array]:
        rows, columns = (np.array(places) for places in (self.rows, self.columns))
        is_real = np.ix_(rows != NOTHING, columns != NOTHING)
        output = tensors[self.tensor]
        found = np.zeros((*inputs[0].shape[:2], *output.shape[1:]), DTYPES[output.type])
        places = np.ix_(rows[rows != NOTHING], columns[columns != NOTHING])
        found[:, :, *is_real] = inputs[0][:, :, *places]
        return {self.tensor: found}

    def write(self, file: ByteWriter) -> None:
        file.put("II", self.input, self.tensor)
        file.parts += [np.array(p, "<u2").tobytes() for p in (self.rows, self.columns)]

    @classmethod
    def read(cls, file: ByteReader, name: str) -> Self:
        input, tensor = file.get("II")
        _, height, width = file.shape(tensor)
        rows, columns = (
            tuple(np.frombuffer(file.take(2 * n), "<u2").tolist()) for n in (height, width)
        )
        return cls(name, input, tensor, rows, columns)

    def onnx_exact(self, values: Values) -> None:
        values.names[self.tensor] = self._onnx(values, np.zeros((), np.float32))

    def onnx_int8(self, values: Values) -> None:
        zero = int8.ZERO_POINTS.get(values.tensors[self.tensor].type, np.float32(0))
        values.names[self.tensor] = self._onnx(values, np.asarray(zero))

    def _onnx(self, values: Values, zero: Array) -> str:
        """Repeated pixels are a Resize; else rows, then columns, then zeros around them."""
        graph, x = values.graph, values.names[self.input]
        add, sizes = adder(graph, self.name), values.shape(self.input)[1:]
        axes = (tuple(self.rows), tuple(self.columns))
        times = [_repeats(places, size) for places, size in zip(axes, sizes, strict=True)]
        if all(times) and times != [1, 1]:
            factors = graph.constant(np.array([1, 1, *times], np.float32))
            return add(
                "Resize", x, "", factors, mode="nearest", nearest_mode="floor",
                coordinate_transformation_mode="asymmetric",
            )  # fmt: skip
        before, after = [0] * 4, [0] * 4
        for axis, (places, size) in enumerate(zip(axes, sizes, strict=True), 2):
            inner, before[axis], after[axis] = _without_nothing(places)
            x = _select(graph, add, x, inner, size, axis, zero)
        return _pad(graph, add, x, before, after, zero)


def _repeats(places: Places, size: int) -> int:
    """How often each place occurs, if all do, in order and equally often; else 0.

    >>> _repeats((0, 0, 1, 1), 2), _repeats((0, 1, 1), 2)
    (2, 0)
    """
    times = len(places) // size
    return times if places == tuple(i // max(times, 1) for i in range(times * size)) else 0


def _without_nothing(places: Places) -> tuple[Places, int, int]:
    """The places between the zeros at both ends, and how many those are; one place at least."""
    real = [i for i, place in enumerate(places) if place != NOTHING] or [0]
    return places[real[0] : real[-1] + 1], real[0], len(places) - 1 - real[-1]


def _select(
    graph: Graph, add: Add, x: str, places: Places, size: int, axis: int, zero: Array
) -> str:
    """`places` along one axis: a Slice if they are at equal distances."""
    if places == tuple(range(size)):
        return x
    steps = {after - before for before, after in pairwise(places)} or {1}
    if len(steps) == 1 and 0 not in steps and NOTHING not in places:
        (step,) = steps
        end = places[-1] + (1 if step > 0 else -1)
        end = end if end >= 0 else -(2**31)  # -1 would be the last pixel
        return add("Slice", x, *(graph.constant([n]) for n in (places[0], end, axis, step)))
    if NOTHING in places:
        after = [0] * 4
        after[axis] = 1
        x = _pad(graph, add, x, [0] * 4, after, zero)
    order = [size if place == NOTHING else place for place in places]
    return add("Gather", x, graph.constant(order), axis=axis)


def _pad(graph: Graph, add: Add, x: str, before: list[int], after: list[int], zero: Any) -> str:
    if not any((*before, *after)):
        return x
    return add("Pad", x, graph.constant([*before, *after]), graph.constant(zero))
