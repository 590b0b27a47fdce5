"""Scales of branches as whole multiples of one step."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

import dbq
from dbq.deploy.inspection import describe
from dbq.deploy.operations.convolution import LARGEST_FACTORS, Convolution, joined
from dbq.deploy.program import Program
from dbq.lowering.ratios import weights_with_whole_ratios
from dbq.quantizers.frozen import Branches
from dbq.quantizers.ratios import whole_ratios

IMAGES = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(3))


def random_branches(branches: int, kernels: int = 12, seed: int = 1) -> Branches:
    print(f"seed {seed}")
    dice = torch.Generator().manual_seed(seed)
    codes = torch.randint(-1, 2, (branches, kernels, 5, 3, 3), generator=dice, dtype=torch.int8)
    scales = torch.rand(kernels, branches, generator=dice).sort(dim=1, descending=True).values
    return Branches(codes, scales)


@pytest.mark.parametrize("branches", [2, 3])
def test_no_other_numbers_are_closer(branches: int) -> None:
    """Against numpy's least squares for every allowed choice of numbers."""
    frozen = random_branches(branches)
    whole = whole_ratios(frozen)
    codes = frozen.codes.numpy()
    for k, factors in enumerate(whole.factors.numpy()):
        target = frozen.weight[k].double().numpy().ravel()
        found = joined(codes[:, k : k + 1], factors[None]).ravel() * float(whole.steps[k])
        allowed = LARGEST_FACTORS[branches]
        assert factors.sum() <= allowed
        best = np.inf
        for numbers in product(range(allowed + 1), repeat=branches):
            if 0 < sum(numbers) <= allowed:
                column = np.tensordot(numbers, codes[:, k].astype(float), 1).reshape(-1, 1)
                step, *_ = np.linalg.lstsq(column, target, rcond=None)
                best = min(best, float(np.linalg.norm(column[:, 0] * step - target)))
        assert np.linalg.norm(found - target) <= best + 1e-6


def test_a_kernel_of_zeros_is_one_of_zeros() -> None:
    frozen = Branches(torch.zeros(2, 1, 3, dtype=torch.int8), torch.tensor([[0.5, 0.25]]))
    whole = whole_ratios(frozen)
    assert whole.factors.tolist() == [[1, 0]]
    assert whole.steps.tolist() == [0]


def lowered(precision: str, whole: bool = True) -> tuple[nn.Module, Program, list[str]]:
    torch.manual_seed(2)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
    dbq.prepare(net, dbq.Plan("all", default=dbq.LayerPlan.of(precision, 8)), IMAGES)
    dbq.calibrate(net, [IMAGES])
    said: list[str] = []
    return net, dbq.lower(net, IMAGES, whole_ratios=whole, report=said.append), said


@pytest.mark.parametrize("precision", ["2T", "3T"])
def test_a_program_of_joined_branches(precision: str) -> None:
    net, program, said = lowered(precision)
    convolutions = [op for op in program.operations if isinstance(op, Convolution)]
    assert all(op.factors is not None and op.sum_count == 1 for op in convolutions)
    facts = program.facts["agreement"]
    assert 0 < facts["moved_mean"] < facts["moved_most"] < 0.2
    assert "whole ratios of scales moved weights by" in said[0]
    layer = describe(program).layers[1]
    assert sum(layer.ratios.values()) == 8
    assert len(layer.alphas) == int(precision[0]) - 1
    before = net.eval()(IMAGES)
    with weights_with_whole_ratios(net):
        rounded = net(IMAGES)
    assert not torch.equal(before, rounded)
    assert torch.equal(before, net(IMAGES)), "the network stays as it is"


def test_it_is_an_option() -> None:
    _, program, said = lowered("2T", whole=False)
    assert program.convolutions[0].factors is None
    assert program.facts["agreement"]["moved_most"] == 0
    assert "whole ratios" not in said[0]
