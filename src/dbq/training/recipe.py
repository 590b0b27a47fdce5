"""Recipe: everything that decides a training run, as frozen data, from TOML.

A recipe may extend another one, shipped or a file in the same directory, and then says only what
differs. An unknown key is an error that names the nearest known one.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_type_hints

from dbq.data.options import DataOptions
from dbq.errors import RecipeError
from dbq.plans.plan import PLAN_HOOKS, Option, Plan
from dbq.plans.precision import Precision
from dbq.plans.shipped import PLANS, load_plan, shipped_name
from dbq.support import toml

LARGEST = 1e9  # bound on every number in a recipe; infinity and NaN fail the comparison too
SHIPPED = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class ModelOptions:
    """Which network, and the weights it starts from.

    `name` is a network of ours, or one of the user's or of a package (`networks/foreign.py`).
    """

    name: str
    width: float = 1.0
    options: Mapping[str, Option] = field(default_factory=dict)  # the network's own
    # The parameter of a network that is not ours that gets the number of classes; "none": no parameter
    # does; empty: num_classes, if it has one.
    classes: str = ""
    weights: str = ""  # a .safetensors or .pth file, or the directory of a run
    new_classifier: bool = (
        False  # the last linear layer stays random: the weights have other classes
    )
    weights_from: str = ""  # the recipe that makes such weights; then `weights` must be given

    @property
    def label(self) -> str:
        """The network, and its width if that is not 1: "mobilenet_v1 x0.5"."""
        return self.name if self.width == 1 else f"{self.name} x{self.width:g}"


@dataclass(frozen=True)
class QuantizeOptions:
    """Which layer gets what, and what is done before the first step.

    In TOML `plan` is the name of a shipped plan, the path of a .toml file, or the plan's own table.
    """

    plan: Plan = PLANS["fp"]
    method: str = ""  # instead of dbq, for all ternary layers
    precision: str = ""  # instead of the plan's, for all ternary layers
    options: Mapping[str, Option] = field(default_factory=dict)  # of all ternary layers' quantizer
    calibrate: int = 0  # training images for re-estimating batch norms before the first step
    fit: int = 0  # training images for choosing codes by output error before the first step


@dataclass(frozen=True)
class TrainOptions:
    """SGD with momentum, a linear warm-up and a cosine (supplement, section 1)."""

    epochs: int
    batch: int  # of all processes together
    rate: float
    momentum: float = 0.9
    weight_decay: float = 1e-4  # of the network's parameters; the quantizers' get none
    warmup: int = 0  # epochs
    every: Literal["epoch", "step"] = "epoch"  # how often rate and temperature move
    accumulate: int = 1  # parts a batch is computed in, to save memory
    seed: int = 0


@dataclass(frozen=True)
class TemperatureOptions:
    """T_e = start + e * increment, for layers with soft steps; with `end`, exponential up to it."""

    start: float = 5.0
    increment: float = 2.5
    end: float = 0.0  # T after the last epoch; 0: linear


@dataclass(frozen=True)
class ExtraOptions:
    """Beyond the paper, off unless asked for."""

    distill: float = 0.0  # a float network's share of the loss
    teacher: str = ""  # the weights of that network; empty: model.weights
    distill_temperature: float = 2.0
    features: float = 0.0  # factor of the error of every block's output, against that network's
    still_norms: float = (
        0.0  # share of the run, its end, in which batch norms keep their statistics
    )
    label_smoothing: float = 0.0
    ema: float = 0.0  # decay of a running average of the weights, which is then tested and kept
    reestimate: int = 0  # training images for re-estimating batch norms after the last step
    size: float = 0.0  # bits per weight allowed to layers with learned precision; 0: no limit
    size_penalty: float = 1e-3  # factor of the squared excess in bits, added to the loss


@dataclass(frozen=True)
class MachineOptions:
    """How the run is computed. The result is meant to be the same whatever these say."""

    device: str = "auto"  # cuda if available
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    channels_last: bool = False
    compile: bool = False
    sync_bn: bool = False  # batch-norm statistics of the whole batch, not of each process's part
    checkpoint_minutes: float = 5.0  # besides one after every epoch; 0 is after every step


@dataclass(frozen=True)
class Recipe:
    """A training run as data. `about` says what it is, `paper` the accuracy the paper reports."""

    name: str
    model: ModelOptions
    data: DataOptions
    train: TrainOptions
    quantize: QuantizeOptions = QuantizeOptions()
    temperature: TemperatureOptions = TemperatureOptions()
    extra: ExtraOptions = ExtraOptions()
    machine: MachineOptions = MachineOptions()
    about: str = ""
    paper: float | None = None  # top-1 in %

    def __post_init__(self) -> None:
        train, extra = self.train, self.extra
        self._check_finite()
        checks = {
            "train.epochs": train.epochs >= 1,
            "train.batch": train.batch >= 1,
            "train.rate": train.rate > 0,
            "train.momentum": 0 <= train.momentum < 1,
            "train.weight_decay": train.weight_decay >= 0,
            "train.warmup": 0 <= train.warmup <= train.epochs,
            "train.accumulate": 1 <= train.accumulate <= train.batch,
            "temperature.start": self.temperature.start > 0,
            "temperature.increment": self.temperature.increment >= 0,
            "temperature.end": self.temperature.end == 0
            or self.temperature.end >= self.temperature.start,
            "extra.distill": 0 <= extra.distill <= 1,
            "extra.features": extra.features >= 0,
            "extra.still_norms": 0 <= extra.still_norms <= 1,
            "extra.distill_temperature": extra.distill_temperature > 0,
            "extra.label_smoothing": 0 <= extra.label_smoothing < 1,
            "extra.ema": 0 <= extra.ema < 1,
            "extra.reestimate": extra.reestimate >= 0,
            "extra.size": extra.size == 0 or extra.size >= 2,
            "extra.size_penalty": extra.size_penalty >= 0,
            "quantize.calibrate": self.quantize.calibrate >= 0,
            "quantize.fit": self.quantize.fit >= 0,
            "data.workers": self.data.workers >= 0,
            "machine.checkpoint_minutes": self.machine.checkpoint_minutes >= 0,
        }
        for key, good in checks.items():
            if not good:
                section, name = key.split(".")
                value = getattr(getattr(self, section), name)
                raise RecipeError(f"recipe {self.name}: {key} = {value!r} is out of range")

    def _check_finite(self) -> None:
        for section in dataclasses.fields(self):
            options = getattr(self, section.name)
            for entry in dataclasses.fields(options) if dataclasses.is_dataclass(options) else ():
                value = getattr(options, entry.name)
                numbers = value if isinstance(value, tuple) else (value,)
                if any(isinstance(n, float) and not abs(n) < LARGEST for n in numbers) or any(
                    isinstance(n, int) and n.bit_length() > 63 for n in numbers
                ):
                    raise RecipeError(
                        f"recipe {self.name}: {section.name}.{entry.name} = {toml.shown(value)} "
                        "is out of range"
                    )

    @cached_property
    def plan(self) -> Plan:
        """The plan, with the recipe's method, precision and options for ternary layers."""
        wanted = self.quantize
        weight = Precision.parse(wanted.precision) if wanted.precision else None
        if not (wanted.method or wanted.options or weight):
            return wanted.plan
        plan = wanted.plan.with_method("ternary", wanted.method, wanted.options, weight)
        return replace(plan, name=shipped_name(plan))

    @property
    def code(self) -> tuple[str, ...]:
        """Names of what is imported from elsewhere: the network's and the data's functions."""
        return tuple(name for name in (self.model.name, self.data.name) if ":" in name)

    def to_toml(self) -> str:
        """The whole recipe, defaults included; `Recipe.from_toml` reads it back to an equal one."""
        return toml.write(_table(self))

    @classmethod
    def from_toml(cls, text: str, source: str = "recipe") -> Recipe:
        """Parse TOML that extends nothing."""
        return _from_tables(toml.parse(text, source, RecipeError), source)


def load_recipe(
    recipe: str | Path, overrides: Sequence[str] = (), values: Mapping[str, Option] | None = None
) -> Recipe:
    """A shipped recipe by name, or one from a .toml file.

    `overrides` are texts "section.key=value"; `values`, by "section.key", are put in after them.

    >>> load_recipe("resnet20-2t", ["train.epochs=3"], {"train.seed": 7}).train.epochs
    3
    """
    tables = _extended(str(recipe), ())
    for override in overrides:
        _put_text(tables, override, "--set", Recipe)
    for key, value in (values or {}).items():
        _put(tables, key, value)
    return _from_tables(tables, f"recipe {recipe}")


def parse_keys(texts: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """Values by key from texts "key=value" or "section.key=value", given as `option` of a command.

    >>> parse_keys(["depth=8", "kind=wide", "options.bias=true"])
    {'depth': 8, 'kind': 'wide', 'options': {'bias': True}}
    """
    tables: dict[str, Any] = {}
    for text in texts:
        _put_text(tables, text, option, Mapping)
    return tables


def recipe_names() -> list[str]:
    """The shipped recipes.

    >>> "resnet20-2t" in recipe_names()
    True
    """
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def _from_tables(tables: Mapping[str, Any], source: str) -> Recipe:
    return toml.build(Recipe, tables, source, RecipeError, HOOKS)


def _plan(given: Any) -> Any:
    """The plan that `quantize.plan` stands for, unless it is a table, which is built as one."""
    if not isinstance(given, str):
        return given
    if "\n" in given:  # runs recorded by earlier versions hold the whole plan as text
        return Plan.from_toml(given)
    return load_plan(given)


HOOKS: toml.Hooks = {**PLAN_HOOKS, Plan: _plan}


def _table(value: Any) -> Any:
    """What stands for a recipe, one of its sections or one of their values in TOML."""
    if isinstance(value, Plan):
        return value.name if PLANS.get(value.name) == value else value.to_table()
    if dataclasses.is_dataclass(value):
        items = {f.name: _table(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {key: item for key, item in items.items() if item is not None}
    return dict(value) if isinstance(value, Mapping) else value


def _extended(recipe: str, seen: tuple[str, ...], beside: Path = Path()) -> dict[str, Any]:
    """The tables of a recipe on top of those it extends."""
    path = SHIPPED / f"{recipe}.toml" if recipe in recipe_names() else beside / recipe
    if str(path) in seen:
        raise RecipeError(f"recipe {recipe} extends itself: {' -> '.join((*seen, str(path)))}")
    toml.check_suffix(path, "recipe", recipe_names(), RecipeError)
    tables = toml.parse(toml.read_text(path, "recipe", RecipeError), str(path), RecipeError)
    base = tables.pop("extends", None)
    tables.setdefault("name", path.stem)
    if base is None:
        return tables
    if not isinstance(base, str):
        raise RecipeError(f"{path}: extends = {base!r}; expected the name of a recipe")
    merged = _extended(base, (*seen, str(path)), path.parent)
    for key in ("about", "paper"):  # these describe the other recipe, not this one
        merged.pop(key, None)
    for key, value in tables.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = {**merged[key], **value}
        else:
            merged[key] = value
    return merged


def _put_text(tables: dict[str, Any], override: str, option: str, kind: Any) -> None:
    """Set the key that a text "section.key=value" names; `kind` says which type it wants."""
    key, equals, text = override.partition("=")
    if not (equals and key.strip()):
        expected = "section.key=value" if kind is Recipe else "key=value"
        raise RecipeError(f"{option} {override!r}: expected {expected}")
    _put(tables, key, _value(key, text, kind))


def _value(key: str, text: str, kind: Any) -> Any:
    """An override's text as TOML, or as it is where it is not TOML or the key wants a string."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except toml.BAD_TOML:
        return text.strip()
    hint = kind
    for part in key.split("."):
        hint = get_type_hints(hint).get(part.strip()) if dataclasses.is_dataclass(hint) else None
    if hint is str and not isinstance(value, str):
        return text.strip()  # a directory may be called 2024-01-01
    return value


def _put(tables: dict[str, Any], key: str, value: Any) -> None:
    """Set "section.key" in the tables."""
    *sections, last = [part.strip() for part in key.split(".")]
    for section in sections:
        tables = tables.setdefault(section, {})
        if not isinstance(tables, dict):
            raise RecipeError(f"{key} = {value!r}: {section} is a value, not a section")
    tables[last] = value
