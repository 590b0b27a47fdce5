"""ONNX: every operation that is no convolution by itself, in both forms, against the specification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dbq.deploy import reference
from dbq.deploy.onnx.export import to_onnx
from dbq.deploy.operations.average_pool import AveragePool, MeanPool
from dbq.deploy.operations.bilinear import Bilinear
from dbq.deploy.operations.curve import Curve
from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.operations.multiply import Multiply
from dbq.deploy.operations.operation import Operation
from dbq.deploy.operations.pixels import NOTHING, Pixels
from dbq.deploy.operations.requantize import Requantize
from dbq.deploy.program import Output, Program
from dbq.deploy.tensors import Result, Shape, Tensor, Type
from dbq.deploy.window import Window
from tests.deploy.test_operations import blends

pytestmark = pytest.mark.slow

pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

IMAGE, STEP = Shape(2, 5, 6), 0.0625
Make = Callable[[tuple[Result, ...]], Operation]  # an operation that reads tensor 0 (and 1)


def result(tensor: int, scale: float, low: int = 0, high: int = 0) -> Result:
    return Result(tensor, low, high, np.full((2, 1), scale, np.float32), np.zeros(2, np.float32))


def computing(make: Make, shape: Shape, unit: float, gate: Shape | None = None) -> Program:
    """`make` on signed codes, as clamped floats and as codes of 1/32, which become floats again.

    Tensor 1 is the other factor of a product: means of the channels, or the image itself again.
    """
    table = np.tile(np.arange(256, dtype=np.uint8) - np.uint8(128), (2, 1))
    tensors = (
        Tensor("i8", IMAGE, STEP), Tensor("i32", gate or IMAGE, STEP / 30), Tensor("f32", shape, 1.0),
        Tensor("i8", shape, 1 / 32), Tensor("f32", shape, 1.0),
    )  # fmt: skip
    whole = Window(IMAGE[1:]) if gate else Window((1, 1))
    mean = result(1, 1.0 if gate else 30.0, -(2**30), 2**30)
    operations = (
        Lookup("image", 0, table),
        AveragePool("other", (mean,), 0, whole),
        make((result(2, unit, -3, 3), result(3, 32 * unit, -127, 127))),
        Requantize("floats", (result(4, 1 / 32),), 3),
    )
    outputs = (Output(2, "value"), Output(4, "codes"))
    return Program("computing", tensors, operations, outputs)


def curve(form: int, low: float, high: float, segments: int, g: Any) -> Make:
    points = torch.linspace(low, high, segments + 1, dtype=torch.float64)
    knots = g(points).numpy().astype(np.float32)
    return lambda results: Curve("op", results, 0, form, low, high, knots)


def mixed(size: tuple[int, int], align: bool) -> Program:
    rows, columns = (blends(n, m, align) for n, m in zip(IMAGE[1:], size, strict=True))
    return computing(lambda r: Bilinear("op", r, 0, rows, columns), Shape(2, *size), STEP)


def odd_mixture() -> Program:
    rows, columns = [(4, 0, 0.25), (2, 2, 0.0)], [(0, 1, 0.5), (5, 3, 1.0), (1, 2, 0.0)]
    return computing(lambda r: Bilinear("op", r, 0, rows, columns), Shape(2, 2, 3), STEP)


def averaged(kernel: int, stride: int, padding: int) -> Program:
    window = Window((kernel, kernel), (stride, stride), (padding, padding))
    shape = Shape(2, *window.output(IMAGE, window.padding, ceil=True))
    return computing(lambda results: MeanPool("op", results, 0, window), shape, STEP)


def product(gate: Shape | None) -> Program:
    make: Make = lambda results: Multiply("op", results, 0, 1)  # noqa: E731
    return computing(make, IMAGE, STEP * STEP / 30, gate)


def normal(x: Any) -> Any:
    return 0.5 * (1 + torch.erf(x / 2**0.5))


def zigzag(x: Any) -> Any:
    return torch.sin(5 * x)


# The operator that must be in the 8-bit form.
PROGRAMS = {
    "hard sigmoid": (computing(curve(0, -3.0, 3.0, 1, F.hardsigmoid), IMAGE, 1.0), "HardSigmoid"),
    "hard swish": (computing(curve(1, -3.0, 3.0, 1, F.hardsigmoid), IMAGE, 1.0), "HardSigmoid"),
    "one segment": (computing(curve(1, -2.0, 1.0, 1, lambda x: 2 * x), IMAGE, 1.0), "Clip"),
    "sigmoid": (computing(curve(0, -16.0, 16.0, 4096, torch.sigmoid), IMAGE, 1.0), "Sigmoid"),
    "tanh": (computing(curve(0, -10.0, 10.0, 4096, torch.tanh), IMAGE, 1.0), "Tanh"),
    "silu": (computing(curve(1, -20.0, 20.0, 4096, torch.sigmoid), IMAGE, 1.0), "Sigmoid"),
    "gelu": (computing(curve(1, -8.0, 8.0, 4096, normal), IMAGE, 1.0), "Erf"),
    "mish": (
        computing(curve(1, -20.0, 20.0, 4096, lambda x: F.softplus(x).tanh()), IMAGE, 1.0), "Softplus"
    ),
    "rough sigmoid": (computing(curve(0, -6.0, 6.0, 12, torch.sigmoid), IMAGE, 1.0), "Gather"),
    "any curve": (computing(curve(1, -7.0, 5.0, 100, zigzag), IMAGE, 1.0), "Gather"),
    "product": (product(None), "Mul"),
    "gates": (product(Shape(2, 1, 1)), "Mul"),
    "resize": (mixed((10, 12), align=False), "Resize"),
    "resize with corners": (mixed((9, 11), align=True), "Resize"),
    "shrink": (mixed((3, 4), align=False), "Resize"),
    "odd places": (odd_mixture(), "Gather"),
    "means": (averaged(3, 2, 1), "AveragePool"),
    "mean of all": (computing(lambda r: MeanPool("op", r, 0, Window((5, 6))), Shape(2, 1, 1), STEP),
                    "GlobalAveragePool"),
}  # fmt: skip


def images() -> Any:
    print("images: seed 6")
    return np.random.default_rng(6).integers(0, 256, (3, 5, 6, 2), np.uint8)


def run(program: Program, form: Any, optimised: bool) -> dict[str, Any]:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = to_onnx(program, form).SerializeToString()
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"image": images()}), strict=True))


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_the_exact_form_gives_the_bits_of_the_reference(name: str) -> None:
    program, _ = PROGRAMS[name]
    found, expected = run(program, "exact", optimised=False), reference.run(program, images())
    np.testing.assert_equal(found, expected)
    assert len(np.unique(expected["codes"])) > 4, "a program that says little"


@pytest.mark.parametrize("optimised", [False, True])
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_the_8_bit_form_is_off_by_a_step_at_most(name: str, optimised: bool) -> None:
    program, operator = PROGRAMS[name]
    found, expected = run(program, "int8", optimised), reference.run(program, images())
    # A quarter of a step of the codes, for a function in place of a curve, and rounding.
    assert np.abs(found["value"] - expected["value"]).max() <= 1 / 128 + 1e-4
    assert np.abs(found["codes"] - expected["codes"]).max() <= 1 / 32 + 1e-5
    nodes = [node for node in to_onnx(program).graph.node if node.name.startswith("op/")]
    assert operator in {node.op_type for node in nodes}


PLACES = {
    "identity": (range(5), range(6), set()),
    "crop": (range(1, 4), range(2, 6), {"Slice"}),
    "every second": (range(0, 5, 2), range(1, 6, 2), {"Slice"}),
    "flip": (range(4, -1, -1), range(5, -1, -1), {"Slice"}),
    "zeros around": ((NOTHING, *range(5)), (*range(6), NOTHING, NOTHING), {"Pad"}),
    "zeros between": ((0, NOTHING, 1, NOTHING, 4), range(6), {"Pad", "Gather"}),
    "nothing": ((NOTHING,) * 2, (NOTHING,), {"Pad", "Gather"}),
    "twice as large": ([i // 2 for i in range(10)], [i // 3 for i in range(18)], {"Resize"}),
    "reflected": ((1, *range(5), 3), (1, *range(6), 4), {"Gather"}),
    "one pixel": ((3,), (2,), {"Slice"}),
}


@pytest.mark.parametrize("type", ["u8", "i8", "i32"])
@pytest.mark.parametrize("form", ["exact", "int8"])
@pytest.mark.parametrize("name", list(PLACES))
def test_pixels(name: str, form: Any, type: Type) -> None:
    rows, columns, operators = PLACES[name]
    shape = Shape(2, len(rows), len(columns))
    tensors = (
        Tensor("u8", IMAGE, 0.5), Tensor(type, IMAGE, 0.5),
        Tensor(type, shape, 0.5), Tensor("f32", shape, 1.0),
    )  # fmt: skip
    operations = (
        Lookup("image", 0, np.tile(np.arange(256, dtype=np.uint8), (2, 1))),
        Requantize("codes", (result(1, 1.0, 0, 127),), 0),
        Pixels("op", 1, 2, tuple(rows), tuple(columns)),
        Requantize("floats", (result(3, 0.5),), 2),
    )
    program = Program("pixels", tensors, operations, (Output(3),))
    (found,), expected = (
        run(program, form, optimised=True).values(),
        reference.run(program, images()),
    )
    np.testing.assert_array_equal(found, expected)
    nodes = [node for node in to_onnx(program, form).graph.node if node.name.startswith("op/")]
    assert {node.op_type for node in nodes} - {"DequantizeLinear"} == operators


def test_names_of_outputs_do_not_collide() -> None:
    """With the input, with nodes, or with the name of an unnamed one."""
    floats = Tensor("f32", IMAGE, 1.0)
    names = ("", "image", "op/Mul", "logits")
    op = Requantize("op", tuple(result(i + 1, i + 2.0) for i in range(4)), 0)
    lookup = Lookup("image", 0, np.tile(np.arange(256, dtype=np.uint8), (2, 1)))
    outputs = tuple(Output(i + 1, name) for i, name in enumerate(names))
    program = Program("names", (Tensor("u8", IMAGE, 1.0), *[floats] * 4), (lookup, op), outputs)
    found = run(program, "exact", optimised=False)
    assert list(found) == ["logits", "image_2", "op/Mul", "logits_2"]
    for array, expected in zip(
        found.values(), reference.run(program, images()).values(), strict=True
    ):
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize(("segments", "operator"), [(12, "Gather"), (64, "Sigmoid")])
def test_a_quarter_of_a_step_decides_about_functions(segments: int, operator: str) -> None:
    """12 segments of a sigmoid are off by 0.012, 64 by 0.0004; a step of the codes is 1/32."""
    make = curve(0, -6.0, 6.0, segments, torch.sigmoid)
    whole = computing(make, IMAGE, 1.0)
    tensors = (whole.tensors[0], whole.tensors[3], whole.tensors[4])
    codes, floats = result(1, 32.0, -127, 127), result(2, 1 / 32)
    operations = (whole.operations[0], make((codes,)), Requantize("floats", (floats,), 1))
    program = Program("steps", tensors, operations, (Output(2),))
    nodes = [node for node in to_onnx(program).graph.node if node.name.startswith("op/")]
    assert operator in {node.op_type for node in nodes}
    (found,), expected = (
        run(program, "int8", optimised=False).values(),
        reference.run(program, images()),
    )
    assert np.abs(found - expected).max() <= 1 / 32 + 1e-5
