"""Requantize: the same tensor in another precision, or scaled and shifted channel by channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dbq.deploy.onnx import int8
from dbq.deploy.onnx.values import Values
from dbq.deploy.operations.operation import Summing
from dbq.deploy.tensors import Doubles, Tensor, require


@dataclass(frozen=True, eq=False)
class Requantize(Summing):
    """s_0 = input."""

    kind = "requantize"
    layout = "u32 input, results"

    input: int

    def check_sums(self, tensors: Sequence[Tensor]) -> None:
        require(tensors[self.input].shape == tensors[self.writes[0]].shape, "another shape")

    def onnx_affine(self, values: Values, slopes: Doubles, offsets: Doubles) -> str:
        x = int8.value(values, self.input)
        return int8.affine(values.graph, x, slopes[:, 0], offsets, self.name)
