"""What the operations of a Program mean, against torch and plain loops; and which ones are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dbq.deploy import reference
from dbq.deploy.operations.average_pool import MeanPool
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
from dbq.errors import LoweringError

IMAGE = Shape(2, 5, 6)
SCALE = 0.0625


def plain(tensor: int, channels: int, scale: float = 1.0, low: int = 0, high: int = 0) -> Result:
    scales = np.full((channels, 1), scale, np.float32)
    return Result(tensor, low, high, scales, np.zeros(channels, np.float32))


def program(op: Operation, shape: Shape = IMAGE) -> Program:
    """Codes -128 to 127 as tensor 0; `op` writes tensor 1 as floats."""
    table = np.tile(np.arange(256, dtype=np.uint8) - np.uint8(128), (IMAGE.channels, 1))
    tensors = (Tensor("i8", IMAGE, SCALE), Tensor("f32", shape, 1.0))
    return Program("one", tensors, (Lookup("image", 0, table), op), (Output(1),))


def codes_and_result(op: Operation, shape: Shape = IMAGE) -> tuple[Any, Any]:
    print("images: seed 3")
    images = np.random.default_rng(3).integers(0, 256, (3, 5, 6, 2), np.uint8)
    codes = images.astype(np.int64).transpose(0, 3, 1, 2) - 128
    return codes, reference.trace(program(op, shape), images)[1]


def knots(function: Any, low: float, high: float, segments: int) -> Any:
    points = torch.linspace(low, high, segments + 1, dtype=torch.float64)
    return function(points).numpy().astype(np.float32)


@pytest.mark.parametrize(
    ("form", "g", "function", "low", "high", "segments", "tolerance"),
    [
        (0, F.hardsigmoid, F.hardsigmoid, -3.0, 3.0, 1, 1e-6),
        (1, F.hardsigmoid, F.hardswish, -3.0, 3.0, 1, 1e-6),
        # A quarter of h^2 max|g''| (where a segment meets a constant, its slope) bounds the rest.
        (0, torch.sigmoid, torch.sigmoid, -8.0, 8.0, 512, 4e-4),
        (1, torch.sigmoid, F.silu, -16.0, 16.0, 2048, 1e-3),
        (0, torch.tanh, torch.tanh, -5.0, 5.0, 512, 2e-4),
    ],
)
def test_curves_are_the_functions_of_torch(
    form: int, g: Any, function: Any, low: float, high: float, segments: int, tolerance: float
) -> None:
    op = Curve("curve", (plain(1, 2),), 0, form, low, high, knots(g, low, high, segments))
    codes, found = codes_and_result(op)
    expected = function(torch.from_numpy(codes * SCALE)).numpy()
    np.testing.assert_allclose(found, expected, atol=tolerance)


def test_a_curve_between_its_knots_and_outside() -> None:
    op = Curve("curve", (plain(1, 2),), 0, 0, -1.0, 2.0, np.array([5, 1, 3, -2], np.float32))
    points = np.array([-9.0, -1.0, -0.75, 0.0, 0.5, 1.0, 1.5, 2.0, 70.0], np.float32)
    assert op.values(points).tolist() == [5, 5, 4, 1, 2, 3, 0.5, -2, -2]


@pytest.mark.parametrize("shape", [IMAGE, Shape(2, 1, 1), Shape(1, 5, 6)])
def test_products_broadcast_as_in_torch(shape: Shape) -> None:
    print("seed 5")
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-(2**20), 2**20, (3, *each)) for each in (IMAGE, shape))
    op = Multiply("product", (plain(2, 2),), 0, 1)
    (v,) = op.sums((), [a.astype(np.int32), b.astype(np.int32)])
    expected = torch.from_numpy(a).float() * torch.from_numpy(b).float()
    np.testing.assert_array_equal(v, expected.numpy())
    op.check_sums((Tensor("i32", IMAGE, 1.0), Tensor("i8", shape, 1.0), Tensor("f32", IMAGE, 1.0)))


def test_pixels_are_those_of_plain_loops() -> None:
    rows, columns = (4, NOTHING, 0, 0), (5, 3, 1, NOTHING, 2, 2, 2)
    shape = Shape(2, 4, 7)
    op = Pixels("move", 0, 1, rows, columns)
    tensors = (Tensor("i8", IMAGE, 1.0), Tensor("i8", shape, 1.0))
    op.check(tensors, {})
    x = np.random.default_rng(0).integers(-128, 128, (3, *IMAGE)).astype(np.int8)
    found = op.run(tensors, [x])[1]
    assert found.dtype == np.int8
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            nothing = NOTHING in (row, column)
            expected = np.zeros((3, 2)) if nothing else x[:, :, row, column]
            np.testing.assert_array_equal(found[:, :, i, j], expected)


def blends(size: int, count: int, align_corners: bool) -> list[tuple[int, int, float]]:
    """As F.interpolate(mode="bilinear") places them."""
    if align_corners:
        places = np.arange(count) * (size - 1) / max(count - 1, 1)
    else:
        places = np.maximum((np.arange(count) + 0.5) * size / count - 0.5, 0)
    first = np.minimum(places.astype(int), size - 1)
    second = np.minimum(first + 1, size - 1)
    return list(zip(first.tolist(), second.tolist(), (places - first).tolist(), strict=True))


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(10, 12), (3, 4), (5, 6), (7, 1)])
def test_bilinear_is_that_of_torch(size: tuple[int, int], align_corners: bool) -> None:
    rows, columns = (blends(n, m, align_corners) for n, m in zip(IMAGE[1:], size, strict=True))
    op = Bilinear("resize", (plain(1, 2),), 0, rows, columns)
    codes, found = codes_and_result(op, Shape(2, *size))
    x = torch.from_numpy(codes).float()
    expected = F.interpolate(x, size=size, mode="bilinear", align_corners=align_corners)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(3, 2, 1), (2, 2, 0), (3, 3, 1), (4, 3, 0)]
)
def test_means_are_those_of_torch(kernel: int, stride: int, padding: int, ceil: bool) -> None:
    window = Window((kernel, kernel), (stride, stride), (padding, padding))
    size = window.output(IMAGE, window.padding, ceil)
    codes, found = codes_and_result(MeanPool("mean", (plain(1, 2),), 0, window), Shape(2, *size))
    expected = F.avg_pool2d(
        torch.from_numpy(codes).float(), kernel, stride, padding, ceil, count_include_pad=False
    )
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize(("low", "high"), [(0, 0), (0, 6), (-2, 2), (3, 2**30), (1, 1)])
def test_floats_are_clamped_unless_both_limits_are_0(low: int, high: int) -> None:
    op = Requantize("floats", (plain(1, 2, SCALE, low, high),), 0)
    codes, found = codes_and_result(op)
    expected = codes * SCALE if low == high == 0 else np.clip(codes * SCALE, low, high)
    np.testing.assert_array_equal(found, expected)


def curve(**changes: Any) -> Operation:
    fields: dict[str, Any] = {"form": 0, "low": -1.0, "high": 1.0, "knots": np.zeros(3, np.float32)}
    return Curve("odd", (plain(1, 2),), 0, **{**fields, **changes})


def mixed(*rows: tuple[int, int, float]) -> Operation:
    columns = [(0, 0, 0.0)] * 6
    return Bilinear("odd", (plain(1, 2),), 0, list(rows), columns)


MANY = np.zeros(4098, np.float32)
NAN = np.array([0, np.nan], np.float32)
LARGE = np.array([0, 2**29 + 64], np.float32)


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (curve(form=2), "form 2"),
        (curve(knots=MANY[:1]), "0 segments"),
        (curve(knots=MANY), "4097 segments"),
        (curve(knots=NAN), "knot"),
        (curve(knots=LARGE), "knot"),
        (curve(knots=np.zeros(3)), "float32"),
        (curve(low=1.0), "from 1.0 to 1.0"),
        (curve(low=2.0), "from 2.0 to 1.0"),
        (curve(low=float("nan")), "nan"),
        (curve(high=2e20), r"2e\+20"),
        (curve(low=0.0, high=1e-21), "segments between"),
        (Multiply("odd", (plain(1, 2),), 0, 2), "2x5x6 times 2x5x1"),
        (Pixels("odd", 0, 1, (0,) * 5, (0,) * 6), "type or scale"),
        (mixed(*[(0, 5, 0.0)] * 5), "rows 0 and 5 of 5"),
        (mixed(*[(0, 4, 1.5)] * 5), "1.5 of a row"),
        (mixed(*[(0, 4, float("nan"))] * 5), "nan of a row"),
        (mixed(*[(0, 4, 0.5)] * 4), "not one pair"),
        (MeanPool("odd", (plain(1, 2),), 0, Window((3, 3), dilation=(2, 2))), "dilation"),
    ],
)  # fmt: skip
def test_operations_that_cannot_run(op: Operation, words: str) -> None:
    table = np.zeros((2, 256), np.uint8)
    crop = Pixels("crop", 0, 2, range(5), (0,))
    cropped = Tensor("i8", Shape(2, 5, 1), SCALE)
    tensors = (Tensor("i8", IMAGE, SCALE), Tensor("f32", IMAGE, 1.0), cropped)
    with pytest.raises(LoweringError, match=f"odd.*{words}"):
        Program("odd", tensors, (Lookup("image", 0, table), crop, op), (Output(1),))


@pytest.mark.parametrize(
    ("rows", "columns"), [((5,), (0,)), ((0,), (6,)), ((-1,), (0,)), ((0, 1), (0,))]
)
def test_pixels_that_are_not_there(rows: tuple[int, ...], columns: tuple[int, ...]) -> None:
    tensors = (Tensor("i8", IMAGE, 1.0), Tensor("i8", Shape(2, 1, 1), 1.0))
    with pytest.raises(LoweringError, match=r"row|column"):
        Pixels("odd", 0, 1, rows, columns).check(tensors, {})


@pytest.mark.parametrize(("type", "scale", "fits"), [("i8", 2.0**22, True), ("i8", 2.0**23, False)])
def test_values_too_large_for_a_curve(type: Type, scale: float, fits: bool) -> None:
    """255 is the largest code that a lookup is believed to write."""
    table = np.zeros((2, 256), np.uint8)
    tensors = (Tensor(type, IMAGE, scale), Tensor("f32", IMAGE, 1.0))
    operations = (Lookup("image", 0, table), curve())
    if fits:
        assert Program("large", tensors, operations, (Output(1),))
    else:
        with pytest.raises(LoweringError, match="values up to 2139095040"):
            Program("large", tensors, operations, (Output(1),))


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ((), "no outputs"),
        ((Output(7),), "no output tensor 7"),
        ((Output(0, "codes"),), "'codes'.*not f32"),
        ((Output(1, "a"), Output(2, "a")), "one name"),
        ((Output(1, "a"), Output(1, "b")), "one tensor"),
        ((Output(1, "a\0"),), "zero byte"),
    ],
)
def test_outputs_that_cannot_be(outputs: tuple[Output, ...], words: str) -> None:
    floats = Tensor("f32", IMAGE, 1.0)
    both = Requantize("both", (plain(1, 2), plain(2, 2)), 0)
    operations = (Lookup("image", 0, np.zeros((2, 256), np.uint8)), both)
    with pytest.raises(LoweringError, match=words):
        Program("outputs", (Tensor("i8", IMAGE, SCALE), floats, floats), operations, outputs)


def test_several_outputs_are_a_dict() -> None:
    floats = Tensor("f32", IMAGE, 1.0)
    both = Requantize("both", (plain(1, 2), plain(2, 2, 0.5)), 0)
    table = np.tile(np.arange(256, dtype=np.uint8), (2, 1))
    operations = (Lookup("image", 0, table), both)
    tensors = (Tensor("u8", IMAGE, 1.0), floats, floats)
    several = Program("two", tensors, operations, (Output(2, "half"), Output(1, "whole")))
    images = np.full((1, 5, 6, 2), 6, np.uint8)
    found = reference.run(several, images)
    assert {name: array.ravel()[0] for name, array in found.items()} == {"half": 3.0, "whole": 6.0}
    assert several.output == 2
    assert "2 outputs: 'half' 2x5x6, 'whole' 2x5x6" in " ".join(str(several).split())
