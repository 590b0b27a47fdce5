"""Plan: which precision each layer gets.

A plan is data. It answers one question, `plan.choose(name, role)`, by the most specific rule that
applies: exact name, then pattern, then role, then default.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, get_args

from dbq.errors import NoMatchError, PlanError, closest
from dbq.plans.precision import FLOAT, Kind, Precision
from dbq.support import toml
from dbq.support.frozen import frozen

Role = Literal["first", "last", "depthwise", "pointwise", "conv"]
Clip = Literal["bn", "relu6", "range", "pact", "lsq", "lqnet"]
Option = str | int | float | bool

ROLES: tuple[Role, ...] = get_args(Role)
CLIPS: tuple[Clip, ...] = get_args(Clip)
TABLES = ("roles", "patterns", "names")  # of a plan's rules
# The method that a bare precision stands for. Binary branches have none: a plan has to name one.
USUAL_METHOD: dict[Kind, str] = {"ternary": "dbq", "fixed": "fixed"}


@dataclass(frozen=True)
class LayerPlan:
    """What one layer gets: the precision of its weights and of the tensor it reads.

    `method` names the weight quantizer (a key of `dbq.quantizers.table.QUANTIZERS`) and `options` are
    its own. The usual method of a kind of precision is stored as the empty string, so that plans that
    name it and plans that do not are equal.

    >>> LayerPlan.of("2T", "8b")
    LayerPlan(weight=2T, input=8b)
    >>> LayerPlan.of("2T", method="dbq") == LayerPlan.of("2T")
    True
    """

    weight: Precision = FLOAT
    input: Precision = FLOAT
    method: str = ""
    options: Mapping[str, Option] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.input.is_branched:
            raise PlanError(f"input precision {self.input}: expected float or 2b to 8b")
        if self.weight.is_float and (self.method or self.options):
            given = f"method {self.method!r}" if self.method else f"options {dict(self.options)}"
            raise PlanError(f"{given} for float weights: give the weights a precision")
        if self.method == USUAL_METHOD.get(self.weight.kind):
            object.__setattr__(self, "method", "")
        object.__setattr__(self, "options", frozen(self.options))

    @classmethod
    def of(
        cls, weight: str | int, input: str | int = "float", method: str = "", **options: Option
    ) -> LayerPlan:
        return cls(Precision.parse(weight), Precision.parse(input), method, options)

    @property
    def is_float(self) -> bool:
        return self.weight.is_float and self.input.is_float

    def __repr__(self) -> str:
        method = f", method={self.method}" if self.method else ""
        options = "".join(f", {key}={value!r}" for key, value in self.options.items())
        return f"LayerPlan(weight={self.weight}, input={self.input}{method}{options})"

    def to_table(self) -> dict[str, Any]:
        """The table that stands for this rule in TOML."""
        weight, input = ("float" if p.is_float else str(p) for p in (self.weight, self.input))
        named: dict[str, Any] = {"method": self.method, "options": dict(self.options)}
        return {"weight": weight, "input": input, **{k: v for k, v in named.items() if v}}


FLOAT_LAYER = LayerPlan()


@dataclass(frozen=True)
class Plan:
    """Precision by layer name, pattern, role, or default, and the clipping rule of activations.

    `clip` is the rule for tensors behind a batch norm: `bn` clips at max(beta + k|gamma|), `relu6`
    at 6, `range` at a running range. Under these three, a tensor without a batch norm in front of it
    is clipped by `range`. `pact`, `lsq` and `lqnet` are the input quantizers of those methods, for
    every tensor but the image. Patterns are shell patterns over full layer names; of two that match,
    the later wins.

    >>> plan = Plan("mine", roles={"pointwise": LayerPlan.of("2T", 8)})
    >>> plan.choose("features.3.pw", "pointwise").weight
    Precision(kind='ternary', size=2)
    """

    name: str
    default: LayerPlan = FLOAT_LAYER
    roles: Mapping[Role, LayerPlan] = field(default_factory=dict)
    patterns: Mapping[str, LayerPlan] = field(default_factory=dict)
    names: Mapping[str, LayerPlan] = field(default_factory=dict)  # None leaves a layer float
    clip: Clip = "bn"
    k: float = 6.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "default", self.default or FLOAT_LAYER)
        for table in TABLES:
            rules = {key: rule or FLOAT_LAYER for key, rule in getattr(self, table).items()}
            object.__setattr__(self, table, frozen(rules))
        for role in self.roles:
            if role not in ROLES:
                raise PlanError(f"plan {self.name}: no role {role!r}; {closest(role, ROLES)}")
        plan = f"plan {self.name}"
        if self.clip not in CLIPS:
            raise PlanError(f"{plan}: no clip rule {self.clip!r}; expected one of {CLIPS}")
        if not (self.k > 0 and math.isfinite(self.k)):
            raise PlanError(f"{plan}: k = {self.k}; expected a positive number")

    def choose(self, name: str, role: Role) -> LayerPlan:
        """The layer plan for a layer of this name and role."""
        if name in self.names:
            return self.names[name]
        for pattern in reversed(list(self.patterns)):
            if fnmatchcase(name, pattern):
                return self.patterns[pattern]
        return self.roles.get(role, self.default)

    def check_patterns(self, layers: Iterable[str]) -> None:
        """Raise unless every pattern of the plan matches one of `layers`."""
        layers = list(layers)
        for pattern in self.patterns:
            if not any(fnmatchcase(layer, pattern) for layer in layers):
                problem = f"plan {self.name}: pattern {pattern!r} matches no layer"
                raise NoMatchError(f"{problem}; {closest(pattern, layers)}")

    @property
    def rules(self) -> list[LayerPlan]:
        return [self.default, *self.roles.values(), *self.patterns.values(), *self.names.values()]

    @property
    def is_float(self) -> bool:
        """True if the plan asks for no quantization at all."""
        return all(rule.is_float for rule in self.rules)

    def has_weights(self, kind: Kind) -> bool:
        """True if some rule makes weights of this kind."""
        return any(rule.weight.kind == kind for rule in self.rules)

    def with_layers(self, layers: Mapping[str, LayerPlan | None]) -> Plan:
        """A copy with more rules by exact name; None leaves the layer float."""
        extra = {name: rule or FLOAT_LAYER for name, rule in layers.items()}
        return replace(self, names={**self.names, **extra})

    def with_method(
        self, kind: Kind, method: str = "", options: Mapping[str, Option] | None = None,
        weight: Precision | None = None,
    ) -> Plan:  # fmt: skip
        """A copy in which every rule with weights of this kind gets another method or precision, or
        more options. A new method does not inherit the options of the old one.

        The name of the copy says what was changed, so that tables do not mistake it for the original.

        >>> plan = Plan("mine", LayerPlan.of("2T"))
        >>> plan.with_method("ternary", options={"init": "kmeans"}).default
        LayerPlan(weight=2T, input=32b, init='kmeans')
        >>> plan.with_method("ternary", "twn", weight=Precision("ternary", 1)).name
        'mine with twn 1T'
        """

        def changed(rule: LayerPlan) -> LayerPlan:
            if rule.weight.kind != kind:
                return rule
            merged = {**({} if method else rule.options), **(options or {})}
            return LayerPlan(weight or rule.weight, rule.input, method or rule.method, merged)

        tables: dict[str, Any] = {
            table: {key: changed(rule) for key, rule in getattr(self, table).items()}
            for table in TABLES
        }
        plan = replace(self, default=changed(self.default), **tables)
        if plan == self or not (method or weight):
            return plan
        change = " ".join(filter(None, (method, str(weight or ""))))
        return replace(plan, name=f"{self.name} with {change}")

    def to_table(self) -> dict[str, Any]:
        """The table that stands for this plan in TOML."""
        table: dict[str, Any] = {"name": self.name, "clip": self.clip, "k": float(self.k)}
        table["default"] = self.default.to_table()
        for key in TABLES:
            table[key] = {name: rule.to_table() for name, rule in getattr(self, key).items()}
        return table

    def to_toml(self) -> str:
        """The plan as TOML; `Plan.from_toml` reads it back to an equal plan."""
        return toml.write(self.to_table())

    @classmethod
    def from_toml(cls, text: str, source: str = "plan") -> Plan:
        """Parse TOML; an unknown key or a bad value is a PlanError that names `source`."""
        return cls.from_table(toml.parse(text, source, PlanError), source)

    @classmethod
    def from_table(cls, table: Mapping[str, Any], source: str) -> Plan:
        """A plan from parsed TOML; its name is that of the file unless the table has one."""
        named = {"name": Path(source).stem, **table}
        return toml.build(cls, named, source, PlanError, PLAN_HOOKS)


# A precision is written as text, and a rule that keeps a layer float may be the word "float".
PLAN_HOOKS: toml.Hooks = {
    Precision: Precision.parse,
    LayerPlan: lambda rule: FLOAT_LAYER if rule == "float" else rule,
}
