"""export_onnx: a Program as a standard ONNX model, for the runtimes that read those."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dbq.deploy.onnx.graph import Graph, Port
from dbq.deploy.onnx.values import IMAGE, Values
from dbq.deploy.program import Program
from dbq.errors import LoweringError
from dbq.support.atomic import write_atomically
from dbq.version import __version__

if TYPE_CHECKING:
    import onnx

Form = Literal["int8", "exact"]
FORMS: tuple[Form, ...] = ("int8", "exact")


def export_onnx(program: Program, path: str | os.PathLike[str], *, form: Form = "int8") -> Path:
    """Write `program` as ONNX: uint8 `image` [N, H, W, C] in, float `logits` [N, K] out, N free.

    Several outputs have the names they have in the program.

    "int8", the default, is the fastest: 8-bit convolutions in QDQ form, branches merged. "exact" keeps
    the branches and computes in float32 what the program computes in integers: bit-identical logits in a
    runtime that does not rewrite the graph (onnxruntime with optimisations off), equal up to float
    rounding elsewhere, and two to three times slower. docs/onnx.md has the measurements.

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
    write_atomically(Path(path), to_onnx(program, form).SerializeToString())
    return Path(path)


def to_onnx(program: Program, form: Form = "int8") -> onnx.ModelProto:
    """The model itself: uint8 `image` [N, H, W, C] in, float `logits` out.

    Several outputs have the program's names.
    """
    if form not in FORMS:
        raise LoweringError(f"no ONNX form {form!r}; known: {', '.join(FORMS)}")
    graph, image = Graph(), program.input_shape
    graph.reserve(IMAGE)
    names = [graph.reserve(output.name or "logits") for output in program.outputs]
    values = emit(program, form, graph)
    ports: list[Port] = []
    for name, output in zip(names, program.outputs, strict=True):
        shape = program.tensors[output.tensor].shape
        is_vector = shape[1:] == (1, 1)
        operator = "Flatten" if is_vector else "Identity"
        graph.rename(graph.add(operator, values.names[output.tensor], label=name), name)
        ports.append((name, ("N", *(shape[:1] if is_vector else shape))))
    input = (IMAGE, ("N", image.height, image.width, image.channels))
    return graph.model(program.name, input, ports, __version__)


def emit(program: Program, form: Form, graph: Graph) -> Values:
    """Every tensor of the program in `graph`, before it is made a model."""
    outputs = frozenset(output.tensor for output in program.outputs)
    values = Values(graph, program.tensors, outputs, program.facts)
    for op in program.operations:
        op.onnx_int8(values) if form == "int8" else op.onnx_exact(values)
    return values
