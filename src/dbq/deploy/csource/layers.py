"""One operation of a Program as C: its tables, and the statement that runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from dbq.deploy.csource.arena import IMAGE, Memory, plane
from dbq.deploy.csource.ctext import array, bits, initializer
from dbq.deploy.csource.exact.lines import LANES_SHIFT, PAIRS_SHIFT, Lines, fit, is_fixed
from dbq.deploy.csource.exact.ranges import Ranges, sum_ranges
from dbq.deploy.csource.results import Form, is_wide, result_fields
from dbq.deploy.csource.scratch import (
    bytes_of,
    fused_image,
    is_joined,
    method_of,
    one_byte,
    padded_size,
    pairs_tile,
    rows_at_once,
    slots,
    windows_of,
)
from dbq.deploy.file.packing import pack_trits
from dbq.deploy.operations.convolution import Convolution, Factors
from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.operations.operation import Operation, Summing
from dbq.deploy.program import Program
from dbq.deploy.tensors import Array
from dbq.deploy.window import Window

RESULT_BYTES, LAYER_BYTES, TENSOR_BYTES = 36, 48, 16  # on a 32-bit processor


@dataclass
class Layer:
    """C text of one operation, and the flash that it takes."""

    op: Operation
    call: str = ""
    data: list[str] = field(default_factory=list)
    sections: set[str] = field(default_factory=set)
    weight_bytes: int = 0
    table_bytes: int = 0  # multipliers, floats, descriptions
    method: str = ""
    lines: list[Lines | None] = field(default_factory=list)  # of each result


class Emitter:
    """Makes the layers of one program."""

    def __init__(self, program: Program, memory: Memory) -> None:
        self.program, self.memory = program, memory
        self.ranges = Ranges(program)
        self.fused = fused_image(program)

    def layers(self) -> list[Layer]:
        return [self.layer(step, op) for step, op in enumerate(self.program.operations)]

    def layer(self, step: int, op: Operation) -> Layer:
        self.step, self.made = step, Layer(op)
        if isinstance(op, Summing):
            self._results(op)
        HANDLERS[op.kind](self, op)
        return self.made

    def data(self, name: str, values: Array, *, weights: bool = False) -> str:
        """An array of this layer; returns its name."""
        full = f"{name}_{self.step}"
        self.made.data.append(array(full, values))
        if weights:
            self.made.weight_bytes += values.nbytes
        else:
            self.made.table_bytes += values.nbytes
        return full

    def struct(self, type: str, *fields: tuple[str, Any]) -> str:
        name = f"layer_{self.step}"
        self.made.data.append(f"static const {type} {name} = {initializer(fields)};\n")
        self.made.table_bytes += LAYER_BYTES
        return name

    def runs(self, section: str, call: str) -> None:
        self.made.sections.add(section)
        self.made.method = self.made.method or section
        self.made.call = call

    def _results(self, op: Summing) -> None:
        """Multipliers where they exist, else floats, for every result."""
        rows = []
        exact = sum_ranges(op, self.program.tensors, self.ranges)
        for i, result in enumerate(op.results):
            type = self.program.tensors[result.tensor].type
            lines = fit(result, *exact) if exact and type in ("u8", "i8") else None
            self.made.lines.append(lines)
            form = Form(type, lines, is_wide(type, exact))
            rows.append(initializer(result_fields(result, form, i, self.data)))
        body = ",\n".join(rows)
        self.made.data.append(f"static const result_t results_{self.step}[] = {{{body}}};\n")
        self.made.table_bytes += RESULT_BYTES * len(rows)

    def place(self, name: str) -> str:
        return f"{self.memory.scratch[self.step, name]}u"

    def _common(self, op: Summing) -> list[tuple[str, Any]]:
        return [("results", f"results_{self.step}"), ("results_count", len(op.results))]

    def lookup(self, op: Lookup) -> None:
        if self.fused:
            self.made.method = "read by the next layer"
            if not self._is_identity(op):
                self.data("codes", op.table[:1] if _is_shared(op) else op.table)
            return
        self.runs("lookup", f"lookup(&tensor_{op.tensor}, {self.data('codes', op.table)});")

    @staticmethod
    def _is_identity(op: Lookup) -> bool:
        return bool((op.table == np.arange(256)).all())

    def convolution(self, op: Convolution) -> None:
        self.made.method = method_of(op)
        getattr(self, f"_{method_of(op)}")(op)

    def _ternary(self, op: Convolution) -> None:
        branches, kernels = op.codes.shape[:2]
        taps, per_group, windows = (
            prod(op.codes.shape[2:]),
            kernels // op.groups,
            windows_of(op, self.memory.most),
        )
        all_bytes = bytes_of(taps)
        packed = np.frombuffer(pack_trits(slots(op)), np.uint8).reshape(
            branches, kernels, all_bytes
        )
        parts = [
            packed[:, g * per_group : (g + 1) * per_group, w : w + windows.bytes].transpose(1, 0, 2)
            for g in range(op.groups)
            for w in range(0, all_bytes, windows.bytes)
        ]
        weights = np.concatenate([part.ravel() for part in parts])
        input, output = (self.program.tensors[i].shape for i in (op.input, op.writes[0]))
        is_pointwise = op.window == Window((1, 1)) and input[1:] == output[1:]
        lines = self.made.lines[0]
        is_plain = (
            windows.number == op.groups == len(op.results) == 1
            and lines is not None and not lines.odd_count
            and (branches == 1 or (branches == 2 and op.factors is not None))
        )  # fmt: skip
        by_pairs = is_joined(self.program, op) and (
            self.is_direct(op, PAIRS_SHIFT) or not one_byte(self.program, op)
        )
        is_direct = self.is_direct(op, PAIRS_SHIFT if by_pairs else LANES_SHIFT) and (
            by_pairs or (is_plain and branches == 1)
        )
        fields = [
            ("from", f"&tensor_{op.input}"), *self._common(op), ("is_plain", int(is_plain)),
            ("is_direct", int(is_direct)),
            ("bytes", self.data("weights", weights, weights=True)),
            ("factors",
             "NULL" if op.factors is None else self.data("factors", _nibbles(op.factors))),
            ("tables", self.place("tables")), ("sums", self.place("sums")),
            ("groups", op.groups), ("kernels", per_group), ("taps", taps),
            ("bytes_per_window", windows.bytes), ("windows", windows.number),
            ("bytes_all", all_bytes), ("tile", pairs_tile(self.program, op, self.memory.most)),
            ("branches", branches), ("is_pointwise", int(is_pointwise)), _window(op.window),
        ]  # fmt: skip
        name = "joined" if by_pairs else "ternary"
        self.runs(name, f"{name}(&{self.struct('ternary_t', *fields)});")

    def is_direct(self, op: Convolution, shift: int) -> bool:
        """Whether codes 0 .. 255 are made by one product and a shift by POINT, exactly."""
        result, lines = op.results[0], self.made.lines[0]
        exact = sum_ranges(op, self.program.tensors, self.ranges)
        return (
            len(op.results) == 1 and lines is not None and exact is not None and not lines.odd_count
            and (result.low, result.high) == (0, 255) and is_fixed(lines, *exact, shift)
        )  # fmt: skip

    def _depthwise(self, op: Convolution) -> None:
        rows, columns = padded_size(self.program, op)
        fields = [
            ("from", f"&tensor_{op.input}"), *self._common(op),
            ("weights", self.data("weights", op.integers, weights=True)),
            ("padded", self.place("padded")), ("sums_at", self.place("sums_at")),
            ("rows", rows), ("columns", columns), ("sums", op.sum_count),
            ("at_once", rows_at_once(self.program, op)),
            ("per_channel", op.codes.shape[1] // op.groups), _window(op.window),
        ]  # fmt: skip
        self.runs("depthwise", f"depthwise(&{self.struct('depthwise_t', *fields)});")

    def _dense(self, op: Convolution) -> None:
        integers, input = op.integers, self.program.tensors[op.input].shape
        sums, kernels = integers.shape[:2]
        taps = prod(integers.shape[2:])
        padded = np.zeros((kernels, sums, -(-taps // 4) * 4), np.int8)
        lookup = self.program.operations[0]
        assert isinstance(lookup, Lookup)
        reads_image = self.fused and op.input == lookup.tensor
        if reads_image:  # its channels are the innermost dimension
            integers = np.moveaxis(integers, 2, 4)
        padded[:, :, :taps] = integers.reshape(sums, kernels, taps).transpose(1, 0, 2)
        fields = [
            ("from", "NULL" if reads_image else f"&tensor_{op.input}"),
            ("codes", "codes_0" if reads_image and not self._is_identity(lookup) else "NULL"),
            ("apart", 256 if reads_image and not _is_shared(lookup) else 0),
            *self._common(op), ("weights", self.data("weights", padded, weights=True)),
            ("starts", self._starts(op, padded)), ("patch", self.place("patch")),
            ("pairs", self.place("pairs")), ("sums_at", self.place("sums_at")),
            ("groups", op.groups), ("kernels", kernels // op.groups),
            ("channels", input.channels // op.groups), ("height", input.height),
            ("width", input.width), ("sums", sums), _window(op.window),
        ]  # fmt: skip
        self.runs("dense", f"dense(&{self.struct('dense_t', *fields)});")

    def _starts(self, op: Convolution, weights: Array) -> str:
        """-128 times the sum of each kernel's weights, where codes are signed."""
        if self.ranges[op.input][0] >= 0:
            return "NULL"
        return self.data("starts", -128 * weights.sum(axis=2, dtype=np.int32))

    def add(self, op: Any) -> None:
        self._elementwise("add", f"&tensor_{op.a}, &tensor_{op.b}", op)

    def multiply(self, op: Any) -> None:
        self._elementwise("multiply", f"&tensor_{op.a}, &tensor_{op.b}", op)

    def requantize(self, op: Any) -> None:
        self._elementwise("requantize", f"&tensor_{op.input}", op)

    def _elementwise(self, name: str, inputs: str, op: Summing) -> None:
        self.runs(name, f"{name}({inputs}, results_{self.step}, {len(op.results)}u);")

    def pool(self, op: Any) -> None:
        name = op.kind.replace(" ", "_")
        results = self._common(op) if isinstance(op, Summing) else []
        fields = [("from", f"&tensor_{op.input}"), ("to", f"&tensor_{op.writes[0]}"), *results,
                  _window(op.window)]  # fmt: skip
        self.runs(op.kind, f"{name}(&{self.struct('pool_t', *fields)});")

    def curve(self, op: Any) -> None:
        knots, scale = op.knots, self.program.tensors[op.input].scale
        numbers = {"scale": scale, "low": op.low, "high": op.high, "density": op.density}
        fields = [
            ("from", f"&tensor_{op.input}"), *self._common(op),
            ("knots", self.data("knots", bits(knots[:-1]))),
            ("steps", self.data("steps", bits(np.diff(knots)))),
            *((name, f"{bits(number).item()}u") for name, number in numbers.items()),
            ("segments", op.segments), ("is_product", op.form),
        ]  # fmt: skip
        self.runs("curve", f"curve(&{self.struct('curve_t', *fields)});")

    def channels(self, op: Any) -> None:
        order = {tensor: i for i, tensor in enumerate(op.reads)}
        sources = [(order.get(tensor, 65535), channel) for tensor, channel in op.sources]
        reads = ", ".join(f"&tensor_{tensor}" for tensor in op.reads)
        self.made.data.append(f"static const tensor_t *const reads_{self.step}[] = {{{reads}}};\n")
        places = self.data("sources", np.array(sources, np.uint16))
        self.runs("channels", f"channels(&tensor_{op.tensor}, reads_{self.step}, {places});")

    def pixels(self, op: Any) -> None:
        rows, columns = (
            self.data(name, np.array(getattr(op, name), np.uint16)) for name in ("rows", "columns")
        )
        self.runs("pixels", f"pixels(&tensor_{op.input}, &tensor_{op.tensor}, {rows}, {columns});")

    def bilinear(self, op: Any) -> None:
        for name, blends in (("rows", op.rows), ("columns", op.columns)):
            words = ", ".join(f"{{{a}u, {b}u, {bits(share).item()}u}}" for a, b, share in blends)
            self.made.data.append(f"static const blend_t {name}_{self.step}[] = {{{words}}};\n")
            self.made.table_bytes += 8 * len(blends)
        n = self.step
        self.runs("bilinear", f"bilinear(&tensor_{op.input}, results_{n}, {len(op.results)}u, "
                  f"rows_{n}, columns_{n});")  # fmt: skip


HANDLERS: dict[str, Callable[[Emitter, Any], None]] = {
    "lookup": Emitter.lookup, "convolution": Emitter.convolution, "add": Emitter.add,
    "requantize": Emitter.requantize, "average pool": Emitter.pool, "max pool": Emitter.pool,
    "mean pool": Emitter.pool, "channels": Emitter.channels, "curve": Emitter.curve,
    "multiply": Emitter.multiply, "pixels": Emitter.pixels, "bilinear": Emitter.bilinear,
}  # fmt: skip


def _nibbles(factors: Factors) -> Factors:
    """Two factors to a byte, the first in the lower half; every kernel begins a byte."""
    even = np.pad(factors, ((0, 0), (0, factors.shape[1] % 2)))
    return (even[:, ::2] | even[:, 1::2] << 4).astype(np.uint8)


def _is_shared(op: Lookup) -> bool:
    """Whether all channels have the same codes."""
    return bool((op.table == op.table[:1]).all())


def _window(window: Window) -> tuple[str, str]:
    numbers = (*window.kernel, *window.stride, *window.dilation, *window.padding)
    return "window", "{" + ", ".join(map(str, numbers)) + "}"


def tensor_text(program: Program, index: int, at: int) -> str:
    """The description of a tensor; of an output, `at` counts floats."""
    found = program.tensors[index]
    channels, height, width = found.shape
    apart = height * width if found.type == "f32" else plane(height * width)
    numbers = f"{at}u, {apart}u, {channels}, {height}, {width}, {found.type.upper()}"
    return f"static const tensor_t tensor_{index} = {{{numbers}}};\n"


def image_place(memory: Memory) -> int:
    return memory.tensors[IMAGE]
