"""Bilinear: an image of another size, each pixel a mixture of four."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from dbq.deploy.file.binary import ByteReader, ByteWriter
from dbq.deploy.onnx import int8
from dbq.deploy.onnx.functions import adder
from dbq.deploy.onnx.values import Values
from dbq.deploy.operations.operation import Summing
from dbq.deploy.tensors import Array, Doubles, Tensor, require

Blend = tuple[int, int, float]  # first and second pixel, and the share of the second

NEAR = 1e-4  # pixels by which ONNX may find another place


@dataclass(frozen=True, eq=False)
class Bilinear(Summing):
    """v = mix(a, b, share of the row), a and b mixed in the same way along the columns.

    mix(p, q, share) = p + share * (q - p), of codes as float32. `rows` and `columns` name the two pixels
    of each row and column of the output, and the share of the second.
    """

    kind = "bilinear"
    layout = "u32 input, results, blend rows[height], blend columns[width]"

    input: int
    rows: Sequence[Blend]
    columns: Sequence[Blend]

    def check_sums(self, tensors: Sequence[Tensor]) -> None:
        input, output = tensors[self.input].shape, tensors[self.writes[0]].shape
        require(output.channels == input.channels, "another number of channels")
        for blends, size, count, what in (
            (self.rows, input.height, output.height, "row"),
            (self.columns, input.width, output.width, "column"),
        ):
            require(len(blends) == count, f"not one pair of {what}s for each of the output")
            for first, second, share in blends:
                inside = 0 <= first < size and 0 <= second < size
                require(inside, f"{what}s {first} and {second} of {size}")
                require(0 <= np.float32(share) <= 1, f"{share} of a {what}, expected 0 to 1")

    def sums(self, tensors: Sequence[Tensor], inputs: list[Array]) -> list[Array]:
        x = inputs[0].astype(np.float32)
        for axis, blends in ((3, self.columns), (2, self.rows)):
            first, second, share = _table(blends)
            p, q = np.take(x, first, axis), np.take(x, second, axis)
            x = p + (share if axis == 3 else share[:, None]) * (q - p)
        return [x]

    def write(self, file: ByteWriter) -> None:
        file.put("I", self.input)
        file.results(self.results)
        for blend in (*self.rows, *self.columns):
            file.put("HHf", *blend)

    @classmethod
    def read(cls, file: ByteReader, name: str) -> Self:
        input, results = file.number(), file.results(cls.sum_count)
        _, height, width = file.shape(results[0].tensor)
        rows, columns = (
            tuple(np.frombuffer(file.take(8 * n), "<u2, <u2, <f4").tolist())
            for n in (height, width)
        )
        return cls(name, results, input, rows, columns)

    def onnx_sums(self, values: Values) -> list[str]:
        return [self._onnx(values, values.names[self.input])]

    def onnx_affine(self, values: Values, slopes: Doubles, offsets: Doubles) -> str:
        x = int8.value(values, self.input)
        x = self._onnx_resize(values, x) or self._onnx(values, x)
        return int8.affine(values.graph, x, slopes[:, 0], offsets, self.name)

    def _onnx(self, values: Values, x: str) -> str:
        """The steps of `sums`, one by one."""
        graph, add = values.graph, adder(values.graph, self.name)
        for axis, blends in ((3, self.columns), (2, self.rows)):
            first, second, share = _table(blends)
            p, q = (
                add("Gather", x, graph.constant(places.tolist()), axis=axis)
                for places in (first, second)
            )
            shares = graph.constant(share if axis == 3 else share[:, None])
            x = add("Add", p, add("Mul", shares, add("Sub", q, p)))
        return x

    def _onnx_resize(self, values: Values, x: str) -> str | None:
        """A Resize, if one finds the same places."""
        graph, input, output = values.graph, values.shape(self.input), values.shape(self.writes[0])
        factors = np.array(output, np.float32) / np.array(input, np.float32)
        # The output's size is rounded down, in float32 or in float64.
        is_short = np.floor(factors.astype(np.float64) * input) < output
        factors = np.where(is_short, np.nextafter(factors, np.float32(np.inf)), factors)
        axes = list(zip((self.rows, self.columns), input[1:], strict=True))
        for mode in ("half_pixel", "align_corners"):
            if all(_is_resize(blends, size, mode) for blends, size in axes):
                return graph.add(
                    "Resize", x, "", graph.constant(np.array([1, *factors], np.float32)),
                    label=self.name, mode="linear", coordinate_transformation_mode=mode,
                )  # fmt: skip
        return None


def _table(blends: Sequence[Blend]) -> tuple[Array, Array, Array]:
    first, second, share = zip(*blends, strict=True)
    return np.array(first), np.array(second), np.array(share, np.float32)


def _is_resize(blends: Sequence[Blend], size: int, mode: str) -> bool:
    """Whether ONNX, resizing one axis of `size` pixels, mixes the same ones.

    >>> _is_resize(((0, 0, 0.0), (0, 1, 0.25), (0, 1, 0.75), (1, 1, 0.0)), 2, "half_pixel")
    True
    """
    first, second, share = _table(blends)
    count = len(blends)
    if mode == "half_pixel":
        places = (np.arange(count) + 0.5) * size / count - 0.5
    else:
        places = np.arange(count) * (size - 1) / max(count - 1, 1)
    expected = np.clip(places, 0, size - 1)
    adjacent = np.abs(second - first).max() <= 1
    return bool(adjacent and np.abs(first + share * (second - first) - expected).max() < NEAR)
