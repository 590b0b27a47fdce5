"""Exporting a run of `dbq train` to a program, and evaluating a .dbq file on its data set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dbq.data.options import DataOptions
from dbq.data.split import Split
from dbq.data.table import DATASETS, load_data, normalisation, resize_length
from dbq.deploy.engine import Net, load
from dbq.deploy.program import Program
from dbq.errors import DataError, LoweringError, UserCodeError
from dbq.lowering.lower import lower
from dbq.support.facts import fact
from dbq.support.imports import is_function_name
from dbq.training.evaluation import evaluate
from dbq.training.networks import example_image
from dbq.training.processes.world import World
from dbq.training.recipe import Recipe
from dbq.training.record.saved import saved_network

EXAMPLES = 16  # images of the test set on which the program is compared with the network


def program_of_run(path: Path, data: str = "") -> Program:
    """The program of the network in a run's directory, or of one of its networks.

    It is compared with the network on the first images of the test set, or on noise if the data set is
    not available; the result is among the program's facts.
    """
    model, recipe, metadata = saved_network(path)
    if recipe.plan.is_float:
        raise LoweringError(
            f"{path} is a float network ({recipe.name}): train one with a plan such as dbq-2t-4"
        )
    recipe = replace(recipe, data=replace(recipe.data, directory=data or recipe.data.directory))
    examples, test = _examples(recipe)
    mean, std = normalisation(recipe.data)
    name = f"{recipe.model.name} {recipe.plan.name}"
    program = lower(model, examples, mean=mean, std=std, name=name, report=None)
    origin = {
        "recipe": recipe.name,
        "plan": recipe.plan.name,
        "data": recipe.data.name,
        "compared_on": "test images" if test else "noise",
        "epoch": metadata["epoch"],
        # Older files do not record their names.
        "classes": metadata.get("class_names") or (list(test.classes) if test else []),
    }
    if length := test.resize_length if test else resize_length(recipe.data):
        origin["resize_length"] = length
    if recipe.data.split:
        origin |= {"split": recipe.data.split, "split_seed": recipe.data.split_seed}
    return program.with_facts(**origin)


def _examples(recipe: Recipe) -> tuple[Tensor, Split | None]:
    """Inputs to compare on, and the test set they come from if it is available."""
    try:
        _, test = load_data(recipe.data)
    except (DataError, UserCodeError):
        shape = (EXAMPLES, *example_image(recipe).shape[1:])
        return torch.randn(shape, generator=torch.Generator().manual_seed(0)), None
    batch = next(iter(test.batches([torch.arange(min(EXAMPLES, len(test)))])))
    return batch.images, test


def evaluate_deployed(path: Path, data: str = "", threads: int = 1) -> dict[str, Any]:
    """Top-1 and top-5 of a .dbq file, run by the native engine on a whole test set."""
    with load(path, threads=threads) as net:
        facts = net.facts
        name = fact(facts, "data", str, "")
        if is_function_name(name):
            raise DataError(
                f"{path} is for data made by code, {name}, which a file must not import: evaluate the "
                "run that it was exported from"
            )
        if name not in DATASETS:
            raise DataError(
                f"{path} does not name its data set: give --data a folder that has a folder of "
                "images for each class"
            )
        if len(net.outputs) > 1:
            raise DataError(
                f"{path} has {len(net.outputs)} outputs, expected one: logits of classes"
            )
        options = DataOptions(
            name, data, image_size=net.input_shape[0], split=fact(facts, "split", float, 0.0),
            split_seed=fact(facts, "split_seed", int, 0),
        )  # fmt: skip
        _, test = load_data(options)
        score = evaluate(_Deployed(net), test, World(0, 1, torch.device("cpu")), raw=True)
        return {
            "network": str(path),
            "recipe": fact(facts, "recipe", str, ""),
            "plan": fact(facts, "plan", str, ""),
            "epoch": None if facts.get("epoch") is None else fact(facts, "epoch", int, 0),
            "top1": score.top1,
            "top5": score.top5,
            "images": score.images,
            "data": name,
            "split": test.name,
            "engine": f"libdbq, {net.isa}",
        }


class _Deployed(nn.Module):
    """A loaded file in the place of a network: pixels [N, C, H, W] in, logits out."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.from_numpy(self.net(pixels.permute(0, 2, 3, 1).contiguous().numpy()))
