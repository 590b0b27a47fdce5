"""search_plan: bits for each layer under a budget (the task of HAQ, Wang et al. 2019).

HAQ lets a reinforcement learner (DDPG) choose the bits of every layer, quantizes, fine-tunes for an
epoch, takes the accuracy as reward, and repeats that hundreds of times. We search directly instead:

1. The harm of b bits in layer l is D_l(b) = mean KL(p || p_l,b), where p are the class probabilities of
   the float network on some images and p_l,b those with only the weights of layer l at b bits.
2. Harms are assumed to add up, as all our costs do. That makes it a multiple-choice knapsack, which we
   solve greedily: starting with the most bits everywhere, repeatedly take the step with the least
   additional harm per unit of cost saved, until the budget is met.

This is deterministic and needs one forward pass for each layer and width (minutes, not days), no labels
and no training. It cannot see how well a layer recovers when it is trained. Only the bits of weights are
searched; inputs keep the plan's.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dbq.costs.assignment import assign
from dbq.costs.census import LayerRow, Row, take_census
from dbq.costs.rules import Totals
from dbq.errors import PlanError
from dbq.model.modes import evaluating
from dbq.plans.plan import LayerPlan, Plan
from dbq.plans.precision import MAX_BITS, MIN_BITS, Precision
from dbq.plans.shipped import load_plan
from dbq.quantizers.table import weight_quantizer

Metric = Literal["C_C", "C_R", "C_M"]
Table = dict[str, dict[int, float]]  # layer -> bits -> a number
Choice = TypeVar("Choice", bound=Hashable)


def search_plan(
    model: nn.Module, images: Tensor, budget: float, metric: Metric = "C_M",
    plan: Plan | str | Path = "fx8-3",
) -> Plan:  # fmt: skip
    """A plan with 2 to 8 bits for each fixed-point layer of `plan`, by name.

    `model` is float; `budget` is the share of the cost under `plan` that may be spent.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.Flatten(),
    ...                     nn.Linear(8 * 36, 10))
    >>> found = search_plan(net, torch.randn(4, 3, 8, 8), budget=0.5)
    >>> sorted(found.names)
    ['0', '2', '4']
    """
    start = load_plan(plan)
    if not 0 < budget <= 1:
        raise PlanError(f"a budget of {budget} of the cost under {start.name}: expected 0 to 1")
    if metric not in get_args(Metric):
        raise PlanError(f"no metric {metric!r} to search by: expected C_C, C_R or C_M")
    rows = take_census(model, images[:1], count_zeros=False).rows
    layers = _layers(rows, start)
    costs = _costs(rows, start, layers, metric)
    under_plan = _cost(rows, start, metric)
    fixed = under_plan - sum(costs[name][bits] for name, bits in layers.items())
    harms = harm(model, images, start, layers)
    chosen = descend(harms, costs, budget * under_plan - fixed)
    if chosen is None:
        least = (fixed + sum(min(by_bits.values()) for by_bits in costs.values())) / under_plan
        raise PlanError(
            f"{metric} of {budget:.3f} of {start.name} cannot be reached: {MIN_BITS} bits "
            f"everywhere is {least:.3f}"
        )
    return _assigned(start, rows, chosen, f"{start.name}-{metric}-{budget:g}")


def descend(
    harms: Mapping[str, Mapping[Choice, float]], costs: Mapping[str, Mapping[Choice, float]],
    budget: float,
) -> dict[str, Choice] | None:  # fmt: skip
    """A choice for each layer with a total cost of at most `budget`; None if that is impossible.

    Starts with the most expensive choices, the less harmful of equals.

    >>> harms = {"a": {8: 0.0, 4: 1.0}, "b": {8: 0.0, 4: 3.0}}
    >>> descend(harms, {"a": {8: 8, 4: 4}, "b": {8: 8, 4: 4}}, budget=12)
    {'a': 4, 'b': 8}
    """
    chosen = {
        name: max(row, key=lambda choice, name=name: (costs[name][choice], -harms[name][choice]))  # type: ignore[misc]
        for name, row in costs.items()
    }
    spent = sum(costs[name][choice] for name, choice in chosen.items())
    while spent > budget:
        steps = [
            ((harms[name][less] - harms[name][now]) / (costs[name][now] - costs[name][less]),
             name, place, less)
            for name, now in chosen.items()
            for place, less in enumerate(costs[name])
            if costs[name][less] < costs[name][now]
        ]  # fmt: skip
        if not steps:
            return None
        _, name, _, less = min(steps, key=lambda step: step[:3])
        spent -= costs[name][chosen[name]] - costs[name][less]
        chosen[name] = less
    return chosen


@torch.no_grad()
def harm(model: nn.Module, images: Tensor, plan: Plan, layers: Mapping[str, int]) -> Table:
    """D_l(b) of every layer and every number of bits up to the plan's."""
    table: Table = {name: {} for name in layers}
    roles = {row.name: row.role for row in take_census(model, images[:1]).rows
             if isinstance(row, LayerRow)}  # fmt: skip
    with evaluating(model):
        truth = F.log_softmax(model(images), dim=1)
        for name, most in layers.items():
            weight = model.get_submodule(name).get_parameter("weight")
            kept = weight.clone()
            rule = plan.choose(name, roles[name])
            for bits in range(MIN_BITS, most + 1):
                quantizer = weight_quantizer(_fixed(rule, bits), kept)
                assert quantizer is not None
                try:
                    weight.copy_(quantizer.eval()(kept))
                    narrowed = F.log_softmax(model(images), dim=1)
                finally:
                    weight.copy_(kept)
                distance = F.kl_div(narrowed, truth, reduction="batchmean", log_target=True)
                table[name][bits] = float(distance)
    return table


def _layers(rows: Iterable[Row], plan: Plan) -> dict[str, int]:
    """The plan's fixed-point layers, and their bits."""
    named = [row for row in rows if isinstance(row, LayerRow)]
    weights = {row.name: plan.choose(row.name, row.role).weight for row in named}
    layers = {name: weight.size for name, weight in weights.items() if weight.kind == "fixed"}
    if not layers:
        raise PlanError(f"plan {plan.name} has no fixed-point layer whose bits could be searched")
    return layers


def _costs(rows: tuple[Row, ...], plan: Plan, layers: Mapping[str, int], metric: Metric) -> Table:
    table: Table = {name: {} for name in layers}
    for bits in range(MIN_BITS, MAX_BITS + 1):
        chosen = {name: min(bits, most) for name, most in layers.items()}
        for row in assign(rows, _assigned(plan, rows, chosen, plan.name)):
            if row.name in layers and bits <= layers[row.name]:
                own = getattr(Totals.of([row]), metric)
                table[row.name][bits] = table[row.name].get(bits, 0) + own
    return table


def _cost(rows: tuple[Row, ...], plan: Plan, metric: Metric) -> float:
    return float(getattr(Totals.of(assign(rows, plan)), metric))


def _fixed(rule: LayerPlan, bits: int) -> LayerPlan:
    return replace(rule, weight=Precision("fixed", bits))


def _assigned(plan: Plan, rows: Iterable[Row], bits: Mapping[str, int], name: str) -> Plan:
    """`plan` with these bits, layer by layer."""
    layers = [row for row in rows if isinstance(row, LayerRow) and row.name in bits]
    rules = {row.name: _fixed(plan.choose(row.name, row.role), bits[row.name]) for row in layers}
    return replace(plan.with_layers(rules), name=name)
