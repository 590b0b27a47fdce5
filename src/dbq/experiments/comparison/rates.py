"""A learning rate for each contestant of a comparison.

One rate for all favours the method it was chosen with. Each contestant tries the same few instead, in
shorter runs that train on nine tenths of the training images and are tested on the others: the test set
decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from dbq.errors import RecipeError
from dbq.training.recipe import Recipe
from dbq.training.run import train
from dbq.training.watchers.watching import Watcher

TRIALS = "trials"  # the folder of these runs
HELD_OUT = 0.1  # of the training images

Watch = Callable[[str], tuple[Watcher, ...]]  # the watchers of a run, by its name


def parse_rates(text: str) -> tuple[float, ...]:
    """Learning rates from a list with commas; none from an empty one.

    >>> parse_rates("0.003, 0.01")
    (0.003, 0.01)
    """
    try:
        rates = tuple(float(part) for part in text.split(",")) if text.strip() else ()
    except ValueError:
        rates = (0.0,)
    if not all(0 < rate < math.inf for rate in rates):
        raise RecipeError(f"rates {text!r}: expected numbers over 0 with commas between")
    return rates


def with_best_rate(recipe: Recipe, rates: Sequence[float], out: Path, watch: Watch) -> Recipe:
    """The recipe with the best of these learning rates, the first of equals.

    Each trial is a run below `out`, of half the epochs.
    """
    if not rates:
        return recipe
    epochs = max(1, recipe.train.epochs // 2)
    warmup = min(recipe.train.warmup, epochs)
    data = replace(recipe.data, held_out=HELD_OUT)
    top1 = {}
    for rate in rates:
        tried = replace(recipe.train, rate=rate, epochs=epochs, warmup=warmup)
        trial = replace(recipe, name=f"{recipe.name} rate {rate:g}", data=data, train=tried)
        top1[rate] = train(trial, out / f"{rate:g}", resume=True, watchers=watch(trial.name)).top1
    return replace(recipe, train=replace(recipe.train, rate=max(top1, key=top1.__getitem__)))
