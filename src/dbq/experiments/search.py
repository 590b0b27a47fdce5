"""Searching the precision of each layer of a recipe's network, under a budget."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dbq.costs.bit_search import search_plan
from dbq.data.table import load_data
from dbq.deploy.csource.exact.compact import compacted
from dbq.deploy.csource.footprint import Footprint, footprint
from dbq.errors import PlanError, RecipeError
from dbq.lowering.lower import lower
from dbq.model.calibration import calibrate
from dbq.model.preparation import prepare
from dbq.plans.plan import Plan
from dbq.plans.shipped import load_plan
from dbq.posttraining.search import BYTES, Found, paper_cost, search_branches
from dbq.support.progress import Progress, silent
from dbq.training.networks import quantized_network, some_images
from dbq.training.recipe import Recipe

TRIES, MARGIN = (
    6,
    1.05,
)  # how often a budget of weights is corrected, and by how much more than needed


def search_bits(recipe: Recipe, images: int, budget: float, metric: str, plan: str) -> Plan:
    """`dbq.search_plan` on a recipe's float network and some of its training images."""
    model, batch = _network(recipe, images)
    return search_plan(model, batch, budget, metric, plan)  # type: ignore[arg-type]


def search_choices(
    recipe: Recipe, images: int, budget: float, metric: str, plan: str, choices: Sequence[str],
    progress: Progress = silent,
) -> Found:  # fmt: skip
    """`search_branches` on the same; a budget up to 1 is a share of the cost under `plan`.

    The share is of the cost without zeros: how many there will be is not known of every layer.
    """
    if not budget > 0:
        raise PlanError(f"a budget of {budget}: expected a share of the cost, or the cost itself")
    model, batch = _network(recipe, images)
    cost_of = paper_cost(model, batch, metric)
    most = budget * cost_of(load_plan(plan), {}) if budget <= 1 else budget
    return search_branches(model, batch, most, cost_of, plan, choices, progress)


def search_device(
    recipe: Recipe, images: int, flash: int, ram: int | None, plan: str, choices: Sequence[str],
    progress: Progress = silent,
) -> tuple[Found, Footprint]:  # fmt: skip
    """The best plan whose network, as C source, takes at most `flash` and `ram` bytes; what it takes.

    What C source takes beside the weights (code, scales, descriptions) is measured on the network
    that the plan gives; then the budget of the weights is corrected, at most TRIES times.
    """
    model, batch = _network(recipe, images)
    cost_of = paper_cost(model, batch, BYTES)
    budget, smallest = float(flash), None
    for _ in range(TRIES):
        found = search_branches(model, batch, budget, cost_of, plan, choices, progress)
        size = _footprint(model, found.plan, batch, ram)
        if ram is not None and size.arena > ram:
            size.require(None, ram)
        if size.flash <= flash:
            return found, size
        smallest = size
        budget = found.cost - (size.flash - flash) * MARGIN
        if budget <= 0:
            break
    assert smallest is not None
    smallest.require(flash, None)
    raise AssertionError("a network over its budget is refused")


def _footprint(model: nn.Module, plan: Plan, images: Tensor, ram: int | None) -> Footprint:
    """Flash and RAM of the network with this plan, as `prepare` quantizes it.

    Fitted codes take as many bytes, but may leave other channels dead, which are not stored.
    """
    prepared = copy.deepcopy(model)
    prepare(prepared, plan, images[:1])
    calibrate(prepared, [images])
    return footprint(compacted(lower(prepared.eval(), images[:8], report=None)), ram)


def _network(recipe: Recipe, images: int) -> tuple[nn.Module, Tensor]:
    """The float network, and some training images."""
    if not recipe.plan.is_float:
        raise RecipeError(
            f"recipe {recipe.name} trains a quantized network; the search needs a float one"
        )
    train_split, test_split = load_data(recipe.data, torch.device("cpu"))
    model = quantized_network(recipe, len(test_split.classes))
    chosen, draw = some_images(train_split, images, recipe.train.seed)
    return model, next(iter(train_split.batches([chosen], draw))).images
