"""export_onnx: a Program as a standard ONNX model, for the runtimes that read those."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dbq.deploy.onnx.graph import Graph
from dbq.deploy.onnx.values import Values
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
    """The model itself: uint8 `image` [N, H, W, C] in, float `logits` out."""
    if form not in FORMS:
        raise LoweringError(f"no ONNX form {form!r}; known: {', '.join(FORMS)}")
    values = emit(program, form)
    graph, output = values.graph, values.names[program.output]
    shape, image = program.tensors[program.output].shape, program.input_shape
    size: list[int | str] = ["N", *shape]
    if shape[1:] == (1, 1):
        graph.add("Flatten", output, label="logits")
        size = size[:2]
    input = (values.image, ("N", image.height, image.width, image.channels))
    return graph.model(program.name, input, ("logits", size), __version__)


def emit(program: Program, form: Form) -> Values:
    """A graph with every tensor of the program, before it is made a model."""
    values = Values(Graph(), program.tensors, program.output, program.facts)
    for op in program.operations:
        op.onnx_int8(values) if form == "int8" else op.onnx_exact(values)
    return values
