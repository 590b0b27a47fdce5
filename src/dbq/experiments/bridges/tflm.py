"""TensorFlow Lite Micro: a program as a .tflite file with compressed weights. Needs tflite_micro.

    export_tflm(program, "net.tflite", images)

For people who must stay in TFLM: convolutions, depthwise ones, linear layers and a mean over the image,
each reading and writing 8 bits. Ternary branches become indices of 2 to 4 bits into a table for each
output channel, which TFLM's DECODE unpacks before a layer. TFLM requantizes in fixed point, so a code
may differ by one; what the program keeps in 32 bits, such as logits, has 8 bits.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tflite_micro.tensorflow.lite.micro.compression import (
    compress,
    model_editor,
    spec,
    spec_builder,
)
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from dbq.deploy import reference
from dbq.deploy.onnx.weights import merge
from dbq.deploy.operations.average_pool import AveragePool
from dbq.deploy.operations.convolution import Convolution
from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.operations.operation import Operation
from dbq.deploy.program import Program
from dbq.deploy.tensors import Result, Shape
from dbq.deploy.window import Window
from dbq.errors import LoweringError
from dbq.support.atomic import write_atomically

Images = npt.NDArray[np.uint8]
ZERO = {"u8": -128, "i8": 0}
LIMITS = {"u8": [(0, 255)], "i8": [(-127, 127), (-128, 127)]}
HEADER = 32  # bytes at most that compression adds to a tensor
FINEST = 2.0**-12  # step of a bias, in output codes, where a channel has no weights


def input_codes(program: Program, images: Images) -> npt.NDArray[np.int8]:
    """What the exported network reads [N, H, W, C], of uint8 pixels."""
    first = program.operations[0]
    (codes,) = first.run(program.tensors, [images]).values()
    shift = ZERO[program.tensors[first.writes[0]].type]
    return (codes.astype(np.int16) + shift).astype(np.int8).transpose(0, 2, 3, 1)


def export_tflm(program: Program, path: str | os.PathLike[str], images: Images) -> Path:
    """Write `program` as .tflite: int8 codes in (`input_codes`), int8 logits out, one image at a time.

    Some `images` [N, H, W, C] show how large those values are that the program keeps in 32 bits.
    """
    write_atomically(Path(path), bytes(_Writer(program, images).file()))
    return Path(path)


def _grids(program: Program, images: Images) -> list[tuple[float, int]]:
    """Step and zero point of every tensor: the program's, or made for the values that were seen."""
    grids = []
    results = [result for op in program.operations for result in getattr(op, "results", ())]
    low = {result.tensor: result.low for result in results}
    for number, codes in enumerate(reference.trace(program, images)):
        tensor = program.tensors[number]
        if tensor.type in ZERO:
            grids.append((tensor.scale, ZERO[tensor.type]))
        else:
            kind = "u8" if tensor.type == "i32" and low.get(number, -1) >= 0 else "i8"
            most = float(np.abs(codes.astype(np.float64)).max()) * tensor.scale or 1.0
            grids.append((most / LIMITS[kind][0][1], ZERO[kind]))
    return grids


class _Writer:
    def __init__(self, program: Program, images: Images) -> None:
        self.program, self.grids = program, _grids(program, images)
        self.constants: list[Any] = []
        self.operators: list[Any] = []
        self.narrow: list[tuple[Any, int, int]] = []  # weights, bits of an index, axis of channels
        self.values = [self._value(number) for number in range(len(program.tensors))]
        for op in program.operations[1:]:
            self._emit(op)

    def file(self) -> bytearray:
        first, last = self.program.operations[0].writes[0], self.program.output
        tensors = [*self.values, *self.constants]
        graph = model_editor.Subgraph(
            tensors=tensors, operators=self.operators,
            inputs=[self.values[first]], outputs=[self.values[last]],
        )  # fmt: skip
        built = model_editor.Model(subgraphs=[graph], description=self.program.name).build()
        if not self.narrow:
            return bytearray(built)
        wanted = spec_builder.SpecBuilder()
        for weights, bits, axis in self.narrow:
            number = next(n for n, tensor in enumerate(tensors) if tensor is weights)
            wanted.add_tensor(0, number).with_lut(bits, spec.PerChannel(axis=axis))
        return bytearray(compress(bytes(built), wanted.build()))

    def _value(self, number: int) -> Any:
        channels, height, width = self.program.tensors[number].shape
        return self._tensor(f"t{number}", (1, height, width, channels), *self.grids[number])

    def _tensor(self, name: str, shape: tuple[int, ...], scale: float, zero: int) -> Any:
        grid = model_editor.Quantization(float(scale), zero)
        return model_editor.Tensor(shape, schema.TensorType.INT8, quantization=grid, name=name)

    def _constant(self, data: npt.NDArray[Any], name: str, grid: Any = None) -> Any:
        kind = schema.TensorType.INT8 if data.dtype == np.int8 else schema.TensorType.INT32
        made = model_editor.Tensor(data.shape, kind, data=data, quantization=grid, name=name)
        self.constants.append(made)
        return made

    def _add(
        self, kind: str, inputs: list[Any], output: Any, table: str = "", **options: Any
    ) -> None:
        operator = model_editor.Operator(getattr(schema.BuiltinOperator, kind), inputs, [output])
        chosen = getattr(schema, f"{table}OptionsT")()
        for name, option in options.items():
            setattr(chosen, name, option)
        operator._fb.builtinOptions = chosen
        operator._fb.builtinOptionsType = getattr(schema.BuiltinOptions, f"{table}Options")
        self.operators.append(operator)

    def _emit(self, op: Operation) -> None:
        if isinstance(op, Lookup) or not isinstance(op, Convolution | AveragePool):
            raise LoweringError(f"{op.name}: TFLM gets no {op.kind} from dbq")
        if len(op.results) != 1:
            raise LoweringError(
                f"{op.name}: TFLM gets no outputs in {len(op.results)} forms from dbq, "
                "as a shortcut and the next layer read them"
            )
        result = op.results[0]
        type = self.program.tensors[result.tensor].type
        if (result.low, result.high) not in LIMITS.get(type, [(result.low, result.high)]):
            raise LoweringError(f"{op.name}: codes {result.low} to {result.high}, expected 8 bits")
        self._convolution(op, result) if isinstance(op, Convolution) else self._mean(op, result)

    def _mean(self, op: AveragePool, result: Result) -> None:
        read, written = self.program.tensors[op.input], self.program.tensors[result.tensor]
        shape = read.shape
        expected = read.scale / written.scale / (shape.height * shape.width)
        plain = np.allclose(result.scales, expected, rtol=1e-4) and not result.offsets.any()
        if op.window.kernel != shape[1:] or not plain:
            raise LoweringError(f"{op.name}: TFLM gets only plain means of whole images from dbq")
        axes = self._constant(np.array([1, 2], np.int32), f"{op.name}.axes")
        self._add("MEAN", [self.values[op.input], axes], self.values[result.tensor], "Reducer",
                  keepDims=True)  # fmt: skip

    def _convolution(self, op: Convolution, result: Result) -> None:
        is_depthwise = op.groups > 1
        if is_depthwise and (op.codes.shape[2] != 1 or op.codes.shape[1] != op.groups):
            raise LoweringError(f"{op.name}: TFLM gets no grouped convolutions from dbq")
        # Slopes are in the program's codes, which are finer if they have 32 bits.
        unit = self.grids[result.tensor][0] / self.program.tensors[result.tensor].scale
        slopes = result.scales.astype(np.float64) / unit
        merged = merge(op.integers, slopes, 127)
        codes, steps = merged.codes, merged.steps.astype(np.float64)
        steps = np.where(codes.any(axis=(1, 2, 3)), steps, FINEST)
        bias = np.rint(result.offsets.astype(np.float64) / unit / steps)
        order, axis = ((1, 2, 3, 0), 3) if is_depthwise else ((0, 2, 3, 1), 0)
        kernel = np.ascontiguousarray(codes.transpose(order))
        scale, _ = self.grids[op.input]
        grid = (steps * self.grids[result.tensor][0] / scale).astype(np.float32)
        # One zero for all channels: TFLM reads no others, and they would be a fifth of the file.
        weights = self._constant(
            kernel, op.name, model_editor.Quantization(grid.tolist(), [0], axis)
        )
        whole = np.clip(bias, -(2**31), 2**31 - 1).astype(np.int32)
        added = self._constant(whole, f"{op.name}.bias")
        self._compress(weights, kernel, axis)
        x, padding = self._padded(op, self.program.tensors[result.tensor].shape)
        window = {"strideH": op.window.stride[0], "strideW": op.window.stride[1],
                  "dilationHFactor": op.window.dilation[0],
                  "dilationWFactor": op.window.dilation[1], "padding": padding}  # fmt: skip
        inputs, output = [x, weights, added], self.values[result.tensor]
        if is_depthwise:
            window["depthMultiplier"] = 1
            self._add("DEPTHWISE_CONV_2D", inputs, output, "DepthwiseConv2D", **window)
        else:
            self._add("CONV_2D", inputs, output, "Conv2D", **window)

    def _compress(self, weights: Any, kernel: npt.NDArray[np.int8], axis: int) -> None:
        """Indices into a table for each channel, where the two are smaller than the kernel."""
        channels = np.moveaxis(kernel, axis, 0)
        levels = max(len(np.unique(channel)) for channel in channels)
        bits = max(int(levels - 1).bit_length(), 1)
        if bits * kernel.size / 8 + levels * len(channels) + HEADER < kernel.size:
            self.narrow.append((weights, bits, axis))

    def _padded(self, op: Convolution, output: Shape) -> tuple[Any, int]:
        """The input, and TFLite's word for its border; what it has no word for is padded before."""
        shape, window = self.program.tensors[op.input].shape, op.window
        before, after = window.padding, _after(window, shape, output)
        if not any((*before, *after)):
            return self.values[op.input], schema.Padding.VALID
        total = [b + a for b, a in zip(before, after, strict=True)]
        ceiling = [-(-n // s) for n, s in zip(shape[1:], window.stride, strict=True)]
        if list(output[1:]) == ceiling and [n // 2 for n in total] == list(before):
            return self.values[op.input], schema.Padding.SAME
        channels, height, width = shape
        larger = (1, height + total[0], width + total[1], channels)
        padded = self._tensor(f"{op.name}.padded", larger, *self.grids[op.input])
        self.constants.append(padded)
        sides = np.array([(0, 0), *zip(before, after, strict=True), (0, 0)], np.int32)
        border = self._constant(sides, f"{op.name}.border")
        self._add("PAD", [self.values[op.input], border], padded, "Pad")
        return padded, schema.Padding.VALID


def _after(window: Window, input: Shape, output: Shape) -> tuple[int, int]:
    """Rows below and columns to the right of the image that the last windows read."""
    rows, columns = window.reach(output)
    return max(rows - input.height, 0), max(columns - input.width, 0)
