"""What every method must do: derived from the table, so that a new one is tested the day it exists."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dbq
from dbq.costs.rules import plan_cost
from dbq.deploy import reference
from dbq.errors import LoweringError
from dbq.experiments.comparison.methods import precisions
from dbq.plans.plan import CLIPS, LayerPlan, Plan
from dbq.plans.precision import Precision
from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.frozen import FixedPoint, Levels
from dbq.quantizers.table import INPUT_QUANTIZERS, QUANTIZERS
from tests.quantizers.contract import CHECKS, Make

IMAGES = torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(5))
LABELS = torch.arange(16) % 10


class Case(NamedTuple):
    method: str
    precision: str
    option: str = ""  # a yes-or-no option that is not at its default

    def __str__(self) -> str:
        return " ".join(filter(None, self))

    @property
    def options(self) -> dict[str, bool]:
        defaults = inspect.signature(QUANTIZERS[self.method][1]).parameters
        return {self.option: not defaults[self.option].default} if self.option else {}

    def make(self, kernels: int) -> WeightQuantizer:
        make = QUANTIZERS[self.method][1]
        return make(Precision.parse(self.precision), kernels, **self.options)

    @property
    def plan(self) -> Plan:
        chosen = LayerPlan.of(self.precision, 8, self.method, **self.options)
        return Plan("mine", default=chosen)


def cases() -> list[Case]:
    """Every method in its sizes (of bits, the least, one between and the most) and its options."""
    found = []
    for method, (kind, make) in QUANTIZERS.items():
        sizes = ["2b", "4b", "8b"] if kind == "fixed" else precisions(method)
        parameters = inspect.signature(make).parameters.values()
        found += [Case(method, size) for size in sizes]
        found += [Case(method, sizes[-1], p.name) for p in parameters if type(p.default) is bool]
    return found


CASES = cases()
all_cases = pytest.mark.parametrize("case", CASES, ids=str)


@all_cases
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(check: Callable[[Make], None], case: Case) -> None:
    make: Make = case.make
    check(make)


# Old checkpoints load only as long as these names stay.
STATE = {
    "dbq": {"alpha", "gamma_1", "gamma_2", "t", "temperature"},
    "lqnet": {"basis"},
    "ttq": {"W_p", "W_n", "units"},
    "lsq": {"step"},
    "qnet": {"alpha", "beta", "thresholds", "temperature"},
    "rq": {"log_alpha", "log_sigma"},
    "mixed": {"d", "q_max"},
}
INPUT_STATE = {"range": {"clip.limit"}, "pact": {"clip.alpha"}, "lsq": {"step"}, "lqnet": {"basis"}}


@all_cases
def test_names_in_a_state_dict_stay(case: Case) -> None:
    assert set(case.make(3).state_dict()) == STATE.get(case.method, set())


@pytest.mark.parametrize("rule", CLIPS)
def test_names_in_a_state_dict_of_inputs_stay(rule: str) -> None:
    net = network()
    dbq.prepare(net, Plan("mine", default=LayerPlan.of(8, 8), clip=rule), IMAGES)  # type: ignore[arg-type]
    assert set(net[0].input_quantizer.state_dict()) == {"clip.limit"}, "the image has a range"
    assert set(net[3].input_quantizer.state_dict()) == INPUT_STATE.get(rule, set())


# -- in a network -----------------------------------------------------------------------------------


def network() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 12, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10),
    )  # fmt: skip


def prepared(case: Case) -> nn.Sequential:
    net = network()
    net(IMAGES)
    dbq.prepare(net, case.plan, IMAGES)
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


@all_cases
def test_state_is_saved_and_resumed(case: Case) -> None:
    net = prepared(case)
    for seed in range(3):
        step(net, seed)
    other = prepared(case)
    other.load_state_dict(copy.deepcopy(net.state_dict()))
    assert torch.equal(other.eval()(IMAGES), net.eval()(IMAGES))
    assert step(net, 9) == step(other, 9)
    assert torch.equal(other.eval()(IMAGES), net.eval()(IMAGES))


@all_cases
def test_costs_follow_the_precision(case: Case) -> None:
    net = prepared(case)
    total = dbq.cost(net, IMAGES).total
    if net[0].weight_quantizer.learned_bits() is None:
        dense = plan_cost(network(), IMAGES, case.plan).total
        assert (total.C_C, total.C_M) == (dense.C_C, dense.C_M)
    assert total.C_S <= total.C_C


@all_cases
def test_branches_and_fixed_point_deploy(case: Case) -> None:
    """The integer program computes what the network does; what the engine cannot run is refused."""
    net = prepared(case)
    dbq.calibrate(net, [IMAGES])
    frozen = net[0].weight_quantizer.freeze(net[0].weight)
    has_zero_point = isinstance(frozen, FixedPoint) and frozen.zeros is not None
    if isinstance(frozen, Levels) or has_zero_point:
        with pytest.raises(LoweringError, match=r"^0"):
            dbq.lower(net, IMAGES)
        return
    images = (torch.rand(4, 8, 8, 3, generator=torch.Generator().manual_seed(0)) * 255).byte()
    program = dbq.lower(net, IMAGES, whole_ratios=False)
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
    assert calibrated[3].input_quantizer.has_seen, "seen without being trained"
    if net[3].input_quantizer.grid() is None:
        with pytest.raises(LoweringError, match=r"^3"):
            dbq.lower(net, IMAGES)
    else:
        assert dbq.lower(net, IMAGES).operations


def test_the_plan_knows_every_rule() -> None:
    assert set(CLIPS) == {"bn", "relu6", "range", *INPUT_QUANTIZERS}
