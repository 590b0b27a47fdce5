"""A network on disk, evaluated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from dbq.data.table import load_data
from dbq.training.evaluation import evaluate
from dbq.training.networks import quantized_network
from dbq.training.processes.world import World, choose_device
from dbq.training.recipe import Recipe
from dbq.training.record.saved import saved_network


def evaluate_file(path: Path, recipe: Recipe | None = None, data: str = "") -> dict[str, Any]:
    """Top-1 and top-5 of the hard network on the whole test set, on whatever device is here.

    The directory or network of a run says itself what it is. Weights from elsewhere need a recipe:
    its network takes them, quantized by its plan if they are float.
    """
    world = World(0, 1, choose_device("auto"))
    model, epoch = None, None
    if recipe is None:
        model, recipe, facts = saved_network(path)
        epoch = facts["epoch"]
    recipe = replace(recipe, data=replace(recipe.data, directory=data or recipe.data.directory))
    _, test = load_data(recipe.data, world.device)
    if model is None:
        recipe = replace(recipe, model=replace(recipe.model, weights=str(path)))
        model = quantized_network(recipe, len(test.classes))
    score = evaluate(model.to(world.device), test, world, recipe.machine.channels_last)
    return {
        "network": str(path),
        "recipe": recipe.name,
        "plan": recipe.plan.name,
        "epoch": epoch,
        "top1": score.top1,
        "top5": score.top5,
        "images": score.images,
        "data": recipe.data.name,
        "split": test.name,
    }
