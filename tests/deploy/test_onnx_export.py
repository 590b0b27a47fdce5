"""ONNX: what other runtimes make of an exported program, against the specification."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dbq
from dbq.deploy import reference
from dbq.deploy.onnx.export import emit, to_onnx
from dbq.deploy.onnx.graph import Graph
from dbq.deploy.onnx.int8 import ZERO_POINTS
from dbq.deploy.onnx.weights import LARGEST, common_step, merge
from dbq.deploy.operations.channels import Channels
from dbq.deploy.operations.convolution import Convolution
from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.program import Output, Program
from dbq.deploy.tensors import DTYPES, Result, Shape, Tensor
from dbq.deploy.window import Window

pytestmark = pytest.mark.slow

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

SEED = 4
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SMALL: dict[str, tuple[int, dict[str, Any]]] = {
    "mobilenet_v1": (32, {"num_classes": 10, "width": 0.25, "small_input": True}),
    "mobilenet_v2": (64, {"num_classes": 10, "width": 0.25}),
    "shufflenet_v2": (64, {"num_classes": 10, "width": 0.5}),
    "resnet20": (32, {}),
}
# Where the processor can, openvino computes floats in bfloat16, and rounds what a linear layer reads to
# 8 bits again, unless it is told otherwise.
OPENVINO = {
    "INFERENCE_NUM_THREADS": 1,
    "INFERENCE_PRECISION_HINT": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
}
CASES = [
    ("mobilenet_v1", "dbq-2t-4"), ("mobilenet_v1", "dbq-1t-a8"), ("mobilenet_v1", "fx8-3"),
    ("mobilenet_v2", "dbq-2t-4"), ("mobilenet_v2", "dbq-1t-a8"),
    ("shufflenet_v2", "dbq-2t-4"), ("shufflenet_v2", "dbq-1t-a8"),
    ("resnet20", "resnet-2t-a8"), ("resnet20", "resnet-1t-a8"),
]  # fmt: skip


@cache
def program_of(name: str, plan: str) -> Program:
    pixels, options = SMALL[name]
    torch.manual_seed(SEED)
    model = dbq.create_model(name, **options)
    images = torch.rand(4, 3, pixels, pixels)
    dbq.prepare(model, plan, images)
    dbq.calibrate(model, [images], statistics="estimate")  # the statistics of a random network
    return dbq.lower(model, images, mean=MEAN, std=STD, report=None)


def images_for(program: Program, count: int = 3) -> np.ndarray[Any, np.dtype[np.uint8]]:
    print(f"images: seed {SEED}")
    channels, height, width = program.input_shape
    return np.random.default_rng(SEED).integers(
        0, 256, (count, height, width, channels), dtype=np.uint8
    )


def run(model: Any, images: np.ndarray[Any, Any], optimised: bool = True) -> list[Any]:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = model.SerializeToString()
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {"image": images}))


def spread(found: Any, expected: Any) -> float:
    """Root mean square of the difference, relative to how much logits differ at all."""
    return float(np.sqrt(((found - expected) ** 2).mean()) / expected.std())


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("name", "plan"), CASES)
def test_the_exact_form_gives_the_bits_of_the_reference(name: str, plan: str, bits: Any) -> None:
    """Also where onnxruntime rewrites the graph, as it does unless it is told not to."""
    program = program_of(name, plan)
    images = images_for(program)
    model, expected = to_onnx(program, "exact", bits), reference.run(program, images)
    for optimised in (False, True):
        (logits,) = run(model, images, optimised)
        np.testing.assert_array_equal(logits, expected)


@pytest.mark.parametrize("form", ["int8", "exact"])
@pytest.mark.parametrize(("name", "plan"), CASES)
def test_packed_weights_are_the_weights(name: str, plan: str, form: Any) -> None:
    """Bit by bit: the width of the stored integers changes nothing that is computed."""
    program = program_of(name, plan)
    images = images_for(program)
    (expected,) = run(to_onnx(program, form, 8), images)
    for bits in (2, 4):
        np.testing.assert_array_equal(run(to_onnx(program, form, bits), images)[0], expected)


@pytest.mark.parametrize("form", ["int8", "exact"])
@pytest.mark.parametrize("plan", ["resnet-1t-a8", "resnet-2t-a8"])
def test_a_file_is_hardly_larger_than_the_programs(plan: str, form: Any, tmp_path: Path) -> None:
    program = program_of("resnet20", plan)
    size = dbq.save(program, tmp_path / "net.dbq")
    path = dbq.export_onnx(program, tmp_path / "net.onnx", form=form, weight_bits=2)
    assert path.stat().st_size <= 1.3 * size


VERSIONS = [("1t", 2, 25, 13), ("1t", 4, 21, 10), ("1t", 8, 13, 7),
            ("2t", 2, 21, 10), ("2t", 8, 13, 7)]  # fmt: skip


@pytest.mark.parametrize(("branches", "bits", "opset", "file"), VERSIONS)
def test_the_oldest_version_that_knows_the_weights(
    branches: str, bits: Any, opset: int, file: int
) -> None:
    """Joined branches need four bits, so a file of them is no newer than INT4."""
    model = to_onnx(program_of("resnet20", f"resnet-{branches}-a8"), "int8", bits)
    assert (model.opset_import[0].version, model.ir_version) == (opset, file)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 4, 3, 3), (4, 7, 1, 1)])
def test_packing_is_what_onnx_unpacks(shape: tuple[int, ...]) -> None:
    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    for bits, low, high in ((2, -2, 1), (4, -8, 7), (8, -128, 127)):
        codes = rng.integers(low, high + 1, shape).astype(np.int8)
        graph = Graph()
        graph.add("Identity", graph.packed(codes, bits), label="x")  # type: ignore[arg-type]
        (tensor,) = graph.initializers
        found = onnx.numpy_helper.to_array(tensor)
        np.testing.assert_array_equal(found.astype(np.int8), codes)


def traced(program: Program, images: Any) -> list[Any]:
    """Every tensor of the 8-bit form as codes of the program."""
    values = emit(program, "int8", Graph())
    shape = program.input_shape
    names = [values.names[i] for i in range(len(program.tensors))]
    size = ("N", shape.height, shape.width, shape.channels)
    logits = (values.names[program.output], ("N", *program.tensors[program.output].shape[:1]))
    model = values.graph.model("traced", ("image", size), [logits], "0")
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    return [
        _codes(value, tensor)
        for value, tensor in zip(run(model, images, optimised=False), program.tensors, strict=True)
    ]


def _codes(value: Any, tensor: Tensor) -> Any:
    if tensor.type == "f32":
        return value.reshape(len(value), *tensor.shape)
    if tensor.type == "i32":
        return np.rint(value / np.float64(tensor.scale)).clip(-(2**30), 2**30).astype(np.int32)
    shifted = value.astype(np.int16) - int(ZERO_POINTS[tensor.type])
    return shifted.astype(DTYPES[tensor.type])


def tolerance(program: Program, op: Any, inputs: list[Any], result: Result) -> Any:
    """Codes by which rounding and merged branches may move a result, [N, K, H, W] or a number.

    One for rounding the other way, one for a residual that is a float instead of a code; wide codes are
    finer than float32 arithmetic. The bias is off by half a step of the weights, a branch by the error
    of its scale.
    """
    allowed: Any = 2.0
    if program.tensors[result.tensor].type == "i32":
        allowed += 1e-5 * result.high
    if isinstance(op, Convolution):
        steps = np.abs(result.scales).max(axis=1)
        allowed = allowed + steps[:, None, None] / 2
        if op.sum_count > 1:
            factors, step = common_step(result.scales.astype(np.float64), LARGEST)
            errors = np.abs(factors * step[:, None] - result.scales)  # [K, J]
            shape = program.tensors[result.tensor].shape
            for j, codes in enumerate(op.codes):
                sums = np.abs(op.branch_sums(inputs[0], codes, shape))
                allowed = allowed + sums * errors[:, j, None, None]
    return allowed


@pytest.mark.parametrize(("name", "plan"), [case for case in CASES if case[1] != "fx8-3"])
def test_every_layer_of_the_8_bit_form_is_the_programs(name: str, plan: str) -> None:
    """Each operation of the reference, given what onnxruntime gave that operation."""
    program = program_of(name, plan)
    images = images_for(program, 2)
    values = traced(program, images)
    for op in program.operations:
        inputs = [values[i] for i in op.reads]
        results = {result.tensor: result for result in getattr(op, "results", ())}
        for index, expected in reference.execute(program, op, inputs, images).items():
            tensor = program.tensors[index]
            difference = np.abs(values[index].astype(np.float64) - expected)
            if index not in results:
                assert difference.max() == 0, op.name
                continue
            allowed = tolerance(program, op, inputs, results[index])
            if tensor.type == "f32":
                allowed = allowed * 0.05  # logits are values: a step of theirs is no unit
            assert (difference <= allowed).all(), (op.name, tensor.type, difference.max())


@pytest.mark.parametrize(("name", "plan"), CASES)
def test_runtimes_agree_on_the_8_bit_form(name: str, plan: str) -> None:
    """Random networks amplify every rounding: the optimised runs are compared as a whole."""
    program = program_of(name, plan)
    images = images_for(program, 8)
    model = to_onnx(program)
    expected = reference.run(program, images)
    (plain,), (optimised,) = run(model, images, optimised=False), run(model, images)
    assert plain.shape == expected.shape
    assert spread(optimised, plain) < 0.5
    assert np.corrcoef(optimised.ravel(), expected.ravel())[0, 1] > 0.85


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("form", ["int8", "exact"])
@pytest.mark.parametrize("name", list(SMALL))
def test_openvino_runs_both_forms(name: str, form: Any, bits: Any) -> None:
    openvino = pytest.importorskip("openvino", reason="openvino is not installed")
    program = program_of(name, "resnet-2t-a8" if name == "resnet20" else "dbq-2t-4")
    images = images_for(program, 8)
    core = openvino.Core()
    model = core.read_model(to_onnx(program, form, bits).SerializeToString())
    logits = core.compile_model(model, "CPU", OPENVINO)(images)[0]
    expected = reference.run(program, images)
    assert np.corrcoef(logits.ravel(), expected.ravel())[0, 1] > (0.85 if form == "int8" else 0.98)


def test_merged_weights_stay_small_and_close() -> None:
    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    for branches in (1, 2, 3):
        codes = rng.integers(-1, 2, (branches, 50, 7, 3, 3)).astype(np.int8)
        scales = rng.normal(0, 1, (50, branches)) * rng.uniform(1e-4, 10, (50, 1))
        merged = merge(codes, scales)
        exact = np.einsum("jkcyx,kj->kcyx", codes, scales)
        found = merged.codes * merged.steps[:, None, None, None].astype(np.float64)
        error = np.abs(found - exact).max(axis=(1, 2, 3)) / np.abs(scales).max(axis=1)
        assert np.abs(merged.codes.astype(int)).max() <= LARGEST
        # Three numbers on one step are harder than two; one is exact.
        assert error.max() < {1: 1e-6, 2: 0.02, 3: 0.06}[branches]


def test_a_kernel_of_zeros_keeps_its_bias() -> None:
    merged = merge(np.zeros((1, 2, 1, 1, 1), np.int8), np.array([[0.0], [0.5]]))
    assert (merged.steps > 0).all()
    assert not merged.codes.any()


def moving_program(sources: tuple[tuple[int, int], ...]) -> Program:
    """The image, its channels in another order, and a sum over all of them."""
    size = Shape(6, 5, 4)
    count = len(sources)
    tensors = (
        Tensor("i8", size, 0.5),
        Tensor("i8", Shape(count, 5, 4), 0.5),
        Tensor("f32", Shape(2, 1, 1), 1.0),
    )
    rng = np.random.default_rng(SEED)
    codes = rng.integers(-1, 2, (1, 2, count, 5, 4)).astype(np.int8)
    scales, offsets = np.ones((2, 1), np.float32), np.zeros(2, np.float32)
    table = (np.arange(256) // 3 - 40).astype(np.int8).view(np.uint8)
    operations = (
        Lookup("image", 0, np.tile(table, (6, 1))),
        Channels("order", 1, sources),
        Convolution("sum", (Result(2, 0, 0, scales, offsets),), 1, Window((5, 4)), 1, codes, None),
    )
    return Program("moving", tensors, operations, (Output(2),))


ORDERS = {
    "identity": range(6),
    "shuffle": (0, 3, 1, 4, 2, 5),
    "part of a shuffle": (3, 1, 4),
    "slice": (2, 3, 4),
    "permutation": (1, 2, 0, 4, 5, 3),
    "repeated": (0, 0, 5),
    "zeros around": (-1, 0, 1, 2, 3, 4, 5, -1, -1),
    "zeros inside": (0, -1, 4, 2),
}


@pytest.mark.parametrize("order", list(ORDERS))
@pytest.mark.parametrize("form", ["int8", "exact"])
def test_channels_in_any_order(order: str, form: Any) -> None:
    sources = tuple((0 if channel >= 0 else -1, max(channel, 0)) for channel in ORDERS[order])
    program = moving_program(sources)
    images = images_for(program)
    expected = reference.run(program, images)
    (logits,) = run(to_onnx(program, form), images)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-3)
    try:
        import openvino
    except ImportError:
        return
    core = openvino.Core()
    content = to_onnx(program, form).SerializeToString()
    model = core.compile_model(core.read_model(content), "CPU", OPENVINO)
    np.testing.assert_allclose(model(images)[0], expected, rtol=1e-5, atol=1e-3)


def test_a_normalised_image_needs_no_table_and_any_other_gets_one() -> None:
    def operators(program: Program) -> set[str]:
        return {node.op_type for node in to_onnx(program).graph.node}

    program = program_of("resnet20", "resnet-2t-a8")
    assert "Gather" not in operators(program)
    strange = Program(program.name, program.tensors, program.operations, program.outputs, {})
    assert "Gather" in operators(strange)
    images = images_for(program)
    np.testing.assert_array_equal(
        run(to_onnx(strange), images)[0], run(to_onnx(program), images)[0]
    )


def test_the_file_is_written_whole_and_passes_the_checker(tmp_path: Path) -> None:
    program = program_of("mobilenet_v1", "dbq-2t-4")
    path = dbq.export_onnx(program, tmp_path / "net.onnx", weight_bits=8)
    onnx.checker.check_model(str(path), full_check=True)
    assert [file.name for file in tmp_path.iterdir()] == ["net.onnx"]
    model = onnx.load(path)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    weights = sum(op.codes[0].size for op in program.convolutions)
    assert path.stat().st_size < 1.5 * weights + 60_000  # one byte a weight


def test_errors_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = program_of("resnet20", "resnet-2t-a8")
    with pytest.raises(dbq.DbqError, match=r"int4.*int8.*exact"):
        dbq.export_onnx(program, tmp_path / "net.onnx", form="int4")  # type: ignore[arg-type]
    with pytest.raises(dbq.DbqError, match="3 bits"):
        dbq.export_onnx(program, tmp_path / "net.onnx", weight_bits=3)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(dbq.DbqError, match=r"pip install 'dbq\[train\]'"):
        dbq.export_onnx(program, tmp_path / "net.onnx")
