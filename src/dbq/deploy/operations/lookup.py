"""Lookup: the image to codes, pixel by pixel through a table. The first operation of every Program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from dbq.deploy.file.binary import ByteReader, ByteWriter
from dbq.deploy.onnx import int8
from dbq.deploy.onnx.values import IMAGE, Values
from dbq.deploy.operations.operation import Operation
from dbq.deploy.tensors import DTYPES, Array, Floats, Tensor, require
from dbq.support.facts import fact_list


@dataclass(frozen=True, eq=False)
class Lookup(Operation):
    """`table` [C, 256] holds code bytes. `run` is given the uint8 images [N, H, W, C]."""

    kind = "lookup"
    layout = "u32 tensor, bytes[channels][256]"

    tensor: int
    table: npt.NDArray[np.uint8]

    def check(self, tensors: Sequence[Tensor], largest: Mapping[int, int]) -> None:
        output = tensors[self.tensor]
        require(output.type in ("u8", "i8"), f"a table of {output.type}")
        require(self.table.shape == (output.shape.channels, 256), "shape of the table")

    def largest_codes(self, largest: Mapping[int, int]) -> dict[int, int]:
        return {self.tensor: 255}

    def run(self, tensors: Sequence[Tensor], inputs: list[Array]) -> dict[int, Array]:
        (images,) = inputs
        codes = self._codes(tensors[self.tensor])
        planes = [codes[c][images[..., c]] for c in range(len(codes))]
        return {self.tensor: np.stack(planes, axis=1)}

    def _codes(self, tensor: Tensor) -> Array:
        return self.table.view(DTYPES[tensor.type])

    def write(self, file: ByteWriter) -> None:
        file.put("I", self.tensor)
        file.parts.append(self.table.tobytes())

    @classmethod
    def read(cls, file: ByteReader, name: str) -> Self:
        tensor = file.number()
        channels = file.channels(tensor)
        table = np.frombuffer(file.take(channels * 256), np.uint8)
        return cls(name, tensor, table.reshape(channels, 256))

    def onnx_exact(self, values: Values) -> None:
        table = self._codes(values.tensors[self.tensor]).astype(np.float32)
        values.names[self.tensor] = self._gathered(values, self._planes(values), table)

    def onnx_int8(self, values: Values) -> None:
        """As arithmetic if that gives the same codes, else as a table."""
        graph, tensor = values.graph, values.tensors[self.tensor]
        planes = self._planes(values)
        line = self._line(values, tensor)
        if line is None:
            table = self.table + int8.ZERO_POINTS[tensor.type]
            values.names[self.tensor] = self._gathered(values, planes, table)
            return
        pixels = graph.add("Cast", planes, label=self.name, to=1)  # float
        slope, offset = (graph.constant(numbers[:, None, None]) for numbers in line)
        scaled = graph.add("Mul", pixels, slope, label=self.name)
        x = graph.add("Add", scaled, offset, label=self.name)
        codes = self._codes(tensor)
        limits = [graph.constant(float(code) * tensor.scale) for code in (codes.min(), codes.max())]
        x = graph.add("Clip", x, *limits, label=self.name)
        values.names[self.tensor] = int8.quantized(values, x, tensor, self.name)

    def _planes(self, values: Values) -> str:
        return values.graph.add("Transpose", IMAGE, label=self.name, perm=(0, 3, 1, 2))

    def _gathered(self, values: Values, planes: str, table: Array) -> str:
        """Pixels through `table` [C, 256], the rows of which become one table."""
        graph = values.graph
        pixels = graph.add("Cast", planes, label=self.name, to=6)  # int32
        starts = np.arange(len(table), dtype=np.int32)[:, None, None] * 256
        indices = graph.add("Add", pixels, graph.constant(starts), label=self.name)
        constant = graph.constant(table.ravel())
        return graph.add("Gather", constant, indices, label=self.name, axis=0)

    def _line(self, values: Values, tensor: Tensor) -> tuple[Floats, Floats] | None:
        """Slope and offset for each channel, if (pixel / 255 - mean) / std explains the table."""
        mean, std = (
            np.asarray(fact_list(values.facts, key, float, len(self.table)), np.float64)
            for key in ("mean", "std")
        )
        if not (mean.size and std.size and np.isfinite(mean).all() and (std > 0).all()):
            return None
        codes = self._codes(tensor).astype(np.float64)
        t = ((np.arange(256) / 255 - mean[:, None]) / std[:, None]) / tensor.scale
        # Runtimes differ in the last bits, and numbers near a half would round either way: shift the
        # line to the middle of where it gives the codes of the table.
        least = np.where(codes > codes.min(), codes - 0.5 - t, -np.inf).max(axis=1)
        most = np.where(codes < codes.max(), codes + 0.5 - t, np.inf).min(axis=1)
        if not (most - least > 1e-3).all():
            return None
        shift = (np.maximum(least, -0.5) + np.minimum(most, 0.5)) / 2
        slope, offset = 1 / (255 * std), -mean / std + shift * tensor.scale
        return slope.astype(np.float32), offset.astype(np.float32)
