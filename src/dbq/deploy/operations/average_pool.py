"""AveragePool and MeanPool: the sum over a window, and the mean of its pixels inside of the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from dbq.deploy.onnx import int8
from dbq.deploy.onnx.values import Values
from dbq.deploy.operations.operation import Summing
from dbq.deploy.tensors import Array, Doubles, Floats, Tensor
from dbq.deploy.window import Window


@dataclass(frozen=True, eq=False)
class AveragePool(Summing):
    """s_0 = the sum over the window, with zeros outside of the image.

    The divisor, the same for all windows, is in the scales of the results.
    """

    kind = "average pool"
    layout = "u32 input, window, results"

    input: int
    window: Window

    def check_sums(self, tensors: Sequence[Tensor]) -> None:
        self.window.check_pool(tensors[self.input].shape, tensors[self.writes[0]].shape)

    def largest_sums(self, largest: Sequence[int]) -> Doubles:
        return np.array([[prod(self.window.kernel) * largest[0]]], np.float64)

    def sums(self, tensors: Sequence[Tensor], inputs: list[Array]) -> list[Array]:
        pixels = self.window.pixels(inputs[0].astype(np.int64), tensors[self.writes[0]].shape, 0)
        return [np.add.reduce(list(pixels))]

    def onnx_sums(self, values: Values) -> list[str]:
        shape = values.shape(self.input)
        if self.window.kernel == shape[1:]:
            return [self._onnx_total(values)]
        # A convolution with ones: AveragePool would divide.
        ones = np.ones((shape.channels, 1, *self.window.kernel), np.float32)
        output = values.shape(self.writes[0])
        x, attributes = values.windowed(self.input, self.window, output, self.name)
        weight = values.graph.constant(ones)
        attributes["group"] = shape.channels
        return [values.graph.add("Conv", x, weight, label=self.name, **attributes)]

    def _onnx_total(self, values: Values) -> str:
        """The sum of a whole image of wide codes, which float64 holds exactly, rounded once."""
        graph = values.graph
        x = graph.add("Cast", values.names[self.input], label=self.name, to=11)  # float64
        x = graph.add("ReduceSum", x, graph.constant([2, 3]), label=self.name)
        return graph.add("Cast", x, label=self.name, to=1)  # float32

    def onnx_affine(self, values: Values, slopes: Doubles, offsets: Doubles) -> str:
        slope = slopes[:, 0] * prod(self.window.kernel)
        mean = _onnx_mean(self, values, count_padding=True)
        return int8.affine(values.graph, mean, slope, offsets, self.name)


@dataclass(frozen=True, eq=False)
class MeanPool(AveragePool):
    """v = s / n as float32: the sum over the window, and how many of its pixels are inside."""

    kind = "mean pool"

    def counts(self, tensors: Sequence[Tensor]) -> Floats:
        """n for each pixel of the output, [H, W]."""
        inside = np.ones((1, 1, *tensors[self.input].shape[1:]), np.float32)
        pixels = self.window.pixels(inside, tensors[self.writes[0]].shape, 0)
        counts: Floats = np.add.reduce(list(pixels))[0, 0]
        return counts

    def sums(self, tensors: Sequence[Tensor], inputs: list[Array]) -> list[Array]:
        (total,) = super().sums(tensors, inputs)
        return [total.astype(np.float32) / self.counts(tensors)]

    def onnx_sums(self, values: Values) -> list[str]:
        (total,) = super().onnx_sums(values)
        counts = values.graph.constant(self.counts(values.tensors))
        return [values.graph.add("Div", total, counts, label=self.name)]

    def onnx_affine(self, values: Values, slopes: Doubles, offsets: Doubles) -> str:
        mean = _onnx_mean(self, values, count_padding=False)
        return int8.affine(values.graph, mean, slopes[:, 0], offsets, self.name)


def _onnx_mean(pool: AveragePool, values: Values, count_padding: bool) -> str:
    window, output = pool.window, values.shape(pool.writes[0])
    x = int8.value(values, pool.input)
    is_whole = window.kernel == values.shape(pool.input)[1:] and window.padding == (0, 0)
    if is_whole and output[1:] == (1, 1):
        return values.graph.add("GlobalAveragePool", x, label=pool.name)
    x, attributes = values.windowed(pool.input, window, output, pool.name, x)
    attributes["count_include_pad"] = int(count_padding)
    return values.graph.add("AveragePool", x, label=pool.name, **attributes)
