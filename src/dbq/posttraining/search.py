"""search_branches: the precision of each layer's weights under a budget, by output errors.

1. The error e_l(c) of layer l with choice c (1T, 2T, 3T, 4b, 8b) is that of its output, relative, on
   the inputs the float network gives it, with codes and scales fitted to that output.
2. How much the network suffers from it is measured once for each layer, with the worst choice w in
   place: D_l = mean KL(p || p_l,w) of the outputs. Divergence grows as the squared error does, so the
   harm of the others is D_l e_l(c) / e_l(w).
3. Harms and costs add up; the choice is a multiple-choice knapsack, solved greedily (`bit_search`).

No labels and no training. What a plan costs is any function that adds up over layers, so a budget of
flash is one like a budget of C_M.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from dbq.costs.assignment import Sparsity, assign
from dbq.costs.bit_search import descend
from dbq.costs.census import LayerRow, take_census
from dbq.costs.rules import Totals
from dbq.errors import PlanError, closest
from dbq.model.modes import evaluating
from dbq.plans.plan import LayerPlan, Plan
from dbq.plans.precision import Precision
from dbq.plans.shipped import load_plan
from dbq.posttraining.agreement import BATCH, agreement, run
from dbq.posttraining.fitting.moments import Moments, outputs, patches, thinning
from dbq.quantizers.table import weight_quantizer
from dbq.support.progress import Progress, silent

CHOICES = ("1T", "2T", "3T", "4b", "8b")
BYTES = "bytes"

# What a plan costs, given the share of zeros in the weights of some layers.
CostOf = Callable[[Plan, Sparsity], float]


@dataclass(frozen=True)
class Fit:
    """A layer with one choice: its relative output error, the harm, and the zeros of each branch."""

    error: float
    harm: float
    zeros: tuple[float, ...]


@dataclass(frozen=True)
class Found:
    """The plan, what it costs, and the fits of every layer by choice."""

    plan: Plan
    cost: float
    fits: Mapping[str, Mapping[str, Fit]]

    @property
    def chosen(self) -> dict[str, str]:
        """The choice of each layer, such as 2T."""
        return {name: str(self.plan.names[name].weight) for name in self.fits}


def search_branches(
    model: nn.Module, images: Tensor, budget: float, cost_of: CostOf,
    plan: Plan | str | Path = "dbq-2t-4", choices: Sequence[str] = CHOICES,
    progress: Progress = silent,
) -> Found:  # fmt: skip
    """A plan that costs at most `budget`, with one of `choices` for every layer that `plan` quantizes.

    `model` is float and stays as it is; `images` are such as it sees. Inputs keep the plan's precision.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.Flatten(),
    ...                     nn.Linear(8 * 36, 10))
    >>> x = torch.randn(16, 3, 8, 8)
    >>> found = search_branches(net, x, 1500, paper_cost(net, x, "bytes"), "dbq-2t-4")
    >>> sorted(found.chosen), found.cost <= 1500
    (['0', '2', '4'], True)
    """
    start = load_plan(plan)
    fits = measure_fits(model, images, start, choices, progress)
    rules = _rules(model, images, start, list(fits))
    under_plan = cost_of(start, {})
    costs: dict[str, dict[str, float]] = {}
    for name, by_choice in fits.items():
        costs[name] = {}
        for choice, fit in by_choice.items():
            one = start.with_layers({name: _with_weight(rules[name], choice)})
            costs[name][choice] = cost_of(one, {name: fit.zeros}) - under_plan
    harms = {name: {c: fit.harm for c, fit in row.items()} for name, row in fits.items()}
    chosen = descend(harms, costs, budget - under_plan)
    if chosen is None:
        least = under_plan + sum(min(row.values()) for row in costs.values())
        raise PlanError(
            f"a budget of {budget:,.0f} cannot be met with {', '.join(choices)} in plan "
            f"{start.name}: the least is {least:,.0f}"
        )
    layers = {name: _with_weight(rules[name], choice) for name, choice in chosen.items()}
    found = replace(start.with_layers(layers), name=f"{start.name}-mixed")
    zeros = {name: fits[name][choice].zeros for name, choice in chosen.items()}
    return Found(found, cost_of(found, zeros), fits)


def paper_cost(model: nn.Module, images: Tensor, metric: str) -> CostOf:
    """A metric of the paper (C_C, C_S, C_R, C_M) or `bytes`, the eighth of C_M, as a cost of plans."""
    known = (*Totals.METRICS, BYTES)
    if metric not in known:
        raise PlanError(f"no metric {metric!r} to search by; {closest(metric, known)}")
    rows = take_census(model, images[:1], count_zeros=False).rows

    def cost_of(plan: Plan, zeros: Sparsity) -> float:
        # Only C_S depends on zeros.
        totals = Totals.of(assign(rows, plan, zeros if metric == "C_S" else None))
        return totals.C_M / 8 if metric == BYTES else float(getattr(totals, metric))

    return cost_of


@torch.no_grad()
def measure_fits(
    model: nn.Module, images: Tensor, plan: Plan, choices: Sequence[str], progress: Progress
) -> dict[str, dict[str, Fit]]:
    """Every searched layer with every choice; the model is left as it is."""
    layers = _layers(model, images, plan)
    rules = _rules(model, images, plan, list(layers))
    fits: dict[str, dict[str, Fit]] = {}
    with evaluating(model):
        wanted = run(model, images)
        moments = _moments(model, layers, images)
        for done, (name, layer) in enumerate(layers.items()):
            progress("search", done, len(layers))
            weight = layer.get_parameter("weight")
            kept, sums = weight.clone(), moments.pop(name)
            problem = sums.problem(kept, True, sums.uncertainty)
            found: dict[str, tuple[float, tuple[float, ...], Tensor]] = {}
            for choice in choices:
                quantizer = weight_quantizer(_with_weight(rules[name], choice), kept)
                assert quantizer is not None
                fitted = quantizer.fit(kept, problem.H)
                frozen = quantizer.eval().freeze(fitted)
                zeros = tuple(float(1 - used.double().mean()) for used in frozen.used)
                value = frozen.weight.reshape(kept.shape).to(kept)
                found[choice] = problem.relative_error(value), zeros, value
            error, _, worst = max(found.values(), key=lambda fit: fit[0])
            try:
                weight.copy_(worst)
                distance = agreement(wanted, run(model, images)).distance
            finally:
                weight.copy_(kept)
            scale = distance / error if error > 0 else 0.0
            fits[name] = {c: Fit(e, scale * e, zeros) for c, (e, zeros, _) in found.items()}
        progress("search", len(layers), len(layers))
    return fits


def _layers(model: nn.Module, images: Tensor, plan: Plan) -> dict[str, nn.Conv2d | nn.Linear]:
    """The plain layers that the plan quantizes, in the order they run; others keep its rule."""
    rows = take_census(model, images[:1], count_zeros=False).rows
    names = [row.name for row in rows if isinstance(row, LayerRow)
             and not plan.choose(row.name, row.role).weight.is_float]  # fmt: skip
    layers = {name: model.get_submodule(name) for name in names if names.count(name) == 1}
    plain = {n: m for n, m in layers.items() if type(m) in (nn.Conv2d, nn.Linear)}
    if not plain:
        raise PlanError(
            f"plan {plan.name} quantizes no plain convolution or linear layer to search"
        )
    return plain  # type: ignore[return-value]


def _rules(
    model: nn.Module, images: Tensor, plan: Plan, names: Sequence[str]
) -> dict[str, LayerPlan]:
    rows = take_census(model, images[:1], count_zeros=False).rows
    roles = {row.name: row.role for row in rows if isinstance(row, LayerRow)}
    return {name: plan.choose(name, roles[name]) for name in names}


def _with_weight(rule: LayerPlan, choice: str) -> LayerPlan:
    """The rule with this precision, by the usual method."""
    return LayerPlan(weight=Precision.parse(choice), input=rule.input)


def _moments(
    model: nn.Module, layers: Mapping[str, nn.Conv2d | nn.Linear], images: Tensor
) -> dict[str, Moments]:
    """The sums of all layers, from one pass."""
    sums = {name: Moments.nothing() for name in layers}

    def add(name: str) -> Callable[..., None]:
        def hook(layer: nn.Module, args: tuple[Tensor, ...], y: Tensor) -> None:
            kernel = layer.get_parameter("weight")[0].numel()
            every = thinning(kernel, y[0, 0].numel(), len(images))
            sums[name] += Moments.of(patches(layer, args[0], every), outputs(layer, y, every))

        return hook

    handles = [layer.register_forward_hook(add(name)) for name, layer in layers.items()]
    try:
        for batch in torch.split(images, BATCH):
            model(batch)
    finally:
        for handle in handles:
            handle.remove()
    return sums
