"""Whole networks: the integer program against torch, for every network and plan that deploys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import dbq
from dbq.deploy import reference
from dbq.deploy.file.fileformat import read_program, write_program
from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.program import Program
from dbq.lowering.lower import lower
from dbq.lowering.ratios import weights_with_whole_ratios
from dbq.model.pixels import denormalise, normalise
from dbq.networks.table import MODELS

pytestmark = pytest.mark.slow

MEAN, STD = (0.48, 0.45, 0.40), (0.23, 0.22, 0.21)
SIDES = {"resnet20": 32}  # the others need no more than 64 pixels to have one left at the end
PLANS = {"resnet20": ("resnet-2t-a8", "resnet-1t-a8", "fx8-3")}
CASES = [
    (name, plan) for name in MODELS for plan in PLANS.get(name, ("dbq-2t-4", "dbq-1t-a8", "fx8-3"))
]


def prepared(model: nn.Module, plan: str | dbq.Plan, images: Tensor) -> nn.Module:
    dbq.prepare(model, plan, images)
    dbq.calibrate(model, [images])
    return model.eval()


def inputs(side: int, count: int = 2, seed: int = 0) -> Tensor:
    """Normalised random images."""
    pixels = torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(seed))
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (MEAN, STD))
    return (pixels - mean) / std


@pytest.mark.parametrize(("name", "plan"), CASES)
def test_every_network_lowers(name: str, plan: str) -> None:
    """`lower` itself raises if an activation is off by more than one code, step by step."""
    print("seed 3")
    torch.manual_seed(3)
    x = inputs(SIDES.get(name, 64))
    model = prepared(dbq.create_model(name, num_classes=7), plan, x)
    said: list[str] = []
    program = lower(model, x, mean=MEAN, std=STD, report=said.append)
    found = program.facts["agreement"]
    assert found["codes"] > 10_000
    # Both round to float32, in unlike order: a few units of 2^-24 relative, so 255 * 2^-22 = 6e-5 of a
    # code. A code changes if it is that near to a half: twice in 10,000 at most.
    assert found["different"] <= 2e-4 * found["codes"]
    assert len(said) == 1
    assert f"{found['different']:,} of {found['codes']:,}" in said[0]


def test_a_program_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts come from several places, and change nothing that was checked."""
    checked: list[str] = []
    check = Lookup.check

    def counted(op: Lookup, *args: Any) -> None:
        checked.append(op.name)
        check(op, *args)

    monkeypatch.setattr(Lookup, "check", counted)
    x = inputs(32)
    model = prepared(dbq.create_model("resnet20"), "resnet-2t-a8", x)
    program = lower(model, x, report=None).with_facts(plan="resnet-2t-a8")
    assert checked == ["image"]
    assert {"mean", "std", "made_by", "agreement", "plan"} == set(program.facts)
    assert write_program(program) == write_program(read_program(write_program(program)))


class Everything(nn.Module):
    """One of each operation, and the ways people write them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.ZeroPad2d((0, 1, 0, 1)),
            nn.Conv2d(3, 12, 3, stride=2),
            nn.BatchNorm2d(12),
            nn.ReLU6(),
        )
        self.left = nn.Conv2d(6, 6, 3, padding=2, dilation=2, groups=2)
        self.right = nn.Sequential(nn.Conv2d(6, 6, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU())
        self.after = nn.BatchNorm2d(12)  # behind a concatenation: an operation of its own
        self.deep = nn.Conv2d(12, 24, 3, padding="same", groups=12)
        self.narrow = nn.Conv2d(24, 12, 1)
        self.head = nn.Linear(12 * 2 * 2, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        n, c, h, w = x.shape
        x = x.view(n, 3, c // 3, h, w).transpose(1, 2).reshape(n, c, h, w)  # a channel shuffle
        left, right = torch.split(x, 6, dim=1)
        x = torch.cat([self.left(left), self.right(right)], 1).relu()
        x = nn.functional.max_pool2d(self.after(x), 3, 2, 1, ceil_mode=True)
        y = self.narrow(nn.functional.relu(self.deep(x)))
        y += 0.25
        shortcut = nn.functional.pad(x[:, 2:10], (0, 0, 0, 0, 1, 3))
        x = nn.functional.avg_pool2d(torch.relu(y + shortcut), 2)
        x = torch.flatten(nn.functional.adaptive_avg_pool2d(x, 2), 1)
        return self.head(nn.functional.dropout(x, training=self.training))


def plan_of(weight: str, input: int = 8) -> dbq.Plan:
    return dbq.Plan("all", default=dbq.LayerPlan.of(weight, input))


@pytest.mark.parametrize("weight", ["1T", "2T", "3T", "8b", "5b", "2b"])
@pytest.mark.parametrize("bits", [8, 4])
def test_a_network_of_all_operations(weight: str, bits: int) -> None:
    print("seed 5")
    torch.manual_seed(5)
    x = inputs(32, count=3, seed=5)
    model = prepared(Everything(), plan_of(weight, bits), x)
    check_logits(model, lower(model, x, mean=MEAN, std=STD, whole_ratios=False, report=None), x)
    program = lower(model, x, mean=MEAN, std=STD, report=None)
    with weights_with_whole_ratios(model):
        check_logits(model, program, x)


def check_logits(model: nn.Module, program: Program, x: Tensor) -> None:
    """The program against torch's eval().

    If every code the last layer reads is off by at most one, a logit is off by no more than the
    scale of a code times the sum of the layer's weights.
    """
    images = denormalise(x, MEAN, STD)
    with torch.no_grad():
        expected = model(normalise(torch.from_numpy(images).permute(0, 3, 1, 2), MEAN, STD)).numpy()
    last = program.convolutions[-1]
    integers = last.integers.astype(np.int16)
    sizes = np.abs(integers).reshape(len(integers), integers.shape[1], -1).sum(2).T  # [K, J]
    one_code = (sizes * np.abs(last.results[0].scales)).sum(1)
    found = reference.run(program, images)
    assert (np.abs(found - expected) <= one_code.reshape(-1, *[1] * (found.ndim - 2))).all()
    # The bound is wide for coarse codes; that these are the same logits shows in their pattern.
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.98


def test_folding_batch_norm_changes_no_code() -> None:
    print("seed 7")
    torch.manual_seed(7)
    conv, norm = nn.Conv2d(3, 8, 1, bias=False), nn.BatchNorm2d(8)
    with torch.no_grad():
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        norm.weight.normal_()  # negative ones too
        norm.bias.normal_()
    x = inputs(6, seed=7)
    model = nn.Sequential(conv, norm, nn.ReLU(), nn.Conv2d(8, 4, 1))
    prepared(model, plan_of("2T"), x)
    program = lower(model, x, mean=MEAN, std=STD, whole_ratios=False, report=None)
    codes = dbq.branches(model)["0"].codes.numpy()
    assert np.array_equal(program.convolutions[0].codes, codes)
    assert program.tensors[program.output].shape == (4, 6, 6), "no pooling: logits of every pixel"
    check_logits(model, program, x)


def test_mobilenet_fits_its_size() -> None:
    """The file is at most 0.92 * C_M / 8 bytes, as the paper counts C_M: five trits a byte."""
    x = torch.zeros(1, 3, 224, 224)
    model = dbq.create_model("mobilenet_v1")
    dbq.prepare(model, "dbq-2t-4", x)
    dbq.calibrate(model, [torch.rand(2, 3, 32, 32)])  # small images: only bytes count here
    program = lower(model, torch.rand(1, 3, 32, 32), report=None)
    assert len(write_program(program)) <= 0.92 * dbq.cost(model, x).total.C_M / 8
