"""export_onnx: a Program as a standard ONNX model, for the runtimes that read those."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dbq.deploy.onnx.graph import Bits, Graph, Port
from dbq.deploy.onnx.values import IMAGE, Values
from dbq.deploy.program import Program
from dbq.errors import LoweringError
from dbq.support.atomic import write_atomically
from dbq.version import __version__

if TYPE_CHECKING:
    import onnx

Form = Literal["int8", "exact"]
FORMS: tuple[Form, ...] = ("int8", "exact")
WEIGHT_BITS: tuple[Bits, ...] = (2, 4, 8)


def export_onnx(
    program: Program,
    path: str | os.PathLike[str],
    *,
    form: Form = "int8",
    weight_bits: Bits = 4,
) -> Path:
    """Write `program` as ONNX: uint8 `image` [N, H, W, C] in, float `logits` [N, K] out, N free.

    Several outputs have the names they have in the program.

    "int8", the default, is the fastest: 8-bit convolutions in QDQ form, branches merged. "exact"
    computes in float32 what the program computes in integers: bit-identical logits in onnxruntime,
    equal up to float rounding elsewhere, and slower. docs/onnx.md has the measurements.

    Weights are written in the fewest bits that hold them, but no fewer than `weight_bits`. 4 (INT4,
    opset 21) is what both onnxruntime and openvino read; 2 (INT2, opset 25) halves the file of a network
    of single branches, for new versions of onnxruntime; 8 (opset 13) is for old runtimes.

    Fix the batch size where the runtime allows it (openvino: `model.reshape`): it then plans better.

    >>> import dbq, tempfile, torch
    >>> model = dbq.create_model("resnet20").eval()
    >>> images = torch.rand(2, 3, 32, 32)
    >>> _ = dbq.prepare(model, "resnet-2t-a8", images), dbq.calibrate(model, [images])
    >>> program = dbq.lower(model, images, report=None)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     dbq.export_onnx(program, f"{directory}/net.onnx").name
    'net.onnx'
    """
    write_atomically(Path(path), to_onnx(program, form, weight_bits).SerializeToString())
    return Path(path)


def to_onnx(program: Program, form: Form = "int8", weight_bits: Bits = 4) -> onnx.ModelProto:
    """The model itself: uint8 `image` [N, H, W, C] in, float `logits` out.

    Several outputs have the program's names.
    """
    if form not in FORMS:
        raise LoweringError(f"no ONNX form {form!r}; known: {', '.join(FORMS)}")
    if weight_bits not in WEIGHT_BITS:
        raise LoweringError(f"no weights of {weight_bits!r} bits in ONNX; known: 2, 4, 8")
    graph, image = Graph(), program.input_shape
    graph.reserve(IMAGE)
    names = [graph.reserve(output.name or "logits") for output in program.outputs]
    values = emit(program, form, graph, weight_bits)
    ports: list[Port] = []
    for name, output in zip(names, program.outputs, strict=True):
        shape = program.tensors[output.tensor].shape
        is_vector = shape[1:] == (1, 1)
        operator = "Flatten" if is_vector else "Identity"
        graph.rename(graph.add(operator, values.names[output.tensor], label=name), name)
        ports.append((name, ("N", *(shape[:1] if is_vector else shape))))
    input = (IMAGE, ("N", image.height, image.width, image.channels))
    return graph.model(program.name, input, ports, __version__)


def emit(program: Program, form: Form, graph: Graph, weight_bits: Bits = 4) -> Values:
    """Every tensor of the program in `graph`, before it is made a model."""
    outputs = frozenset(output.tensor for output in program.outputs)
    values = Values(graph, program.tensors, outputs, weight_bits, program.facts)
    for op in program.operations:
        op.onnx_int8(values) if form == "int8" else op.onnx_exact(values)
    return values
