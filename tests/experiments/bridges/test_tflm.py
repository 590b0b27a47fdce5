"""A program in the interpreter of the real TensorFlow Lite Micro, with compressed weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dbq
from dbq.deploy import reference
from dbq.deploy.program import Program
from dbq.errors import LoweringError

runtime = pytest.importorskip(
    "tflite_micro.python.tflite_micro.runtime", reason="tflite_micro is not installed"
)
SIZE = 12


def block(inputs: int, outputs: int, kernel: int, **options: Any) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, bias=False, **options),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


def program(plan: str) -> Program:
    """Every kind of layer that is exported: both paddings of TFLite, and one it has no word for."""
    model = nn.Sequential(
        block(3, 32, 3, stride=2, padding=1), block(32, 32, 3, padding=1, groups=32),
        block(32, 64, 1), block(64, 64, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 5),
    )  # fmt: skip
    images = torch.rand(16, 3, SIZE, SIZE)
    dbq.prepare(model, plan, images[:1])
    dbq.calibrate(model, [images], statistics="estimate")
    return dbq.lower(model.eval(), images[:4], report=None)


def pixels(count: int) -> Any:
    return np.random.default_rng(1).integers(0, 256, (count, SIZE, SIZE, 3), dtype=np.uint8)


@pytest.mark.parametrize("plan", ["dbq-1t-a8", "dbq-2t-4", "fx8-3"])
def test_logits_are_those_of_the_program_to_a_few_steps(plan: str, tmp_path: Path) -> None:
    from dbq.experiments.bridges.tflm import export_tflm, input_codes

    net = program(plan)
    file = export_tflm(net, tmp_path / "net.tflite", pixels(20))
    interpreter = runtime.Interpreter.from_file(str(file), arena_size=500_000)
    expected, found = reference.run(net, pixels(20)), []
    for codes in input_codes(net, pixels(20)):
        interpreter.set_input(codes[None], 0)
        interpreter.invoke()
        found.append(interpreter.get_output(0).ravel())
    step = np.abs(expected).max() / 127
    assert np.abs(np.array(found) * step - expected).max() < 4 * step
    assert np.ptp(expected) > 50 * step  # so that this says something


def test_branches_are_written_in_few_bits(tmp_path: Path) -> None:
    from dbq.experiments.bridges.tflm import export_tflm

    sizes = {
        plan: export_tflm(program(plan), tmp_path / plan, pixels(2)).stat().st_size
        for plan in ("resnet-1t-a8", "resnet-2t-a8", "fx8-3")
    }
    weights = 64 * 64 * 9 + 64 * 32  # of the two large layers
    assert sizes["fx8-3"] - sizes["resnet-2t-a8"] > 0.3 * weights
    assert sizes["fx8-3"] - sizes["resnet-1t-a8"] > 0.6 * weights


def test_what_tflm_does_not_get_is_named(tmp_path: Path) -> None:
    from dbq.experiments.bridges.tflm import export_tflm

    model, images = dbq.create_model("resnet20", width=0.25), torch.rand(4, 3, 32, 32)
    dbq.prepare(model, "resnet-2t-a8", images[:1])
    dbq.calibrate(model, [images])
    net = dbq.lower(model.eval(), images, report=None)
    with pytest.raises(LoweringError, match="TFLM gets no"):
        export_tflm(net, tmp_path / "net.tflite", np.zeros((1, 32, 32, 3), np.uint8))
    assert not list(tmp_path.iterdir())
