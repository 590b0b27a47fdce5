"""Networks on disk: rebuilt, and evaluated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from dbq.data.table import load_data
from dbq.networks.weights import put_state
from dbq.support.imports import announce_code
from dbq.training.evaluation import evaluate
from dbq.training.networks import class_count, empty_network, quantized_network
from dbq.training.processes.world import World, choose_device
from dbq.training.recipe import Recipe
from dbq.training.record.rundir import read_network


def saved_network(path: Path) -> tuple[nn.Module, Recipe, dict[str, Any]]:
    """A network of a run, its recipe and metadata; `path` is the run's directory or a network file.

    If the network or the data is made by a function of the user's, its code is imported and runs, which
    is said on stderr.
    """
    tensors, recipe, metadata = read_network(path)
    announce_code(path, *recipe.code)
    # Older files do not record the number of classes.
    classes = metadata.get("classes") or class_count(recipe, tensors)
    model = empty_network(recipe, classes)
    put_state(model, tensors, str(path))
    return model.eval(), recipe, metadata


def evaluate_file(path: Path, recipe: Recipe | None = None, data: str = "") -> dict[str, Any]:
    """Top-1 and top-5 of the hard network on the whole test set, on the best device available.

    A run's directory and network files carry their recipe. Weights from elsewhere need one: its
    network takes them, quantized by its plan if they are float.
    """
    world = World(0, 1, choose_device("auto"))
    model, epoch = None, None
    if recipe is None:
        model, recipe, metadata = saved_network(path)
        epoch = metadata["epoch"]
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
