"""A network on disk, evaluated: the file says which recipe it came from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from dbq.data import load_data
from dbq.errors import TrainingError
from dbq.training.build import quantized_network
from dbq.training.evaluation import evaluate
from dbq.training.rundir import read_network
from dbq.training.world import World, choose_device


def evaluate_file(path: Path, data: Path | None = None) -> dict[str, Any]:
    """Top-1 and top-5 of the hard network on the whole test set, on whatever device is here."""
    tensors, recipe, facts = read_network(path)
    options = replace(recipe.data, directory=str(data)) if data else recipe.data
    world = World(0, 1, choose_device("auto"))
    _, test = load_data(options, world.device)
    model = quantized_network(recipe, len(test.classes), start=False)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        detail = " ".join(str(error).split())[:200]
        raise TrainingError(f"{path} does not fit its own recipe: {detail}") from None
    score = evaluate(model.to(world.device), test, world, recipe.machine.channels_last)
    return {
        "recipe": recipe.name,
        "plan": recipe.plan.name,
        "epoch": facts["epoch"],
        "top1": score.top1,
        "top5": score.top5,
        "images": score.images,
        "data": recipe.data.name,
        "split": test.name,
    }
