"""Convolution: ternary branches or fixed-point weights. A linear layer's kernel is its whole input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Self

import numpy as np
import numpy.typing as npt

from dbq.deploy.file.binary import ByteReader, ByteWriter
from dbq.deploy.file.packing import pack, packed_size, unpack
from dbq.deploy.onnx import int8, packing
from dbq.deploy.onnx.values import Values
from dbq.deploy.onnx.weights import LARGEST, halved, merge, with_exact_bias
from dbq.deploy.operations.operation import Summing
from dbq.deploy.tensors import Array, Doubles, Shape, Tensor, require
from dbq.deploy.window import Window

# Weights of one output channel. The sum of as many 8-bit products fits 32 bits:
# 65536 * 255 * 127 < 2^31.
MAX_TAPS = 2**16
MAX_BRANCHES = 3
# With factors, the whole numbers of a kernel add up to this at most, by the number of branches: all that
# its codes can make is integers of 4 or 5 bits.
LARGEST_FACTORS = {2: 7, 3: 15}
TERNARY, FIXED, JOINED = 0, 1, 2  # forms of weights in a file
# A layer with so few input channels costs little: in the 8-bit ONNX form its codes are kept exactly, at
# twice the work. So are those of linear layers, and of depthwise ones, whose products no runtime adds in
# pairs.
FEW_CHANNELS = 4


Factors = npt.NDArray[np.uint8]


def joined(codes: npt.NDArray[np.int8], factors: Factors) -> npt.NDArray[np.int8]:
    """Branches [J, K, ...] as one plane of integers [1, K, ...]: sum_j factors[k, j] * codes[j, k].

    >>> codes = np.array([[[1, 0, -1]], [[1, 1, 0]]], np.int8)
    >>> joined(codes, np.array([[3, 2]], np.uint8)).tolist()
    [[[5, 2, -3]]]
    """
    weighted = np.einsum("jk...,kj->k...", codes.astype(np.int16), factors.astype(np.int16))
    integers: npt.NDArray[np.int8] = weighted[None].astype(np.int8)
    return integers


@dataclass(frozen=True, eq=False)
class Convolution(Summing):
    """One sum for each branch of the weights; outside of the image the input is 0.

    `codes` is [branches, K, C / groups, rows, columns]. `bits` is None for ternary branches, else the
    width of the fixed-point codes. With `factors` [K, branches], there is one sum: that of the branches'
    sums, multiplied by these whole numbers.
    """

    kind = "convolution"
    layout = "u32 input, geometry, u8 form, u8 size, results, weights"

    input: int
    window: Window
    groups: int
    codes: npt.NDArray[np.int8]
    bits: int | None
    factors: Factors | None = None

    @property
    def sum_count(self) -> int:  # type: ignore[override]  # of the object, not of the class
        return len(self.codes) if self.factors is None else 1

    @property
    def integers(self) -> npt.NDArray[np.int8]:
        """What the input is multiplied by, for each sum: [sum_count, K, C / groups, rows, columns]."""
        return self.codes if self.factors is None else joined(self.codes, self.factors)

    @property
    def precision(self) -> str:
        return f"{len(self.codes)}T" if self.bits is None else f"{self.bits}b"

    def macs(self, tensors: Sequence[Tensor]) -> int:
        shape = tensors[self.writes[0]].shape
        return int(prod(self.codes.shape[1:])) * shape.height * shape.width

    def check_sums(self, tensors: Sequence[Tensor]) -> None:
        input, shape = tensors[self.input], tensors[self.writes[0]].shape
        require(input.type in ("u8", "i8"), f"reads {input.type}, expected u8 or i8")
        branches, kernels, channels, *kernel = self.codes.shape
        require(self.codes.dtype == np.int8, "codes that are not int8")
        fits = self.groups > 0 and channels * self.groups == input.shape.channels
        require(fits, f"{self.groups} groups of {channels} channels")
        require(kernels == shape.channels and kernels % self.groups == 0, f"{kernels} kernels")
        require(tuple(kernel) == self.window.kernel, "another kernel size than the window's")
        require(channels * prod(kernel) <= MAX_TAPS, f"more than {MAX_TAPS} weights a kernel")
        most = MAX_BRANCHES if self.bits is None else 1
        require(1 <= branches <= most, f"{branches} branches")
        require(self.bits is None or 2 <= self.bits <= 8, f"{self.bits} bits")
        limit = 1 if self.bits is None else 2 ** (self.bits - 1) - 1
        self.window.check(input.shape, shape)  # so there is a code
        require(np.abs(self.codes.astype(np.int16)).max() <= limit, f"codes beyond {limit}")
        if self.factors is not None:
            self._check_factors(self.factors)

    def _check_factors(self, factors: Factors) -> None:
        branches, kernels = self.codes.shape[:2]
        several = self.bits is None and branches in LARGEST_FACTORS
        require(several, "factors of weights that are not two or three branches")
        fits = factors.dtype == np.uint8 and factors.shape == (kernels, branches)
        require(fits, "factors of another shape or type")
        most, limit = int(factors.sum(1, dtype=np.int64).max()), LARGEST_FACTORS[branches]
        require(most <= limit, f"factors that add up to {most}, over {limit}")

    def largest_sums(self, largest: Sequence[int]) -> Doubles:
        sizes = np.abs(self.integers.astype(np.int16)).sum(axis=(2, 3, 4), dtype=np.float64)
        bounds: Doubles = sizes.T * largest[0]
        return bounds

    def sums(self, tensors: Sequence[Tensor], inputs: list[Array]) -> list[Array]:
        shape = tensors[self.writes[0]].shape
        return [self.branch_sums(inputs[0], branch, shape) for branch in self.integers]

    def branch_sums(self, x: Array, codes: npt.NDArray[np.int8], output: Shape) -> Array:
        """Exact sums [N, K, H, W] of one branch.

        As float64 products of integers, which BLAS computes and which are exact below 2^53.
        """
        total = np.zeros((len(x), output.channels, output.height * output.width))
        per_in, per_out = codes.shape[1], output.channels // self.groups
        weights = codes.reshape(self.groups, per_out, per_in, -1).astype(np.float64)
        for tap, pixels in enumerate(self.window.pixels(x.astype(np.float64), output, 0)):
            rows = pixels.reshape(len(x), self.groups, per_in, -1)  # [N, G, C/G, HW]
            total += (weights[..., tap] @ rows).reshape(total.shape)
        return total.astype(np.int64).reshape(len(x), *output)

    def write(self, file: ByteWriter) -> None:
        file.put("I", self.input)
        file.window(self.window)
        file.put("HHI", *self.window.dilation, self.groups)
        form = FIXED if self.bits is not None else TERNARY if self.factors is None else JOINED
        file.put("BB", form, self.bits or len(self.codes))
        file.results(self.results)
        if self.factors is not None:
            file.parts.append(self.factors.tobytes())
        file.parts.append(pack(self.codes, self.bits))

    @classmethod
    def read(cls, file: ByteReader, name: str) -> Self:
        input, window = file.number(), file.window()
        down, across, groups, form, size = file.get("HHIBB")
        sizes = {TERNARY: (1, MAX_BRANCHES), FIXED: (2, 8), JOINED: (2, MAX_BRANCHES)}
        low, high = sizes.get(form, (1, 0))
        if not low <= size <= high:
            raise file.error(f"has weights of form {form} and size {size}")
        channels = file.channels(input)
        if not groups or channels % groups:
            raise file.error(f"has {channels} channels in {groups} groups")
        branches, bits = (1, size) if form == FIXED else (size, None)
        results = file.results(sums=1 if form == JOINED else branches)
        kernels = file.channels(results[0].tensor)
        factors = None
        if form == JOINED:
            numbers = np.frombuffer(file.take(kernels * branches), np.uint8)
            factors = numbers.reshape(kernels, branches)
        shape = (branches, kernels, channels // groups, *window.kernel)
        codes = unpack(file.take(packed_size(prod(shape), bits)), prod(shape), bits)
        window = window._replace(dilation=(down, across))
        return cls(name, results, input, window, groups, codes.reshape(shape), bits, factors)

    def onnx_sums(self, values: Values) -> list[str]:
        """Every sum is a convolution of its own."""
        graph, output = values.graph, values.shape(self.writes[0])
        x, attributes = values.windowed(self.input, self.window, output, self.name)
        attributes["group"] = self.groups
        sums = []
        for codes in self.integers:
            weight = packing.as_floats(graph, codes, values.weight_bits)
            total = graph.add("Conv", x, weight, label=self.name, **attributes)
            sums.append(graph.add("Round", total))  # see dbq.deploy.onnx.exact
        return sums

    def onnx_affine(self, values: Values, slopes: Doubles, offsets: Doubles) -> str:
        """All branches as one 8-bit convolution."""
        graph, stored = values.graph, values.names[self.input]
        x_scale = values.tensors[self.input].scale
        # A matrix product gives a vector, which no later layer could read as planes: only for the last.
        is_linear = self._is_linear(values)
        is_doubled = self.groups == 1 and (is_linear or self.codes.shape[2] <= FEW_CHANNELS)
        is_depthwise = self.groups > 1 and self.codes.shape[2] == 1
        merged = merge(self.integers, slopes, 127 if is_doubled or is_depthwise else LARGEST)
        merged = with_exact_bias(merged, offsets / x_scale, self._finest(values) / x_scale)
        codes = merged.codes
        if is_doubled and np.abs(codes).max() > LARGEST:
            codes = halved(codes)
            stored = graph.add("Concat", stored, stored, label=self.name, axis=1)
        if is_linear:
            codes = codes.reshape(len(codes), -1)
            stored = graph.add("Flatten", stored, label=self.name)
        weight = packing.as_bytes(graph, codes, values.weight_bits)
        weight = int8.dequantized(graph, weight, merged.steps, self.name)
        # openvino adds it as it is; onnxruntime rounds it to steps of the weights times the input's.
        bias = graph.constant(offsets.astype(np.float32))
        x = int8.value(values, self.input, stored)
        if is_linear:
            return graph.add("Gemm", x, weight, bias, label=self.name, transB=1)
        output = values.shape(self.writes[0])
        x, attributes = values.windowed(self.input, self.window, output, self.name, x)
        return graph.add("Conv", x, weight, bias, label=self.name, group=self.groups, **attributes)

    def _is_linear(self, values: Values) -> bool:
        return (
            len(self.writes) == 1
            and self.writes[0] in values.outputs
            and self.window.kernel == values.shape(self.input)[1:]
            and self.window.padding == (0, 0)
            and self.groups == 1
        )

    def _finest(self, values: Values) -> float:
        """An eighth of a step of the 8-bit results; any step will do where there are none."""
        tensors = (values.tensors[i] for i in self.writes)
        return min((t.scale / 8 for t in tensors if t.type in int8.ZERO_POINTS), default=inf)
