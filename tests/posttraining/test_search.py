"""Branches for each layer under a budget: harms and costs against restatements."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dbq
from dbq.costs.rules import plan_cost
from dbq.errors import PlanError
from dbq.plans.plan import LayerPlan, Plan
from dbq.posttraining.search import Fit, measure_fits, paper_cost, search_branches
from dbq.support.progress import silent
from tests.costs.test_bit_search import network

IMAGES = torch.randn(24, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def fits(net: nn.Module, *choices: str) -> dict[str, dict[str, Fit]]:
    return measure_fits(net, IMAGES, dbq.load_plan("dbq-2t-4"), choices, silent)


def test_the_worst_choice_is_measured_and_the_rest_follow_its_error() -> None:
    net = network()
    before = copy.deepcopy(net.state_dict())
    table = fits(net, "1T", "2T", "8b")
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    assert list(table) == ["0", "3", "6", "9"]
    for row in table.values():
        assert row["1T"].error > row["2T"].error > row["8b"].error
        assert row["2T"].harm / row["1T"].harm == pytest.approx(row["2T"].error / row["1T"].error)
        assert [len(row[c].zeros) for c in ("1T", "2T", "8b")] == [1, 2, 1]


def test_harm_of_a_layer_that_is_rounded_alone() -> None:
    """Two bits are -1, 0 and 1 times a scale: put into the network by hand."""
    net = network()
    row = fits(net, "2b")["9"]["2b"]
    x = net[:9](IMAGES)
    weight = net[9].weight.detach()
    H = torch.cov(x.detach().double().T, correction=0)
    H += max(0.01, H.shape[0] / len(IMAGES)) * H.diagonal().mean() * torch.eye(len(H))
    quantizer = dbq.quantizers.table.weight_quantizer(LayerPlan.of("2b"), weight)
    assert quantizer is not None
    with torch.no_grad():
        q = quantizer(quantizer.fit(weight, H.unsqueeze(0)))
        truth = F.log_softmax(net(IMAGES), 1)
        net[9].weight.copy_(q)
        by_hand = (truth.exp() * (truth - F.log_softmax(net(IMAGES), 1))).sum(1).mean()
    assert row.harm == pytest.approx(float(by_hand), rel=0.05)
    assert row.zeros[0] == pytest.approx(float((q == 0).double().mean()), abs=0.02)


@pytest.mark.parametrize("metric", ["C_M", "C_C", "C_S"])
def test_the_plan_found_keeps_its_budget(metric: str) -> None:
    net = network()
    cost_of = paper_cost(net, IMAGES, metric)
    start = dbq.load_plan("dbq-2t-4")
    assert cost_of(start, {}) == getattr(plan_cost(net, IMAGES[:1], start).total, metric)
    budget = 0.8 * cost_of(start, {})
    found = search_branches(net, IMAGES, budget, cost_of)
    assert found.cost <= budget
    assert len(set(found.chosen.values())) > 1
    if metric == "C_S":
        return
    assert found.cost == getattr(plan_cost(net, IMAGES[:1], found.plan).total, metric)
    assert all(str(rule.input) == "8b" for rule in found.plan.names.values())
    prepared = dbq.prepare(network(), found.plan, IMAGES)
    assert {row.name: row.weight for row in prepared.layers} == found.chosen


def test_a_budget_may_be_any_function_that_adds_up() -> None:
    """Here: a byte for each weight that is not ternary."""

    def cost_of(plan: Plan, zeros: object) -> float:
        sizes = {name: m.weight.numel() for name, m in network().named_children()
                 if isinstance(m, nn.Conv2d | nn.Linear)}  # fmt: skip
        return sum(
            n for name, n in sizes.items() if not plan.choose(name, "conv").weight.is_branched
        )

    found = search_branches(network(), IMAGES, 300, cost_of, "fx8-3", ("2T", "8b"))
    assert found.cost == cost_of(found.plan, {}) <= 300
    assert "8b" in found.chosen.values()


def test_what_cannot_be_is_refused() -> None:
    net = network()
    with pytest.raises(PlanError, match="the least is"):
        search_branches(net, IMAGES, 10, paper_cost(net, IMAGES, "bytes"))
    with pytest.raises(PlanError, match="C_X"):
        paper_cost(net, IMAGES, "C_X")
    with pytest.raises(PlanError, match="9Q"):
        search_branches(net, IMAGES, 1e9, paper_cost(net, IMAGES, "C_M"), choices=("9Q",))
    with pytest.raises(PlanError, match="fp"):
        search_branches(net, IMAGES, 1e9, paper_cost(net, IMAGES, "C_M"), "fp")
