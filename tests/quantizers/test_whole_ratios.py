"""The option whole_ratios: trained and evaluated with the integers that will be deployed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dbq
from dbq.deploy.operations.convolution import LARGEST_FACTORS
from dbq.plans.precision import Precision
from dbq.quantizers.dbq.branch import BranchQuantizer
from dbq.quantizers.ratios import whole_ratios


def quantizer_of(branches: int, weight: torch.Tensor) -> BranchQuantizer:
    made = BranchQuantizer(Precision("ternary", branches), len(weight), whole_ratios=True)
    made.initialise(weight)
    return made


def some_weight(seed: int = 0) -> torch.Tensor:
    return torch.randn(12, 5, 3, 3, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("branches", [2, 3])
@pytest.mark.parametrize("sign", [1, -1])
def test_hard_weights_are_small_integers_times_a_step(branches: int, sign: int) -> None:
    weight = some_weight()
    quantizer = quantizer_of(branches, weight)
    with torch.no_grad():
        quantizer.gamma_2.mul_(sign)
    hard = quantizer.eval()(weight)
    frozen = quantizer.freeze(weight)
    assert torch.equal(hard, frozen.weight)
    for kernel, scales in zip(hard, frozen.scales, strict=True):
        parts = scales / scales.max()
        factors = [n for n in range(1, LARGEST_FACTORS[branches] + 1)
                   if torch.allclose((parts * n).round(), parts * n, atol=1e-4)]  # fmt: skip
        assert factors, scales
        step = scales.max() / factors[0]
        integers = kernel / step
        torch.testing.assert_close(integers, integers.round(), atol=1e-3, rtol=0)
        assert float(integers.abs().max()) <= LARGEST_FACTORS[branches] + 1e-3


def test_training_sees_the_same_levels() -> None:
    """At a high temperature the soft weight is the hard one, except near the thresholds."""
    weight = some_weight()
    quantizer = quantizer_of(2, weight)
    hard = quantizer.eval()(weight)
    quantizer.temperature.fill_(1e5)
    soft = quantizer.train()(weight)
    near = (soft - hard).abs() < 1e-4
    assert float(near.float().mean()) > 0.98
    free = BranchQuantizer(Precision("ternary", 2), len(weight))
    free.load_state_dict(quantizer.state_dict())
    assert float(((free.train()(weight) - hard).abs() < 1e-4).float().mean()) < 0.9


def test_every_parameter_learns() -> None:
    weight = some_weight().requires_grad_()
    quantizer = quantizer_of(2, weight.detach()).train()
    quantizer.temperature.fill_(20.0)
    (
        quantizer(weight) * torch.linspace(-1, 1, weight.numel()).reshape(weight.shape)
    ).sum().backward()
    for name, parameter in [("weight", weight), *quantizer.named_parameters()]:
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().sum()) > 0, name


def test_lowering_changes_nothing_more() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
    images = torch.rand(4, 3, 8, 8)
    rule = dbq.LayerPlan.of("2T", 8, whole_ratios=True)
    dbq.prepare(net, dbq.Plan("whole", default=rule), images)
    dbq.calibrate(net, [images])
    facts = dbq.lower(net.eval(), images, report=None).facts["agreement"]
    assert facts["moved_most"] < 1e-6
    frozen = net[0].weight_quantizer.freeze(net[0].weight)
    again = whole_ratios(frozen)
    torch.testing.assert_close(again.scales.float(), frozen.scales)


def test_a_plan_file_has_it() -> None:
    plan = dbq.Plan("whole", default=dbq.LayerPlan.of("2T", 8, whole_ratios=True))
    assert dbq.Plan.from_toml(plan.to_toml(), "plan") == plan
