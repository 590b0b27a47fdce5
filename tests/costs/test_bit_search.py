"""The search for bits: the knapsack against all its solutions, harms and costs against restatements."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dbq
from dbq.costs.bit_search import descend, harm, search_plan
from dbq.costs.rules import plan_cost
from dbq.errors import PlanError
from dbq.plans.plan import LayerPlan
from dbq.plans.shipped import PLANS


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 24, 1), nn.BatchNorm2d(24),
        nn.ReLU(), nn.Conv2d(24, 8, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10),
    ).eval()  # fmt: skip


IMAGES = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def test_descent_is_as_good_as_the_best_of_all_choices_where_harms_are_convex() -> None:
    """Along a convex curve greedy is optimal up to its last step: no better choice costs as little
    as the one before that step."""
    generator = torch.Generator().manual_seed(0)
    bits = [2, 3, 4, 5]
    for _ in range(20):
        weights = torch.randint(1, 9, (4,), generator=generator).tolist()
        sizes = torch.rand(4, generator=generator).tolist()
        costs = {str(i): {b: float(w * b) for b in bits} for i, w in enumerate(weights)}
        harms = {str(i): {b: s * 4.0**-b for b in bits} for i, s in enumerate(sizes)}
        budget = 3.3 * sum(weights)
        chosen = descend(harms, costs, budget)
        assert chosen is not None

        def total(table: dict[str, dict[int, float]], pick: tuple[int, ...]) -> float:
            return sum(table[str(i)][b] for i, b in enumerate(pick))

        ours = tuple(chosen[str(i)] for i in range(4))
        assert total(costs, ours) <= budget
        affordable = [
            p for p in itertools.product(bits, repeat=4) if total(costs, p) <= total(costs, ours)
        ]
        assert total(harms, ours) == pytest.approx(min(total(harms, p) for p in affordable))


def test_harm_is_the_divergence_of_a_network_with_one_layer_quantized() -> None:
    net = network()
    before = copy.deepcopy(net.state_dict())
    table = harm(net, IMAGES, PLANS["fx8-3"], {"0": 8, "3": 8})
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    with torch.no_grad():
        p = net(IMAGES).softmax(1)
        for bits in (2, 5):
            other = network()
            plan = dbq.Plan("one", names={"3": LayerPlan.of(bits)})
            dbq.prepare(other, plan, IMAGES)
            q = other.eval()(IMAGES).softmax(1)
            by_hand = float((p * (p / q).log()).sum(1).mean())
            # differences of float32 logarithms of probabilities: a few ulp of 1 each
            assert table["3"][bits] == pytest.approx(by_hand, abs=1e-5)
    assert table["3"][2] > table["3"][4] > table["3"][8]


@pytest.mark.parametrize("metric", ["C_C", "C_R", "C_M"])
def test_the_plan_found_keeps_its_budget_and_beats_the_same_bits_everywhere(metric: str) -> None:
    net = network()
    found = search_plan(net, IMAGES, 0.75, metric)  # type: ignore[arg-type]
    most = getattr(plan_cost(net, IMAGES[:1], "fx8-3").total, metric)
    assert getattr(plan_cost(net, IMAGES[:1], found).total, metric) <= 0.75 * most
    assert {rule.input.size for rule in found.names.values()} == {8}
    assert len({rule.weight.size for rule in found.names.values()}) > 1, "mixed precision"
    assert dbq.prepare(network(), found, IMAGES).layers[0].weight.endswith("b")
    with torch.no_grad():
        truth = F.log_softmax(net(IMAGES), 1)

    def divergence(plan: dbq.Plan) -> float:
        """Of the weights alone."""
        other = network()
        names = {name: LayerPlan(rule.weight) for name, rule in plan.names.items()}
        dbq.prepare(other, dbq.Plan("weights", names=names), IMAGES)
        with torch.no_grad():
            return float(F.kl_div(F.log_softmax(other.eval()(IMAGES), 1), truth, reduction="batchmean",
                                  log_target=True))  # fmt: skip

    equal = {name: LayerPlan.of(bits, 8) for name in found.names for bits in [2]}
    for bits in range(2, 9):
        uniform = dbq.Plan("u", names={name: LayerPlan.of(bits, 8) for name in found.names})
        if getattr(plan_cost(net, IMAGES[:1], uniform).total, metric) <= 0.75 * most:
            equal = dict(uniform.names)
    assert divergence(found) < divergence(dbq.Plan("equal", names=equal))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(PlanError, match="C_M"):
        search_plan(network(), IMAGES, 0.05)
    with pytest.raises(PlanError, match="budget"):
        search_plan(network(), IMAGES, 40)
    with pytest.raises(PlanError, match="C_S"):
        search_plan(network(), IMAGES, 0.5, "C_S")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="fixed-point"):
        search_plan(network(), IMAGES, 0.5, plan="dbq-2t-1")
