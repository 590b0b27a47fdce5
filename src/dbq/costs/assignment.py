"""Assignment: applies a plan, and given sparsities, to the rows of a float model's census."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dbq.costs.census import LayerRow, Row, branches, dense_taps
from dbq.errors import NoMatchError, PlanError, closest
from dbq.plans.plan import LayerPlan, Plan
from dbq.plans.precision import Precision

Sparsity = Mapping[str, float | Sequence[float]]  # share of zero weights by layer name


def assign(rows: Iterable[Row], plan: Plan, sparsity: Sparsity | None = None) -> tuple[Row, ...]:
    """Rows with the precisions of `plan`; layers without a given sparsity are dense.

    A name or pattern that matches no layer, or a plan that quantizes none, is a NoMatchError.

    >>> from torch import nn, zeros
    >>> from dbq.costs.census import take_census
    >>> from dbq.plans.shipped import uniform_plan
    >>> rows = take_census(nn.Linear(10, 3), zeros(1, 10)).rows
    >>> assign(rows, uniform_plan("w4", 4, 8), {"": 0.5})[0].nonzero
    (15.0,)
    """
    rows, sparsity = tuple(rows), sparsity or {}
    layers = {row.name: row for row in rows if isinstance(row, LayerRow)}
    for name in (*plan.names, *sparsity):
        if name not in layers:
            raise NoMatchError(f"plan {plan.name}: no layer {name!r}; {closest(name, layers)}")
    plan.check_patterns(layers)
    chosen = {name: plan.choose(name, row.role) for name, row in layers.items()}
    if not plan.is_float and all(rule.is_float for rule in chosen.values()):
        roles = ", ".join(sorted({row.role for row in layers.values()})) or "none"
        raise NoMatchError(f"plan {plan.name} quantizes no layer; the model's roles are: {roles}")
    return tuple(
        _with_rule(row, chosen[row.name], sparsity.get(row.name, 0))
        if isinstance(row, LayerRow)
        else row
        for row in rows
    )


def _with_rule(row: LayerRow, rule: LayerPlan, sparsity: float | Sequence[float]) -> LayerRow:
    nonzero, chained = _taps(row, rule.weight, sparsity)
    return replace(row, weight=rule.weight, input=rule.input, nonzero=nonzero, chained=chained)


def _taps(
    row: LayerRow, precision: Precision, sparsity: float | Sequence[float]
) -> tuple[tuple[float, ...], ...]:
    """`nonzero` and `chained` of a layer from its share of zeros."""
    count = branches(precision)
    shares = (sparsity,) * count if isinstance(sparsity, int | float) else tuple(sparsity)
    if len(shares) != count or not all(0 <= share <= 1 for share in shares):
        raise PlanError(
            f"sparsity {sparsity} of layer {row.name} ({precision}): "
            f"expected a number from 0 to 1, or {count} of them"
        )
    if precision.kind == "binary" and any(shares):
        raise PlanError(f"sparsity {sparsity} of layer {row.name}: binary branches have no zeros")
    if not any(shares):
        return dense_taps(row.weights, row.kernels, count)
    nonzero = tuple(row.weights * (1 - share) for share in shares)
    return nonzero, tuple(max(taps - row.kernels, 0) for taps in nonzero)
