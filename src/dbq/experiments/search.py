"""Searching the number of bits of each layer of a recipe's network, under a budget."""

from __future__ import annotations

import torch

from dbq.costs.bit_search import search_plan
from dbq.data.table import load_data
from dbq.errors import RecipeError
from dbq.plans.plan import Plan
from dbq.training.networks import quantized_network, some_images
from dbq.training.recipe import Recipe


def search_bits(recipe: Recipe, images: int, budget: float, metric: str, plan: str) -> Plan:
    """`dbq.search_plan` on a recipe's float network and some of its training images."""
    if not recipe.plan.is_float:
        raise RecipeError(
            f"recipe {recipe.name} trains a quantized network; the search needs a float one"
        )
    train_split, test_split = load_data(recipe.data, torch.device("cpu"))
    model = quantized_network(recipe, len(test_split.classes))
    chosen, draw = some_images(train_split, images, recipe.train.seed)
    batch = next(iter(train_split.batches([chosen], draw)))
    return search_plan(model, batch.images, budget, metric, plan)  # type: ignore[arg-type]
