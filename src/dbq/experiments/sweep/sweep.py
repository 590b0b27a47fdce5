"""Sweep: a grid over recipe keys as frozen data, from TOML, and the runs it consists of.

Each point of `shared` has one float baseline, trained by the recipe `float`. Each combined point of
`shared` and `grid` is a run of `recipe` for every seed, started from the baseline of its shared part.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dbq.errors import RecipeError
from dbq.plans.plan import Option
from dbq.support import toml
from dbq.training.recipe import Recipe, load_recipe, recipe_names

SHIPPED = Path(__file__).parent / "sweeps"
SEED, WEIGHTS = "train.seed", "model.weights"
OF_TERNARY_LAYERS = {"quantize.precision", "quantize.method"}

Values = Mapping[str, Option]  # of recipe keys


@dataclass(frozen=True)
class Run:
    """One training of a sweep. Its name is also the name of its directory."""

    name: str
    values: Values
    seed: int
    recipe: Recipe
    baseline: str = ""  # name of the run it starts from


@dataclass(frozen=True)
class Sweep:
    """`seeds` apply to the quantized runs; all of them share one baseline, with the first seed.

    >>> sweep = load_sweep("cifar10-vehicles")
    >>> [run.name for run in sweep.runs(Path("out"))][3:6]
    ['float,width=0.5,seed=0', 'width=0.125,precision=8b,seed=0', 'width=0.125,precision=8b,seed=1']
    """

    name: str
    recipe: str
    float: str = ""  # empty: no baselines; then runs start from what the recipe says
    seeds: tuple[int, ...] = (0,)
    shared: Mapping[str, tuple[Option, ...]] = field(default_factory=dict)
    grid: Mapping[str, tuple[Option, ...]] = field(default_factory=dict)
    about: str = ""
    overrides: tuple[str, ...] = ()  # "section.key=value", for every run

    def __post_init__(self) -> None:
        for key, choices in {"seeds": self.seeds, **self.shared, **self.grid}.items():
            if not choices:
                raise RecipeError(f"sweep {self.name}: {key} = []; expected at least one value")
        given = [(SEED, "seeds"), *([(WEIGHTS, "float")] if self.float else [])]
        given += [(key, "[shared]") for key in self.shared]
        given += [(key, "[grid]") for key in self.grid]
        given += [(override.partition("=")[0].strip(), "--set") for override in self.overrides]
        decided: dict[str, str] = {}
        for key, by in given:
            if decided.setdefault(key, by) != by:
                raise RecipeError(
                    f"sweep {self.name}: {key} in {by} is decided by {decided[key]} already"
                )

    @property
    def keys(self) -> dict[str, str]:
        """The keys that vary, and their short form for names: the last word, where it is unique."""
        keys = [*self.shared, *self.grid]
        last = [key.rpartition(".")[2] for key in keys]
        return {k: word if last.count(word) == 1 else k for k, word in zip(keys, last, strict=True)}

    def runs(self, out: Path) -> list[Run]:
        """All runs, baselines first; raises for values that no recipe can have."""
        baselines, quantized = [], []
        for shared in _points(self.shared):
            if self.float:
                baselines.append(self._run(self.float, shared, self.seeds[0]))
            start = baselines[-1].name if self.float else ""
            quantized += [
                self._run(self.recipe, {**shared, **point}, seed, start, out)
                for point in _points(self.grid)
                for seed in self.seeds
            ]
        found = baselines + quantized
        names = [run.name for run in found]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise RecipeError(f"sweep {self.name}: {twice[0]} occurs {names.count(twice[0])} times")
        return found

    def _run(
        self, recipe: str, values: Values, seed: int, start: str = "", out: Path = Path()
    ) -> Run:
        parts = [f"{self.keys[key]}={_plain(value)}" for key, value in values.items()]
        is_baseline = bool(self.float) and not start
        name = ",".join(["float"] * is_baseline + parts + [f"seed={seed}"])
        settings: dict[str, Option] = {**values, SEED: seed, "name": f"{Path(recipe).stem} {name}"}
        if start:  # absolute: a run may be resumed from another working directory
            settings[WEIGHTS] = str((out / start).absolute())
        chosen = load_recipe(recipe, self.overrides, settings)
        _check_plan(chosen, values)
        # The recipe's description and the paper's accuracy do not hold at other points of the grid.
        return Run(name, values, seed, replace(chosen, about="", paper=None), start)


def load_sweep(sweep: str | Path, overrides: Sequence[str] = ()) -> Sweep:
    """A shipped sweep by name, or one from a .toml file; `overrides` are "section.key=value".

    >>> load_sweep("visual_wake_words").seeds
    (0,)
    """
    path = SHIPPED / f"{sweep}.toml" if str(sweep) in sweep_names() else Path(sweep)
    toml.check_suffix(path, "sweep", sweep_names(), RecipeError)
    table = toml.parse(toml.read_text(path, "sweep", RecipeError), str(path), RecipeError)
    table |= {key: _flat(table[key]) for key in ("shared", "grid") if key in table}
    loaded = toml.build(
        Sweep, table, str(path), RecipeError, name=path.stem, overrides=tuple(overrides)
    )
    recipe, float_recipe = (
        name if not name or name in recipe_names() else str(path.parent / name)
        for name in (loaded.recipe, loaded.float)
    )
    return replace(loaded, recipe=recipe, float=float_recipe)


def sweep_names() -> list[str]:
    """The shipped sweeps.

    >>> sweep_names()
    ['cifar10-vehicles', 'visual_wake_words']
    """
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def _flat(table: Any, prefix: str = "") -> Any:
    """A grid by dotted keys; TOML reads them as nested tables where they are not quoted.

    >>> _flat({"model": {"width": [1, 2]}, "train.seed": [0]})
    {'model.width': [1, 2], 'train.seed': [0]}
    """
    if not isinstance(table, dict):
        return table
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= (
            _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
        )
    return flat


def _points(grid: Mapping[str, tuple[Option, ...]]) -> list[Values]:
    """Every combination of one value for each key, the last key fastest.

    >>> _points({"a": (1, 2), "b": (3,)})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return [dict(zip(grid, chosen, strict=True)) for chosen in itertools.product(*grid.values())]


def _plain(value: Option) -> str:
    """A value as part of a file's name."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return re.sub(r"[^\w.+-]", "_", text)


def _check_plan(recipe: Recipe, values: Values) -> None:
    """Raise if the plan cannot be made, or if a key that varies has no effect on it."""
    plan = recipe.quantize.plan
    if not plan.has_weights("ternary") and OF_TERNARY_LAYERS & values.keys():
        raise RecipeError(
            f"plan {plan.name} of recipe {recipe.name} has no ternary layer, so "
            f"{' and '.join(sorted(OF_TERNARY_LAYERS & values.keys()))} would change nothing"
        )
    _ = recipe.plan
