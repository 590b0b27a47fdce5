"""What is inside a program or a .dbq file, and what a loaded network runs: tables of layers.

print(load_program("net.dbq"))     # layers, precisions, sizes, sparsity
print(load("net.dbq").describe())  # layers and the kernels that run them here
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dbq.deploy.file.packing import packed_size
from dbq.deploy.operations.convolution import Convolution
from dbq.deploy.operations.operation import Operation, Summing
from dbq.deploy.tensors import Shape
from dbq.support.text import Table, as_text, plain_table, printable, short

if TYPE_CHECKING:
    from dbq.deploy.program import Program


@dataclass(frozen=True)
class ProgramLayer:
    """One operation of a program; weights are described where there are any."""

    name: str
    kind: str
    precision: str  # of the weights: "2T", "8b", or ""
    output: str  # types and shape, such as "u8 64x112x112"
    weights: int
    weight_bytes: int  # in the file
    scale_bytes: int
    sparsity: tuple[float, ...]  # share of zeros in each branch
    alphas: tuple[float, ...]  # median over the kernels of each branch's share of the first one
    ratios: dict[str, int]  # how many kernels join their branches as "3:2", the most frequent first
    macs: int


@dataclass(frozen=True)
class Description:
    """Prints as a table; `to_json` has the same facts."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _table(layers: Sequence[Any], left: int, cells: Callable[[Any], dict[str, str]]) -> Table:
    """A row for each layer; `cells` gives them under their heads."""
    rows = [cells(layer) for layer in layers]
    table = plain_table(list(rows[0]), left)
    for row in rows:
        table.add_row(*row.values())
    return table


def _total(layers: Sequence[Any], what: str) -> int:
    return sum(getattr(layer, what) for layer in layers)


def _unless_zero(number: float, form: str) -> str:
    return format(number, form) if number else ""


@dataclass(frozen=True)
class ProgramDescription(Description):
    name: str
    input: str
    outputs: dict[str, str]  # shapes by name
    facts: dict[str, Any]
    layers: tuple[ProgramLayer, ...]

    def __str__(self) -> str:
        table = _table(self.layers, left=4, cells=lambda layer: {
            "layer": layer.name,
            "kind": layer.kind,
            "precision": layer.precision,
            "output": layer.output,
            "weights": _unless_zero(layer.weights, ","),
            "bytes": _unless_zero(layer.weight_bytes + layer.scale_bytes, ","),
            "zeros": " ".join(f"{share:.2f}" for share in layer.sparsity),
            "alpha": " ".join(f"{alpha:.2f}" for alpha in layer.alphas),
            "ratio": next(iter(layer.ratios), ""),
            "MMACs": _unless_zero(layer.macs / 1e6, ".2f"),
        })  # fmt: skip
        weights, size = _total(self.layers, "weights"), _total(self.layers, "weight_bytes")
        last = (
            f"{printable(self.name)}, uint8 image {self.input}: "
            f"{short(_total(self.layers, 'macs'))} MACs; "
            f"{short(weights)} weights in {short(size)} bytes "
            f"({8 * size / max(1, weights):.2f} bits each), "
            f"scales {short(_total(self.layers, 'scale_bytes'))} bytes"
        )
        if len(self.outputs) > 1:
            named = (f"{printable(name)!r} {size}" for name, size in self.outputs.items())
            last += f"; {len(self.outputs)} outputs: {', '.join(named)}"
        return as_text(table, last, width=132)


def describe(program: Program) -> ProgramDescription:
    """The facts of each operation of `program`."""
    channels, height, width = program.input_shape
    layers = tuple(_layer(program, op) for op in program.operations)
    size = f"{height}x{width}x{channels}"
    outputs = {name: _size(program.tensors[tensor].shape) for tensor, name in program.outputs}
    return ProgramDescription(program.name, size, outputs, dict(program.facts), layers)


def _size(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _layer(program: Program, op: Operation) -> ProgramLayer:
    written = [program.tensors[index] for index in op.writes]
    types = "+".join(tensor.type for tensor in written)
    output = f"{types} {_size(written[0].shape)}"
    results = op.results if isinstance(op, Summing) else ()
    scale_bytes = sum(4 * (result.scales.size + result.offsets.size) for result in results)
    if not isinstance(op, Convolution):
        return ProgramLayer(op.name, op.kind, "", output, 0, 0, scale_bytes, (), (), {}, 0)
    sparsity = tuple(float((branch == 0).mean()) for branch in op.codes)
    scales, ratios = np.abs(op.results[0].scales), {}
    if op.factors is not None:
        scales = scales * op.factors
        words = Counter(":".join(map(str, kernel)) for kernel in op.factors)
        ratios = dict(words.most_common())
    alphas = np.median(scales / np.maximum(scales[:, :1], 1e-30), axis=0)
    weights, size = op.codes[0].size, packed_size(op.codes.size, op.bits)
    if op.factors is not None:
        size += op.factors.nbytes
    return ProgramLayer(
        op.name, _kind(program, op), op.precision, output, weights, size, scale_bytes,
        sparsity, tuple(float(alpha) for alpha in alphas[1:]), ratios, program.macs(op),
    )  # fmt: skip


def _kind(program: Program, op: Convolution) -> str:
    """Depthwise, pointwise, linear or plain."""
    shape = program.tensors[op.input].shape
    if op.groups == shape.channels > 1:
        return "depthwise"
    if op.window.kernel == (shape.height, shape.width):
        return "linear"
    return "pointwise" if op.window.kernel == (1, 1) else op.kind


@dataclass(frozen=True)
class NetLayer:
    """One operation as it runs. The type and shape are those of its (first) output."""

    name: str
    kind: str
    precision: str  # of the weights: "2T", "8b", or ""
    kernel: str  # "" where nothing has to run
    type: str
    shape: tuple[int, int, int]  # channels, height, width
    weight_bytes: int  # in memory
    macs: int


@dataclass(frozen=True)
class NetDescription(Description):
    name: str
    isa: str
    threads: int
    peak_memory: int
    load_milliseconds: float
    layers: tuple[NetLayer, ...]

    def __str__(self) -> str:
        table = _table(self.layers, left=5, cells=lambda layer: {
            "layer": layer.name,
            "kind": layer.kind,
            "precision": layer.precision,
            "output": f"{layer.type} {'x'.join(map(str, layer.shape))}",
            "kernel": layer.kernel,
            "weights": _unless_zero(layer.weight_bytes, ","),
            "MMACs": _unless_zero(layer.macs / 1e6, ".2f"),
        })  # fmt: skip
        last = (
            f"{printable(self.name)}: {short(_total(self.layers, 'macs'))} MACs, "
            f"{short(_total(self.layers, 'weight_bytes'))} bytes of weights, "
            f"{short(self.peak_memory)} bytes in all; {self.isa}, {self.threads} threads, "
            f"loaded in {self.load_milliseconds:.1f} ms"
        )
        return as_text(table, last, width=120)
