"""Recipe: everything that decides a training run, as frozen data, from TOML.

A recipe may `extends` another one, shipped or a file beside it, and says only what differs. An unknown
key or a value of the wrong type is an error that names the nearest key.
"""

from __future__ import annotations

import dataclasses
import tomllib
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from dbq.data.options import DataOptions
from dbq.errors import DbqError, RecipeError, closest
from dbq.plans.plan import Option, Plan
from dbq.plans.precision import Precision
from dbq.plans.shipped import load_plan, shipped_name
from dbq.support.toml import toml_value

LARGEST = 1e9  # no rate, share or temperature is; nor is infinity or NaN smaller
SHIPPED = Path(__file__).parent / "recipes"

Section = TypeVar("Section")


@dataclass(frozen=True)
class ModelOptions:
    """Which network, and the weights it starts from."""

    name: str
    width: float = 1.0
    options: Mapping[str, Option] = field(default_factory=dict)  # the network's own
    weights: str = ""  # a .safetensors or .pth file, or the directory of a run
    weights_from: str = ""  # the recipe that makes such weights; then `weights` must be given

    @property
    def label(self) -> str:
        """The network, and its width if that is not 1: "mobilenet_v1 x0.5"."""
        return self.name if self.width == 1 else f"{self.name} x{self.width:g}"


@dataclass(frozen=True)
class QuantizeOptions:
    """Which layer gets what, and what is done before the first step."""

    plan: str = "fp"  # a name or a .toml path
    method: str = ""  # instead of dbq, for all ternary layers
    precision: str = ""  # instead of the plan's, for all ternary layers
    options: Mapping[str, Option] = field(default_factory=dict)  # of all ternary layers' quantizer
    calibrate: int = 0  # training images for re-estimating batch norms before the first step


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
    """T_e = start + e * increment, for layers with soft steps."""

    start: float = 5.0
    increment: float = 2.5


@dataclass(frozen=True)
class ExtraOptions:
    """Beyond the paper, off unless asked for."""

    distill: float = 0.0  # a float network's share of the loss
    teacher: str = ""  # the weights of that network; empty: model.weights
    distill_temperature: float = 2.0
    label_smoothing: float = 0.0
    ema: float = 0.0  # decay of an average of the weights, which is then what is tested and kept
    reestimate: int = 0  # training images for re-estimating batch norms after the last step
    size: float = 0.0  # bits a weight that layers with learned precision may take; 0 is no limit
    size_penalty: float = 1e-3  # what a bit too many costs, squared, beside the loss


@dataclass(frozen=True)
class MachineOptions:
    """How it is computed; what comes out is meant to be the same."""

    device: str = "auto"  # cuda if there is one
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    channels_last: bool = False
    compile: bool = False
    sync_bn: bool = False  # batch-norm statistics of the whole batch, not of each process's part
    checkpoint_minutes: float = 5.0  # besides one after every epoch; 0 is after every step


@dataclass(frozen=True)
class Recipe:
    """A training run as data. `about` says what it is, `paper` the accuracy it is to reach."""

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
            "extra.distill": 0 <= extra.distill <= 1,
            "extra.distill_temperature": extra.distill_temperature > 0,
            "extra.label_smoothing": 0 <= extra.label_smoothing < 1,
            "extra.ema": 0 <= extra.ema < 1,
            "extra.reestimate": extra.reestimate >= 0,
            "extra.size": extra.size == 0 or extra.size >= 2,
            "extra.size_penalty": extra.size_penalty >= 0,
            "quantize.calibrate": self.quantize.calibrate >= 0,
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
                if any(isinstance(n, float) and not abs(n) < LARGEST for n in numbers):
                    raise RecipeError(
                        f"recipe {self.name}: {section.name}.{entry.name} = {value!r} is out of range"
                    )

    @property
    def base_plan(self) -> Plan:
        """The plan that the recipe names, as it is."""
        text = self.quantize.plan
        whole = "\n" in text  # written out by `load_recipe`
        return Plan.from_toml(text, f"plan of {self.name}") if whole else load_plan(text)

    @property
    def plan(self) -> Plan:
        """The plan, with the recipe's method, precision and options for ternary layers."""
        wanted = self.quantize
        weight = Precision.parse(wanted.precision) if wanted.precision else None
        if wanted.method or wanted.options or weight:
            plan = self.base_plan.with_method("ternary", wanted.method, wanted.options, weight)
            return replace(plan, name=shipped_name(plan))
        return self.base_plan

    def to_toml(self) -> str:
        """The whole recipe, defaults included; `Recipe.from_toml` reads it back to an equal one."""
        lines, tables = [], []
        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            if dataclasses.is_dataclass(value):
                tables.append(f"\n[{entry.name}]\n" + "\n".join(_assignments(value)))
            elif value is not None:
                lines.append(f"{entry.name} = {toml_value(value)}")
        return "\n".join([*lines, *tables]) + "\n"

    @classmethod
    def from_toml(cls, text: str, source: str = "recipe") -> Recipe:
        """Parse TOML that extends nothing."""
        return from_tables(_parse(text, source), source)


def load_recipe(recipe: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """A shipped recipe by name, or one from a .toml file; `overrides` are "section.key=value".

    >>> load_recipe("resnet20-2t", ["train.epochs=3"]).train.epochs
    3
    """
    tables = _extended(str(recipe), ())
    for override in overrides:
        _apply(tables, override)
    found = from_tables(tables, f"recipe {recipe}")
    if found.quantize.plan.endswith(".toml"):  # the run must not depend on what the file becomes
        written_out = load_plan(found.quantize.plan).to_toml()
        found = replace(found, quantize=replace(found.quantize, plan=written_out))
    return found


def recipe_names() -> list[str]:
    """The shipped recipes.

    >>> "resnet20-2t" in recipe_names()
    True
    """
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def from_tables(tables: Mapping[str, Any], source: str) -> Recipe:
    """A Recipe from parsed TOML, every key and type checked."""
    try:
        return _make(Recipe, tables, source, prefix="")
    except RecipeError:
        raise
    except DbqError as error:
        raise RecipeError(f"{source}: {error}") from None


def _extended(recipe: str, seen: tuple[str, ...], beside: Path = Path()) -> dict[str, Any]:
    """The tables of a recipe on top of those it extends."""
    path = SHIPPED / f"{recipe}.toml" if recipe in recipe_names() else beside / recipe
    if str(path) in seen:
        raise RecipeError(f"recipe {recipe} extends itself: {' -> '.join((*seen, str(path)))}")
    if path.suffix != ".toml":
        raise RecipeError(
            f"no recipe named {recipe!r}; {closest(recipe, recipe_names())}; "
            "or give a path ending in .toml"
        )
    try:
        tables = _parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise RecipeError(f"cannot read recipe {path}: {reason}") from None
    base = tables.pop("extends", None)
    tables.setdefault("name", path.stem)
    if base is None:
        return tables
    if not isinstance(base, str):
        raise RecipeError(f"{path}: extends = {base!r}; expected the name of a recipe")
    merged = _extended(base, (*seen, str(path)), path.parent)
    for key in ("about", "paper"):  # of the other recipe, not of this one
        merged.pop(key, None)
    for key, value in tables.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = {**merged[key], **value}
        else:
            merged[key] = value
    return merged


def _parse(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{source}: not valid TOML: {error}") from None


def _apply(tables: dict[str, Any], override: str) -> None:
    """Put "a.b=v" into the tables; v is TOML, or a plain string where it is not or one is wanted."""
    key, equals, text = override.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise RecipeError(f"--set {override!r}: expected section.key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    if _hint(path) is str and not isinstance(value, str):
        value = text.strip()  # a directory may be called 2024-01-01
    for part in path[:-1]:
        tables = tables.setdefault(part, {})
        if not isinstance(tables, dict):
            raise RecipeError(f"--set {override!r}: {part} is a value, not a section")
    tables[path[-1]] = value


def _hint(path: Sequence[str]) -> Any:
    """The type a recipe wants at a path of keys; None if it has no such key."""
    hint: Any = Recipe
    for key in path:
        if not dataclasses.is_dataclass(hint):
            return None
        hint = typing.get_type_hints(hint).get(key)
    return hint


def _make(kind: type[Section], tables: Mapping[str, Any], source: str, prefix: str) -> Section:
    """An object of dataclass `kind` from a table."""
    hints = typing.get_type_hints(kind)
    fields = {entry.name: entry for entry in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in tables:
        if key not in fields:
            raise RecipeError(f"{source}: unknown key {prefix}{key}; {closest(key, fields)}")
    values = {
        key: _convert(hints[key], value, source, f"{prefix}{key}") for key, value in tables.items()
    }
    for name, entry in fields.items():
        required = entry.default is entry.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise RecipeError(f"{source}: {prefix}{name} is missing")
    return kind(**values)


def _convert(hint: Any, value: Any, source: str, key: str) -> Any:
    """`value` as the type a field is annotated with, or an error."""
    origin = typing.get_origin(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        return _make(hint, value, source, prefix=f"{key}.")
    if origin is Literal:
        if value in typing.get_args(hint):
            return value
        expected = " or ".join(map(repr, typing.get_args(hint)))
    elif origin is tuple and isinstance(value, list | tuple):
        return tuple(_convert(float, item, source, key) for item in value)
    elif origin is Mapping and isinstance(value, dict):
        return MappingProxyType(dict(value))
    elif hint in (float, float | None) and type(value) in (int, float):
        return float(value)
    elif type(value) is hint:
        return value
    else:
        expected = getattr(hint, "__name__", str(hint))
    raise RecipeError(f"{source}: {key} = {value!r}; expected {expected}")


def _assignments(section: Any) -> list[str]:
    return [
        f"{entry.name} = {toml_value(getattr(section, entry.name))}"
        for entry in dataclasses.fields(section)
    ]
