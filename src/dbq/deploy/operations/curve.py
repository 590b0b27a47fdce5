"""Curve: sigmoid, hard swish, SiLU and their kind, as a function of straight segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from dbq.deploy.file.binary import ByteReader, ByteWriter
from dbq.deploy.onnx import int8
from dbq.deploy.onnx.functions import adder, equal_function
from dbq.deploy.onnx.graph import Graph
from dbq.deploy.onnx.values import Values
from dbq.deploy.operations.operation import Summing
from dbq.deploy.tensors import (
    CODE_RANGE,
    LARGEST_SCALE,
    LARGEST_VALUE,
    Array,
    Doubles,
    Floats,
    Result,
    Tensor,
    require,
)

# The limits of docs/format.md: with them, no step of `values` gives an infinity or a NaN.
MAX_SEGMENTS = 4096
LARGEST_KNOT = 2.0**29
LARGEST_INPUT = 2.0**30


@dataclass(frozen=True, eq=False)
class Curve(Summing):
    """v = g(x), or with form 1 v = x * g(x), of x = code * scale of the input.

    g is linear between `knots`, which stand at equal distances from `low` to `high`, and constant
    outside. So a sigmoid is form 0, and x * sigmoid(x) is form 1.
    """

    kind = "curve"
    layout = "u32 input, u8 form, f32 low, f32 high, u16 segments, f32 knots[segments + 1], results"

    input: int
    form: int
    low: float
    high: float
    knots: Floats  # [segments + 1]

    @property
    def segments(self) -> int:
        return len(self.knots) - 1

    @property
    def density(self) -> np.float32:
        """Segments for each unit of x."""
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            return np.float32(self.segments) / (np.float32(self.high) - np.float32(self.low))

    def check_sums(self, tensors: Sequence[Tensor]) -> None:
        require(tensors[self.input].shape == tensors[self.writes[0]].shape, "another shape")
        require(self.form in (0, 1), f"a curve of form {self.form}, expected 0 or 1")
        require(
            self.knots.dtype == np.float32 and self.knots.ndim == 1, "knots that are not float32"
        )
        fits = 1 <= self.segments <= MAX_SEGMENTS
        require(fits, f"{self.segments} segments, expected 1 to {MAX_SEGMENTS}")
        fine = (np.abs(self.knots) <= LARGEST_KNOT).all()  # not for NaN
        require(fine, f"a knot that is NaN or over {LARGEST_KNOT:.0f} in size")
        ends = np.float32(self.low), np.float32(self.high)
        require(
            all(abs(end) <= LARGEST_SCALE for end in ends) and ends[0] < ends[1],
            f"a curve from {self.low} to {self.high}",
        )
        require(
            self.density <= LARGEST_SCALE,
            f"{self.segments} segments between {self.low} and {self.high}",
        )

    def check_codes(self, tensors: Sequence[Tensor], largest: Sequence[int]) -> None:
        most = largest[0] * float(np.float32(tensors[self.input].scale))
        require(most <= LARGEST_INPUT, f"values up to {most:.0f}, over {LARGEST_INPUT:.0f}")

    def largest_sums(self, largest: Sequence[int]) -> Doubles:
        most = float(np.abs(self.knots).max()) if self.form == 0 else LARGEST_VALUE
        return np.array([[most]])

    def units(self, tensors: Sequence[Tensor]) -> Doubles:
        return np.ones(1)

    def sums(self, tensors: Sequence[Tensor], inputs: list[Array]) -> list[Array]:
        x = inputs[0].astype(np.float32) * np.float32(tensors[self.input].scale)
        return [self.values(x)]

    def values(self, x: Array) -> Array:
        """v of float32 values; every step is rounded to float32 by itself."""
        low, high = np.float32(self.low), np.float32(self.high)
        u = np.where(x < low, low, np.where(x > high, high, x))
        p = (u - low) * self.density
        i = np.minimum(p.astype(np.int32), self.segments - 1)  # p >= 0: this is floor(p)
        f = p - i.astype(np.float32)
        g = self.knots[i] + f * np.diff(self.knots)[i]
        v: Array = x * g if self.form else g
        return v

    def write(self, file: ByteWriter) -> None:
        file.put("IBffH", self.input, self.form, self.low, self.high, self.segments)
        file.parts.append(self.knots.astype("<f4").tobytes())
        file.results(self.results)

    @classmethod
    def read(cls, file: ByteReader, name: str) -> Self:
        input, form, low, high, segments = file.get("IBffH")
        knots = file.floats(segments + 1)
        return cls(name, file.results(cls.sum_count), input, form, low, high, knots)

    def onnx_sums(self, values: Values) -> list[str]:
        graph, scale = values.graph, values.tensors[self.input].scale
        x = graph.add(
            "Mul", values.names[self.input], graph.constant(float(scale)), label=self.name
        )
        return [self._onnx(graph, x)]

    def onnx_affine(self, values: Values, slopes: Doubles, offsets: Doubles) -> str:
        x = int8.value(values, self.input)
        v = self._onnx_by_name(values, x) or self._onnx(values.graph, x)
        return int8.affine(values.graph, v, slopes[:, 0], offsets, self.name)

    def _onnx(self, graph: Graph, x: str) -> str:
        """The steps of `values`, one by one."""
        add = adder(graph, self.name)
        u = add("Clip", x, graph.constant(float(self.low)), graph.constant(float(self.high)))
        p = add("Sub", u, graph.constant(float(self.low)))
        p = add("Mul", p, graph.constant(float(self.density)))
        first, step = self.knots[:-1], np.diff(self.knots)
        if self.segments == 1:
            f, base, slope = p, graph.constant(float(first[0])), graph.constant(float(step[0]))
        else:
            i = add("Min", add("Floor", p), graph.constant(float(self.segments - 1)))
            f = add("Sub", p, i)
            i = add("Cast", i, to=6)  # int32
            base, slope = (add("Gather", graph.constant(k), i, axis=0) for k in (first, step))
        g = add("Add", base, add("Mul", f, slope))
        return add("Mul", x, g) if self.form else g

    def _onnx_by_name(self, values: Values, x: str) -> str | None:
        """The curve as a function that ONNX has, if that differs by less than results can show."""
        graph, tensor = values.graph, values.tensors[self.input]
        add = adder(graph, self.name)
        if self.knots.tolist() == [0, 1]:
            slope = float(self.density)
            g = add("HardSigmoid", x, alpha=slope, beta=-self.low * slope)
        else:
            reach = min(max(map(abs, CODE_RANGE[tensor.type])) * tensor.scale, LARGEST_INPUT)
            build = equal_function(
                self.values, self.form == 1, self.low, self.high, reach,
                lambda found: min(_resolution(values, r, found) for r in self.results),
            )  # fmt: skip
            if build is None:
                return None
            g = build(graph, add, x)
        return add("Mul", x, g) if self.form else g


def _resolution(values: Values, result: Result, found: Array) -> float:
    """A quarter of a step in an 8-bit result; as fine as float32 arithmetic allows in others."""
    if values.tensors[result.tensor].type in int8.ZERO_POINTS:
        return 0.25 / max(float(np.abs(result.scales).max()), 1e-30)
    return 1e-5 * float(np.abs(found).max(initial=0))
