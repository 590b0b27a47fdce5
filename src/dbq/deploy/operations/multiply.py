"""Multiply: two tensors element by element, or one by a gate for each channel or each pixel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dbq.deploy.onnx import int8
from dbq.deploy.onnx.values import Values
from dbq.deploy.operations.operation import Summing
from dbq.deploy.tensors import Array, Doubles, Shape, Tensor, require


@dataclass(frozen=True, eq=False)
class Multiply(Summing):
    """v = a * b, of codes as float32. b has the shape of a, [C, 1, 1] or [1, H, W]."""

    kind = "multiply"
    layout = "u32 a, u32 b, results"

    a: int
    b: int

    def check_sums(self, tensors: Sequence[Tensor]) -> None:
        shape, other = tensors[self.a].shape, tensors[self.b].shape
        require(tensors[self.writes[0]].shape == shape, "another shape")
        fitting = (shape, Shape(shape.channels, 1, 1), Shape(1, shape.height, shape.width))
        require(other in fitting, f"{_text(shape)} times {_text(other)} elements")

    def check_codes(self, tensors: Sequence[Tensor], largest: Sequence[int]) -> None:
        """Codes are at most 2^30, so products are at most LARGEST_VALUE."""

    def largest_sums(self, largest: Sequence[int]) -> Doubles:
        return np.array([[float(largest[0]) * largest[1]]])

    def units(self, tensors: Sequence[Tensor]) -> Doubles:
        return np.array([tensors[self.a].scale * tensors[self.b].scale])

    def sums(self, tensors: Sequence[Tensor], inputs: list[Array]) -> list[Array]:
        a, b = (codes.astype(np.float32) for codes in inputs)
        return [a * b]

    def onnx_sums(self, values: Values) -> list[str]:
        codes = (values.names[tensor] for tensor in self.reads)
        return [values.graph.add("Mul", *codes, label=self.name)]

    def onnx_affine(self, values: Values, slopes: Doubles, offsets: Doubles) -> str:
        numbers = (int8.value(values, tensor) for tensor in self.reads)
        product = values.graph.add("Mul", *numbers, label=self.name)
        return int8.affine(values.graph, product, slopes[:, 0], offsets, self.name)


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))
