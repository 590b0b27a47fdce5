"""Sweep: a grid over recipe keys as frozen data, from TOML, and the runs it consists of.

Each point of `shared` has one float baseline, trained by the recipe `float`. Each point of `shared`
and `grid` together is a run of `recipe` for every seed, started from the baseline it shares keys with.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dbq.errors import RecipeError, closest
from dbq.plans.plan import Option
from dbq.support.toml import toml_value
from dbq.training.recipe import Recipe, load_recipe, recipe_names

SHIPPED = Path(__file__).parent / "sweeps"
SEED, WEIGHTS = "train.seed", "model.weights"
OF_TERNARY_LAYERS = {"quantize.precision", "quantize.method"}

Values = Mapping[str, Option]  # of recipe keys


@dataclass(frozen=True)
class Run:
    """One training of a sweep. Its name is that of its directory, too."""

    name: str
    values: Values
    seed: int
    recipe: Recipe
    baseline: str = ""  # name of the run it starts from


@dataclass(frozen=True)
class Sweep:
    """`seeds` are of the quantized runs; there is one baseline for all, with the first seed.

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
        """The keys that vary, and what each is called in names: its last word, if no other has it."""
        keys = [*self.shared, *self.grid]
        last = [key.rpartition(".")[2] for key in keys]
        return {k: word if last.count(word) == 1 else k for k, word in zip(keys, last, strict=True)}

    def runs(self, out: Path) -> list[Run]:
        """All runs, baselines first; a value that no recipe can have is an error here."""
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
            raise RecipeError(
                f"sweep {self.name}: {twice[0]} is there {names.count(twice[0])} times"
            )
        return found

    def _run(
        self, recipe: str, values: Values, seed: int, start: str = "", out: Path = Path()
    ) -> Run:
        parts = [f"{self.keys[key]}={_plain(value)}" for key, value in values.items()]
        is_baseline = bool(self.float) and not start
        name = ",".join(["float"] * is_baseline + parts + [f"seed={seed}"])
        settings: dict[str, Option] = {**values, SEED: seed, "name": f"{Path(recipe).stem} {name}"}
        if start:  # absolute: a run may be gone on with from another working directory
            settings[WEIGHTS] = str((out / start).absolute())
        written = [f"{key}={toml_value(value)}" for key, value in settings.items()]
        chosen = load_recipe(recipe, [*self.overrides, *written])
        _check_plan(chosen, values)
        # What the recipe says of itself is no longer so at another point of the grid.
        return Run(name, values, seed, replace(chosen, about="", paper=None), start)


def load_sweep(sweep: str | Path, overrides: Sequence[str] = ()) -> Sweep:
    """A shipped sweep by name, or one from a .toml file; `overrides` are "section.key=value".

    >>> load_sweep("visual_wake_words").seeds
    (0,)
    """
    path = SHIPPED / f"{sweep}.toml" if str(sweep) in sweep_names() else Path(sweep)
    if path.suffix != ".toml":
        raise RecipeError(
            f"no sweep named {str(sweep)!r}; {closest(str(sweep), sweep_names())}; "
            "or give a path ending in .toml"
        )
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise RecipeError(f"cannot read sweep {path}: {reason}") from None
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{path}: not valid TOML: {error}") from None
    values = _checked(tables, str(path))
    for key in ("recipe", "float"):  # shipped, or a file beside the sweep
        if values.get(key) and values[key] not in recipe_names():
            values[key] = str(path.parent / values[key])
    return Sweep(path.stem, overrides=tuple(overrides), **values)


def sweep_names() -> list[str]:
    """The shipped sweeps.

    >>> sweep_names()
    ['cifar10-vehicles', 'visual_wake_words']
    """
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def _checked(tables: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Fields of a Sweep from parsed TOML, every key and type checked."""
    known = [f.name for f in dataclasses.fields(Sweep) if f.name not in ("name", "overrides")]
    for key in tables:
        if key not in known:
            raise RecipeError(f"{source}: unknown key {key}; {closest(key, known)}")
    if "recipe" not in tables:
        raise RecipeError(f"{source}: recipe is missing")
    values = dict(tables)
    for key in ("recipe", "float", "about"):
        if not isinstance(values.get(key, ""), str):
            raise RecipeError(f"{source}: {key} = {values[key]!r}; expected a string")
    values["seeds"] = _choices("seeds", tables.get("seeds", [0]), source)
    if any(type(seed) is not int for seed in values["seeds"]):
        raise RecipeError(f"{source}: seeds = {tables['seeds']!r}; expected whole numbers")
    for table in ("shared", "grid"):
        values[table] = _flat(tables.get(table, {}), source, table)
    return values


def _flat(table: Any, source: str, where: str, prefix: str = "") -> dict[str, tuple[Option, ...]]:
    """A grid by dotted keys; TOML reads them as tables in tables where they are not quoted."""
    if not isinstance(table, dict):
        raise RecipeError(f"{source}: {where} = {table!r}; expected a table of keys and lists")
    found: dict[str, tuple[Option, ...]] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= _flat(value, source, where, f"{prefix}{key}.")
        else:
            found[prefix + key] = _choices(f"{where}.{prefix}{key}", value, source)
    return found


def _choices(key: str, value: Any, source: str) -> tuple[Any, ...]:
    if not isinstance(value, list) or not value:
        raise RecipeError(f"{source}: {key} = {value!r}; expected a list of values")
    return tuple(value)


def _points(grid: Mapping[str, tuple[Option, ...]]) -> list[Values]:
    """Every combination of one value for each key, the last key fastest.

    >>> _points({"a": (1, 2), "b": (3,)})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return [dict(zip(grid, chosen, strict=True)) for chosen in itertools.product(*grid.values())]


def _plain(value: Option) -> str:
    """A value as part of a file's name."""
    text = value if isinstance(value, str) else toml_value(value)
    return re.sub(r"[^\w.+-]", "_", text)


def _check_plan(recipe: Recipe, values: Values) -> None:
    """Raise if the plan cannot be made, or if nothing in it listens to a key that varies."""
    plan = recipe.base_plan
    if not plan.has_weights("ternary") and OF_TERNARY_LAYERS & values.keys():
        raise RecipeError(
            f"plan {plan.name} of recipe {recipe.name} has no ternary layer, so "
            f"{' and '.join(sorted(OF_TERNARY_LAYERS & values.keys()))} would change nothing"
        )
    _ = recipe.plan
