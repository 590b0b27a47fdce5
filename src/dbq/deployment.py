"""From a run of `dbq train` to a program, and a .dbq file on a data set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dbq.data import DATASETS, load_data, normalisation
from dbq.data_options import DataOptions
from dbq.errors import DataError, LoweringError
from dbq.lowering import denormalise, lower
from dbq.models import put_state
from dbq.program import Program
from dbq.recipe import Recipe
from dbq.runtime.native import load
from dbq.training.build import example_image, quantized_network
from dbq.training.rundir import read_network

EXAMPLES = 16  # images of the test set on which the program is compared with the network
BATCH = 250


def program_of_run(path: Path, data: str = "") -> Program:
    """The program of the network in a run's directory, or of one of its networks.

    It is compared with the network on the first images of the test set, or on noise where the data set
    is not at hand; the result is among the program's facts.
    """
    tensors, recipe, facts = read_network(path)
    if recipe.plan.is_float:
        raise LoweringError(
            f"{path} is a float network ({recipe.name}): train one with a plan such as dbq-2t-4 first"
        )
    recipe = replace(recipe, data=replace(recipe.data, directory=data or recipe.data.directory))
    examples, classes = _examples(recipe)
    model = quantized_network(recipe, _class_count(tensors), start=False)
    put_state(model, tensors, str(path))
    mean, std = normalisation(recipe.data)
    name = f"{recipe.model.name} {recipe.plan.name}"
    program = lower(model, examples, mean=mean, std=std, name=name, report=None)
    origin = {
        "recipe": recipe.name,
        "plan": recipe.plan.name,
        "data": recipe.data.name,
        "compared_on": "test images" if classes else "noise",
        "epoch": facts["epoch"],
        "classes": classes,
    }
    return replace(program, facts={**program.facts, **origin})


def _examples(recipe: Recipe) -> tuple[Tensor, list[str]]:
    """Inputs to compare on, and the names of the classes if the data set is here."""
    try:
        _, test = load_data(recipe.data)
    except DataError:
        shape = (EXAMPLES, *example_image(recipe).shape[1:])
        return torch.randn(shape, generator=torch.Generator().manual_seed(0)), []
    batch = next(iter(test.batches([torch.arange(min(EXAMPLES, len(test)))])))
    return batch.images, list(test.classes)


def _class_count(tensors: dict[str, Tensor]) -> int:
    """Rows of the last linear layer."""
    linear = [t for key, t in tensors.items() if key.endswith(".weight") and t.ndim == 2]
    return len(linear[-1])


def evaluate_deployed(path: Path, data: str = "", threads: int = 1) -> dict[str, Any]:
    """Top-1 and top-5 of a .dbq file, run by the native engine on a whole test set."""
    with load(path, threads=threads) as net:
        facts = net.facts
        if facts.get("data") not in DATASETS:
            raise DataError(
                f"{path} does not say which data set it is for; expected a file of `dbq export RUN`"
            )
        mean, std = tuple(facts["mean"]), tuple(facts["std"])
        options = DataOptions(
            facts["data"], data, image_size=net.input_shape[0], mean=mean, std=std
        )
        _, test = load_data(options)
        first, five, count = 0, 0, 0
        for batch in test.batches(torch.split(torch.arange(len(test)), BATCH)):
            logits = net(denormalise(batch.images, mean, std))
            hits = _ranks(logits, batch.labels.numpy())
            first, five, count = first + int(hits[0]), five + int(hits[1]), count + len(logits)
        return {
            "network": str(path),
            "recipe": facts.get("recipe", ""),
            "plan": facts.get("plan", ""),
            "epoch": facts.get("epoch"),
            "top1": 100 * first / count,
            "top5": 100 * five / count,
            "images": count,
            "data": facts["data"],
            "split": test.name,
            "engine": f"libdbq, {net.isa}",
        }


def _ranks(logits: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many labels are the largest logit, and how many among the five largest."""
    order = np.argsort(-logits, axis=1, kind="stable")
    hits = order == labels[:, None]
    return np.array([hits[:, :1].sum(), hits[:, :5].sum()])
