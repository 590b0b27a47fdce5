"""What is inside a program or a .dbq file: layers, precisions, sizes, scales, sparsity."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dbq.deploy.packing import packed_size
from dbq.deploy.program import Convolution, Operation, Program, Result


@dataclass(frozen=True)
class LayerFacts:
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
class Description:
    """Prints as a table; `to_json` has the same facts for programs."""

    name: str
    input: str
    facts: dict[str, Any]
    layers: tuple[LayerFacts, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        from dbq.support.text import aligned, short

        heads = ["layer", "kind", "precision", "output", "weights"]
        heads += ["bytes", "zeros", "alpha", "MMACs"]
        rows = [
            (
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
            for layer in self.layers
        ]
        weights = sum(layer.weights for layer in self.layers)
        size = sum(layer.weight_bytes for layer in self.layers)
        scales = sum(layer.scale_bytes for layer in self.layers)
        macs = sum(layer.macs for layer in self.layers)
        last = (
            f"{self.name}, uint8 image {self.input}: {short(macs)} MACs; {short(weights)} weights in "
            f"{short(size)} bytes ({8 * size / max(1, weights):.2f} bits each), "
            f"scales {short(scales)} bytes"
        )
        return f"{aligned(heads, rows, left=4)}\n\n{last}"


def describe(program: Program) -> Description:
    """The facts of each operation of `program`."""
    channels, height, width = program.input_shape
    layers = tuple(_facts(program, op) for op in program.operations)
    return Description(program.name, f"{height}x{width}x{channels}", dict(program.facts), layers)


def _facts(program: Program, op: Operation) -> LayerFacts:
    written = [program.tensors[index] for index in op.writes]
    types = "+".join(tensor.type for tensor in written)
    output = f"{types} {'x'.join(map(str, written[0].shape))}"
    results: tuple[Result, ...] = getattr(op, "results", ())
    scale_bytes = sum(4 * (result.scales.size + result.offsets.size) for result in results)
    kind = type(op).__name__.lower()
    if not isinstance(op, Convolution):
        return LayerFacts(op.name, kind, "", output, 0, 0, scale_bytes, (), (), 0)
    weights = op.codes[0].size
    sparsity = tuple(float((branch == 0).mean()) for branch in op.codes)
    scales = np.abs(results[0].scales)
    alphas = np.median(scales / np.maximum(scales[:, :1], 1e-30), axis=0)
    return LayerFacts(
        op.name,
        _kind(program, op),
        op.precision,
        output,
        weights,
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
    return "pointwise" if op.window.kernel == (1, 1) else "convolution"
