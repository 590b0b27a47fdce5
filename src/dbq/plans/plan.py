"""Plan: which precision each layer gets.

A plan is data. It answers one question, `plan.choose(name, role)`, by the most specific rule that
applies: exact name, then pattern, then role, then default.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from dbq.errors import NoMatchError, PlanError, closest
from dbq.plans.precision import FLOAT, Kind, Precision
from dbq.support.toml import quote, toml_value

Role = Literal["first", "last", "depthwise", "pointwise", "conv"]
Clip = Literal["bn", "relu6", "range", "pact", "lsq", "lqnet"]
Option = str | int | float | bool

ROLES: tuple[Role, ...] = get_args(Role)
CLIPS: tuple[Clip, ...] = get_args(Clip)
# The method meant where only a precision is given. Other kinds have none: the plan has to say.
USUAL_METHOD: dict[Kind, str] = {"ternary": "dbq", "fixed": "fixed"}


@dataclass(frozen=True)
class LayerPlan:
    """What one layer gets: precision of its weights and of the tensor it reads.

    `method` names the quantizer of the weights (a key of `dbq.quantizers.table.QUANTIZERS`); empty means
    the usual one for the kind of precision, and is how that one is kept. `options` go to it.

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
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

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

    def __reduce__(self) -> tuple[Any, ...]:  # a mappingproxy cannot be pickled or deep-copied
        return LayerPlan, (self.weight, self.input, self.method, dict(self.options))


FLOAT_LAYER = LayerPlan()


@dataclass(frozen=True)
class Plan:
    """Precision by layer name, pattern, role, or default, and the clipping rule of activations.

    `clip` is the rule for tensors behind a batch norm: `bn` clips at max(beta + k|gamma|), `relu6`
    at 6, `range` at a running range. Tensors without a batch norm in front use `range` under these
    rules. `pact`, `lsq` and `lqnet` are those methods' own quantizers, for every tensor but the
    image. Patterns are shell patterns over full layer names; of two that match, the later wins.

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
        for table in ("roles", "patterns", "names"):
            rules = {key: rule or FLOAT_LAYER for key, rule in getattr(self, table).items()}
            object.__setattr__(self, table, MappingProxyType(rules))
        for role in self.roles:
            if role not in ROLES:
                raise PlanError(f"plan {self.name}: no role {role!r}; {closest(role, ROLES)}")
        if self.clip not in CLIPS:
            raise PlanError(
                f"plan {self.name}: no clip rule {self.clip!r}; expected one of {CLIPS}"
            )
        if not (self.k > 0 and math.isfinite(self.k)):
            raise PlanError(f"plan {self.name}: k = {self.k}; expected a positive number")

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
                raise NoMatchError(
                    f"plan {self.name}: pattern {pattern!r} matches no layer; "
                    f"{closest(pattern, layers)}"
                )

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
        self,
        kind: Kind,
        method: str = "",
        options: Mapping[str, Option] | None = None,
        weight: Precision | None = None,
    ) -> Plan:
        """A copy in which every rule with weights of this kind has another method, precision, or more
        options; those of the old method go with it.

        Its name says what was changed: what a table says about a plan must not be said of another
        method in it.

        >>> plan = Plan("mine", LayerPlan.of("2T"))
        >>> plan.with_method("ternary", options={"init": "kmeans"}).default
        LayerPlan(weight=2T, input=32b, init='kmeans')
        >>> plan.with_method("ternary", "twn", weight=Precision("ternary", 1)).name
        'mine with twn 1T'
        """

        def changed(rule: LayerPlan) -> LayerPlan:
            if rule.weight.kind != kind:
                return rule
            kept = {} if method else rule.options
            return LayerPlan(
                weight or rule.weight,
                rule.input,
                method or rule.method,
                {**kept, **(options or {})},
            )

        plan = replace(
            self,
            default=changed(self.default),
            roles={key: changed(rule) for key, rule in self.roles.items()},
            patterns={key: changed(rule) for key, rule in self.patterns.items()},
            names={key: changed(rule) for key, rule in self.names.items()},
        )
        if plan == self or not (method or weight):
            return plan
        change = " ".join(filter(None, (method, str(weight or ""))))
        return replace(plan, name=f"{self.name} with {change}")

    def __reduce__(self) -> tuple[Any, ...]:
        tables = (dict(self.roles), dict(self.patterns), dict(self.names))
        return Plan, (self.name, self.default, *tables, self.clip, self.k)

    def to_toml(self) -> str:
        """The plan as TOML; `Plan.from_toml` reads it back to an equal plan."""
        head = f"name = {quote(self.name)}\nclip = {quote(self.clip)}\nk = {float(self.k)}\n"
        tables = [("default", self.default)]
        for table in ("roles", "patterns", "names"):
            rules: Mapping[str, LayerPlan] = getattr(self, table)
            tables += [(f"{table}.{quote(key)}", rule) for key, rule in rules.items()]
        return head + "".join(f"\n[{key}]\n{_rule_to_toml(rule)}" for key, rule in tables)

    @classmethod
    def from_toml(cls, text: str, source: str = "plan") -> Plan:
        """Parse TOML; an unknown key or a bad value is a PlanError that names `source`."""
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise PlanError(f"{source}: not valid TOML: {error}") from None
        known = ("name", "clip", "k", "default", "roles", "patterns", "names")
        _check_keys(data, known, source)
        for key, kinds in (("name", (str,)), ("clip", (str,)), ("k", (int, float))):
            if key in data and type(data[key]) not in kinds:
                raise PlanError(f"{source}: {key} = {data[key]!r} has the wrong type")
        tables: dict[str, dict[str, LayerPlan]] = {}
        for table in ("roles", "patterns", "names"):
            rules = _table(data.get(table, {}), f"{source}: {table}")
            tables[table] = {
                key: _rule_from_toml(rule, f"{source}: {table}.{key}")
                for key, rule in rules.items()
            }
        default = _rule_from_toml(data.get("default", {}), f"{source}: default")
        try:
            return cls(
                name=data.get("name", Path(source).stem),
                default=default,
                clip=data.get("clip", "bn"),
                k=float(data.get("k", 6.0)),
                **tables,  # type: ignore[arg-type]  # role names are checked by __post_init__
            )
        except PlanError as error:
            raise PlanError(f"{source}: {error}") from None


def _rule_to_toml(rule: LayerPlan) -> str:
    weight, input = ("float" if p.is_float else str(p) for p in (rule.weight, rule.input))
    lines = [f'weight = "{weight}"', f'input = "{input}"']
    if rule.method:
        lines.append(f"method = {quote(rule.method)}")
    if rule.options:
        pairs = ", ".join(
            f"{quote(key)} = {toml_value(value)}" for key, value in rule.options.items()
        )
        lines.append(f"options = {{ {pairs} }}")
    return "\n".join(lines) + "\n"


def _rule_from_toml(data: object, where: str) -> LayerPlan:
    if data == "float":
        return FLOAT_LAYER
    rule = _table(data, where)
    _check_keys(rule, ("weight", "input", "method", "options"), where)
    options = _table(rule.get("options", {}), f"{where}.options")
    try:
        return LayerPlan(
            Precision.parse(rule.get("weight", "float")),
            Precision.parse(rule.get("input", "float")),
            str(rule.get("method", "")),
            options,
        )
    except PlanError as error:
        raise PlanError(f"{where}: {error}") from None


def _table(data: object, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise PlanError(f"{where}: found {data!r}, expected a table")
    return data


def _check_keys(data: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    for key in data:
        if key not in known:
            raise PlanError(f"{where}: unknown key {key!r}; {closest(key, known)}")
