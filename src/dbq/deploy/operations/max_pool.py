"""MaxPool: the largest code of a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dbq.deploy.onnx.values import Values
from dbq.deploy.operations.operation import Operation
from dbq.deploy.tensors import Array, Tensor, require
from dbq.deploy.window import Window


@dataclass(frozen=True, eq=False)
class MaxPool(Operation):
    """Type and scale stay. A 1x1 window with a stride takes every n-th pixel."""

    kind = "max pool"
    layout = "u32 input, window, u32 tensor"

    input: int
    window: Window
    tensor: int

    def check(self, tensors: Sequence[Tensor], largest: Mapping[int, int]) -> None:
        input, output = tensors[self.input], tensors[self.tensor]
        require((output.type, output.scale) == (input.type, input.scale), "another type or scale")
        self.window.check_pool(input.shape, output.shape)

    def run(self, tensors: Sequence[Tensor], inputs: list[Array]) -> dict[int, Array]:
        (x,) = inputs
        nothing = np.iinfo(x.dtype).min  # what lies outside of the image never wins
        pixels = self.window.pixels(x, tensors[self.tensor].shape, nothing)
        return {self.tensor: np.maximum.reduce(list(pixels))}

    def onnx_exact(self, values: Values) -> None:
        """ONNX, too, lets nothing outside of the image win."""
        output, graph = values.shape(self.tensor), values.graph
        if self.window.kernel == (1, 1):
            ends, stride = list(self.window.reach(output)), list(self.window.stride)
            constants = [graph.constant(n) for n in ([0, 0], ends, [2, 3], stride)]
            x = graph.add("Slice", values.names[self.input], *constants, label=self.name)
        else:
            x, attributes = values.windowed(self.input, self.window, output, self.name)
            x = graph.add("MaxPool", x, label=self.name, **attributes)
        values.names[self.tensor] = x
