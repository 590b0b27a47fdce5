"""What every method must do: derived from the table, so that a new one is tested the day it exists."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dbq
from dbq.deploy import reference
from dbq.errors import LoweringError, WeightsError
from dbq.experiments.comparison.comparison import precisions
from dbq.plans.plan import CLIPS, LayerPlan, Plan
from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.dbq.branch import recompose
from dbq.quantizers.levels import LevelQuantizer, look_up
from dbq.quantizers.table import INPUT_QUANTIZERS, QUANTIZERS, weight_quantizer

CASES = [(method, precision) for method in QUANTIZERS for precision in precisions(method)]
IMAGES = torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(5))
LABELS = torch.arange(16) % 10


def weights(dtype: torch.dtype = torch.float32) -> Tensor:
    """Ordinary kernels, one of zeros, one of equal weights."""
    torch.manual_seed(11)
    w = torch.randn(6, 4, 3, 3, dtype=dtype) / 6
    w[1], w[2] = 0, 0.2
    return w


def quantizer_of(method: str, precision: str, weight: Tensor) -> WeightQuantizer:
    made = weight_quantizer(LayerPlan.of(precision, method=method), weight)
    assert made is not None
    return made


def decoded(quantizer: WeightQuantizer, weight: Tensor) -> Tensor:
    codes = quantizer.codes(weight)
    assert codes.dtype == torch.int8
    if isinstance(quantizer, LevelQuantizer):
        levels = quantizer.levels(weight)
        assert levels.shape[1] <= 2**quantizer.precision.size
        return look_up(codes, levels)
    scales = quantizer.scales(weight)
    assert scales.shape == (len(weight), len(codes))
    assert (scales >= 0).all()
    if quantizer.precision.is_branched:
        assert set(codes.unique().tolist()) <= {-1, 0, 1}
    return recompose(codes, scales)


@pytest.mark.parametrize(("method", "precision"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_eval_is_what_the_codes_say(method: str, precision: str, dtype: torch.dtype) -> None:
    w = weights(dtype)
    quantizer = quantizer_of(method, precision, w).eval()
    hard = quantizer(w)
    assert hard.dtype == dtype
    assert hard.shape == w.shape
    assert torch.equal(hard, decoded(quantizer, w))
    assert torch.equal(hard, quantizer(w)), "eval() leaves no trace"


@pytest.mark.parametrize(("method", "precision"), CASES)
def test_gradients_are_finite_and_reach_the_weight(method: str, precision: str) -> None:
    w = weights().requires_grad_()
    quantizer = quantizer_of(method, precision, w).train()
    quantizer(w).square().sum().backward()
    assert w.grad is not None
    assert w.grad[0].abs().sum() > 0
    for parameter in (w, *quantizer.parameters()):
        assert parameter.grad is None or torch.isfinite(parameter.grad).all()


@pytest.mark.parametrize("method", QUANTIZERS)
def test_weights_that_are_no_numbers_are_refused(method: str) -> None:
    w = weights()
    w[3, 0, 0, 0] = torch.nan
    with pytest.raises(WeightsError, match="kernel 3"):
        quantizer_of(method, precisions(method)[-1], w)


# -- in a network -----------------------------------------------------------------------------------


def network() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 12, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10),
    )  # fmt: skip


def prepared(method: str, precision: str) -> nn.Sequential:
    net = network()
    net(IMAGES)
    plan = Plan("mine", default=LayerPlan.of(precision, 8, method))
    dbq.prepare(net, plan, IMAGES)
    return net


def step(net: nn.Module, seed: int) -> float:
    torch.manual_seed(seed)
    dbq.set_progress(net, 0.1)
    net.train()
    optimizer = torch.optim.SGD(dbq.param_groups(net, 1e-4), lr=0.02)
    loss = F.cross_entropy(net(IMAGES), LABELS)
    loss.backward()
    optimizer.step()
    net.zero_grad()
    return float(loss.detach())


@pytest.mark.parametrize(("method", "precision"), CASES)
def test_state_is_saved_and_resumed(method: str, precision: str) -> None:
    net = prepared(method, precision)
    for seed in range(3):
        step(net, seed)
    other = prepared(method, precision)
    other.load_state_dict(copy.deepcopy(net.state_dict()))
    assert torch.equal(other.eval()(IMAGES), net.eval()(IMAGES))
    assert step(net, 9) == step(other, 9)
    assert torch.equal(other.eval()(IMAGES), net.eval()(IMAGES))


@pytest.mark.parametrize(("method", "precision"), CASES)
def test_costs_follow_the_precision(method: str, precision: str) -> None:
    net = prepared(method, precision)
    found = dbq.cost(net, IMAGES)
    plan = Plan("mine", default=LayerPlan.of(precision, 8, method))
    if method != "mixed":  # whose precision is what it learned
        dense = dbq.costs.plan_cost(network(), IMAGES, plan).total
        assert (found.total.C_C, found.total.C_M) == (dense.C_C, dense.C_M)
    assert found.total.C_S <= found.total.C_C


@pytest.mark.parametrize(("method", "precision"), CASES)
def test_branches_and_fixed_point_deploy(method: str, precision: str) -> None:
    """The integer program computes what the network does; `lower` itself refuses more than a code."""
    net = prepared(method, precision)
    dbq.calibrate(net, [IMAGES])
    quantizer = net[0].weight_quantizer
    if isinstance(quantizer, LevelQuantizer) or (method == "iao"):
        with pytest.raises(LoweringError, match=r"^0"):
            dbq.lower(net, IMAGES)
        return
    images = (torch.rand(4, 8, 8, 3, generator=torch.Generator().manual_seed(0)) * 255).byte()
    program = dbq.lower(net, IMAGES)
    logits = torch.from_numpy(reference.run(program, images.numpy()))
    expected = net.eval()(images.permute(0, 3, 1, 2).float() / 255).detach()
    assert torch.allclose(logits.float(), expected, atol=0.05 * float(expected.abs().max()))


@pytest.mark.parametrize("rule", INPUT_QUANTIZERS)
def test_rules_for_activations_train_and_are_resumed(rule: str) -> None:
    def made() -> nn.Sequential:
        net = network()
        plan = Plan("mine", default=LayerPlan.of(8, 4), clip=rule)  # type: ignore[arg-type]
        summary = dbq.prepare(net, plan, IMAGES)
        assert [row.clip for row in summary.layers] == ["±range", rule, rule, rule]
        return net

    net = made()
    before = copy.deepcopy(net[3].input_quantizer.state_dict())
    for seed in range(4):
        step(net, seed)
    learned = net[3].input_quantizer.state_dict()
    assert all(not torch.equal(before[key], learned[key]) for key in before)
    other = made()
    other.load_state_dict(copy.deepcopy(net.state_dict()))
    assert step(net, 9) == step(other, 9)
    calibrated = made()
    dbq.calibrate(calibrated, [IMAGES[:8], IMAGES[8:]])
    known = calibrated[3].input_quantizer.state_dict()
    assert all(value.any() for value in known.values()), "seen without being trained"
    if rule == "lqnet":
        with pytest.raises(LoweringError, match="levels of a table"):
            dbq.lower(net, IMAGES)
    else:
        assert dbq.lower(net, IMAGES).operations


def test_the_plan_knows_every_rule() -> None:
    assert set(CLIPS) == {"bn", "relu6", "range", *INPUT_QUANTIZERS}
