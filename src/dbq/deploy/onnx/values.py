"""Which ONNX value holds each tensor of a program, and windows as ONNX counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dbq.deploy.onnx.graph import Bits, Graph
from dbq.deploy.tensors import Shape, Tensor
from dbq.deploy.window import Window

IMAGE = "image"  # name of the input, uint8 [N, H, W, C]


@dataclass
class Values:
    """A program on its way into `graph`; every tensor is [N, C, H, W]."""

    graph: Graph
    tensors: Sequence[Tensor]
    outputs: frozenset[int]  # the tensors that the program returns
    weight_bits: Bits  # weights are written in no fewer
    facts: Mapping[str, Any]
    names: dict[int, str] = field(default_factory=dict)

    def shape(self, tensor: int) -> Shape:
        return self.tensors[tensor].shape

    def windowed(
        self, tensor: int, window: Window, output: Shape, label: str, name: str = ""
    ) -> tuple[str, dict[str, Any]]:
        """The value to slide over, and the attributes of the node that does it.

        `name` replaces the stored value. ONNX derives the output's size from the input's: if that would
        give more pixels than the program has, the input is cropped.
        """
        x, sizes, reach = name or self.names[tensor], self.shape(tensor)[1:], window.reach(output)
        axes = list(zip(reach, sizes, window.stride, strict=True))
        cut = [end if size - end >= stride else size for end, size, stride in axes]
        if cut != list(sizes):
            indices = [self.graph.constant(numbers) for numbers in ([0, 0], cut, [2, 3])]
            x = self.graph.add("Slice", x, *indices, label=label)
        pads = (*window.padding, *(max(0, end - size) for end, size, _ in axes))
        attributes: dict[str, Any] = {"kernel_shape": window.kernel}
        if window.stride != (1, 1):
            attributes["strides"] = window.stride
        if any(pads):
            attributes["pads"] = pads
        if window.dilation != (1, 1):
            attributes["dilations"] = window.dilation
        return x, attributes
