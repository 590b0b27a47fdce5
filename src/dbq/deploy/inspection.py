"""What is inside a program or a .dbq file, and what a loaded network runs: tables of layers.

print(load_program("net.dbq"))     # layers, precisions, sizes, sparsity
print(load("net.dbq").describe())  # layers and the kernels that run them here
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dbq.deploy.operations.convolution import Convolution
from dbq.deploy.operations.operation import Operation, Summing
from dbq.deploy.packing import packed_size
from dbq.support.text import as_text, plain_table, short

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
    macs: int


@dataclass(frozen=True)
class ProgramDescription:
    """Prints as a table; `to_json` has the same facts."""

    name: str
    input: str
    facts: dict[str, Any]
    layers: tuple[ProgramLayer, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        columns = [
            "layer",
            "kind",
            "precision",
            "output",
            "weights",
            "bytes",
            "zeros",
            "alpha",
            "MMACs",
        ]
        table = plain_table(columns, left=4)
        for layer in self.layers:
            table.add_row(
                layer.name,
                layer.kind,
                layer.precision,
                layer.output,
                f"{layer.weights:,}" if layer.weights else "",
                f"{layer.weight_bytes + layer.scale_bytes:,}" if layer.scale_bytes else "",
                " ".join(f"{share:.2f}" for share in layer.sparsity),
                " ".join(f"{alpha:.2f}" for alpha in layer.alphas),
                f"{layer.macs / 1e6:.2f}" if layer.macs else "",
            )
        weights = sum(layer.weights for layer in self.layers)
        size = sum(layer.weight_bytes for layer in self.layers)
        scales = sum(layer.scale_bytes for layer in self.layers)
        macs = sum(layer.macs for layer in self.layers)
        last = (
            f"{self.name}, uint8 image {self.input}: {short(macs)} MACs; {short(weights)} weights in "
            f"{short(size)} bytes ({8 * size / max(1, weights):.2f} bits each), "
            f"scales {short(scales)} bytes"
        )
        return as_text(table, last, width=132)


def describe(program: Program) -> ProgramDescription:
    """The facts of each operation of `program`."""
    channels, height, width = program.input_shape
    layers = tuple(_layer(program, op) for op in program.operations)
    size = f"{height}x{width}x{channels}"
    return ProgramDescription(program.name, size, dict(program.facts), layers)


def _layer(program: Program, op: Operation) -> ProgramLayer:
    written = [program.tensors[index] for index in op.writes]
    types = "+".join(tensor.type for tensor in written)
    output = f"{types} {'x'.join(map(str, written[0].shape))}"
    results = op.results if isinstance(op, Summing) else ()
    scale_bytes = sum(4 * (result.scales.size + result.offsets.size) for result in results)
    if not isinstance(op, Convolution):
        return ProgramLayer(op.name, op.kind, "", output, 0, 0, scale_bytes, (), (), 0)
    sparsity = tuple(float((branch == 0).mean()) for branch in op.codes)
    scales = np.abs(op.results[0].scales)
    alphas = np.median(scales / np.maximum(scales[:, :1], 1e-30), axis=0)
    return ProgramLayer(
        op.name,
        _kind(program, op),
        op.precision,
        output,
        op.codes[0].size,
        packed_size(op.codes.size, op.bits),
        scale_bytes,
        sparsity,
        tuple(float(alpha) for alpha in alphas[1:]),
        program.macs(op),
    )


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
class NetDescription:
    """Prints as a table; `to_json` has the same facts."""

    name: str
    isa: str
    threads: int
    peak_memory: int
    load_milliseconds: float
    layers: tuple[NetLayer, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        columns = ["layer", "kind", "precision", "output", "kernel", "weights", "MMACs"]
        table = plain_table(columns, left=5)
        for layer in self.layers:
            table.add_row(
                layer.name,
                layer.kind,
                layer.precision,
                f"{layer.type} {'x'.join(map(str, layer.shape))}",
                layer.kernel,
                f"{layer.weight_bytes:,}" if layer.weight_bytes else "",
                f"{layer.macs / 1e6:.2f}" if layer.macs else "",
            )
        weights = sum(layer.weight_bytes for layer in self.layers)
        macs = sum(layer.macs for layer in self.layers)
        last = (
            f"{self.name}: {short(macs)} MACs, {short(weights)} bytes of weights, "
            f"{short(self.peak_memory)} bytes in all; {self.isa}, {self.threads} threads, "
            f"loaded in {self.load_milliseconds:.1f} ms"
        )
        return as_text(table, last, width=120)
