"""Add: two tensors of one shape, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dbq.deploy.onnx import int8
from dbq.deploy.onnx.values import Values
from dbq.deploy.operations.operation import Summing
from dbq.deploy.tensors import Doubles, Tensor, require


@dataclass(frozen=True, eq=False)
class Add(Summing):
    """s_0 = a, s_1 = b."""

    kind = "add"
    layout = "u32 a, u32 b, results"
    sum_count = 2

    a: int
    b: int

    def check_sums(self, tensors: Sequence[Tensor]) -> None:
        shapes = {tensors[i].shape for i in (*self.reads, self.writes[0])}
        require(len(shapes) == 1, "tensors of different shapes")

    def onnx_affine(self, values: Values, slopes: Doubles, offsets: Doubles) -> str:
        graph, nothing = values.graph, np.zeros_like(offsets)
        terms = [
            int8.affine(graph, int8.value(values, tensor), slopes[:, j], nothing, self.name)
            for j, tensor in enumerate(self.reads)
        ]
        total = graph.add("Add", *terms, label=self.name)
        return int8.affine(graph, total, np.ones_like(offsets), offsets, self.name)
