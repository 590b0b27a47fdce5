"""What a network costs: C_C, C_S, C_R and C_M of the paper, from the rows of a census.

The rules below are those that reproduce the paper's tables:

1. A float operand has 23 bits (its mantissa) in C_C and C_S, 32 bits in C_R and C_M.
2. A fixed-point layer takes N [D Bw Ba + (D - 1)(Ba + Bw + ceil(log2 D) - 1)] full adders.
3. A layer of B branches takes B N (D - 1)(Ba + ceil(log2 D) - 1): no multiplier, no weight term.
   It stores 2 bits a weight and ternary branch, 1 bit a weight and binary branch. Scales and
   thresholds are not counted.
4. Ba is the precision of the layer's input tensor.
5. Batch norm takes 23 * 23 + 46 for each element it produces; folded into its layer, 46.
6. Pooling, activations, residual sums and biases are not in C_C and C_S.
7. C_M is the weights at their precision and 32 bits for every other parameter. A folded batch norm
   and the bias it leaves behind are not counted.
8. C_R is C_M plus, for every weight layer, the elements of its input times their precision.
9. C_S has D' (the weights that are not zero) instead of D, but in ceil(log2 D).
10. A product of two tensors outside of layers (a gate, a learned scale) takes 23 * 23 for each element,
    as the engine computes it in float; an element of a bilinear resize 3 (23 * 23 + 2 * 46). The
    paper's networks have neither.
11. A transposed convolution makes its dot products once for each pixel of its input.

Rules 1 and 5 and the missing terms of 3 are the paper's conventions, found by recomputing its tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import nn

from dbq.costs import census
from dbq.costs.assignment import Sparsity, assign
from dbq.costs.census import LayerRow, NormRow, ParamRow, Row, take_census
from dbq.costs.watch import PoolRow, ProductRow
from dbq.plans.plan import Plan
from dbq.plans.precision import Precision
from dbq.plans.shipped import load_plan

MANTISSA_BITS = 23
STORED_FLOAT_BITS = 32
By = Literal["layer", "role", "ops"]

# The paper's names for the parts of a network, in the order of its tables.
GROUPS = {"first": "FL", "depthwise": "DW", "pointwise": "PW", "conv": "CONV", "last": "FC",
          "pool": "PL", "batch_norm": "BN", "product": "MUL", "other": "OTHER"}  # fmt: skip


def computation(row: Row) -> int:
    """Full adders of one row: its part of C_C, eq. (cc).

    >>> computation(NormRow("bn", elements=10, params=2, follows_layer=True))  # 10 (23 * 23 + 46)
    5750
    """
    if isinstance(row, LayerRow):
        branches = census.branches(row.weight)
        return int(_full_adders(row, *census.dense_taps(row.weights, row.kernels, branches)))
    if isinstance(row, NormRow):
        multiply = 0 if row.folded else MANTISSA_BITS**2
        return row.elements * (multiply + 2 * MANTISSA_BITS)
    if isinstance(row, ProductRow):
        return row.mults * MANTISSA_BITS**2 + row.adds * 2 * MANTISSA_BITS
    return 0


def sparse_computation(row: Row) -> float:
    """Full adders that remain if zero weights are skipped: a row's part of C_S, eq. (sc).

    A whole number unless the row's sparsity is an average.

    >>> from torch import zeros
    >>> layer = nn.Linear(4, 1, bias=False)
    >>> _ = nn.init.constant_(layer.weight, 1.0)
    >>> layer.weight.data[0, 0] = 0.0
    >>> row, = cost(layer, zeros(1, 4)).rows
    >>> computation(row), sparse_computation(row)  # 4 * 23 * 23 + 3 * 47, 3 * 23 * 23 + 2 * 47
    (2257, 1681)
    """
    if isinstance(row, LayerRow):
        return _full_adders(row, row.nonzero, row.chained)
    return computation(row)


def _full_adders(row: LayerRow, taps: Sequence[float], chained: Sequence[float]) -> float:
    """Rules 2 and 3 over all kernels; `taps` is D and `chained` D - 1, summed, for each branch."""
    Ba = _operand_bits(row.input)
    growth = max(row.D - 1, 0).bit_length() - 1  # ceil(log2 D) - 1
    if row.weight.is_branched:
        return row.positions * sum(chained) * (Ba + growth)
    Bw = _operand_bits(row.weight)
    return row.positions * (sum(taps) * Bw * Ba + sum(chained) * (Ba + Bw + growth))


def _operand_bits(precision: Precision) -> int:
    return MANTISSA_BITS if precision.is_float else precision.size


def storage(row: Row) -> int:
    """Bits of the parameters of one row: its part of C_M, eq. (mc).

    >>> storage(NormRow("bn", elements=10, params=2, follows_layer=True))
    64
    """
    if isinstance(row, LayerRow):
        weights = row.weights * _stored_bits(row.weight) if row.stored else 0
        return weights + STORED_FLOAT_BITS * row.bias
    return STORED_FLOAT_BITS * parameters(row)


def representation(row: Row) -> int:
    """Bits of parameters and of the input tensor: a row's part of C_R, eq. (rc).

    >>> from torch import zeros
    >>> row, = cost(nn.Conv2d(1, 2, 3, bias=False), zeros(1, 1, 8, 8)).rows
    >>> storage(row), representation(row)  # 18 and 18 + 64 numbers of 32 bits
    (576, 2624)
    """
    inputs = row.inputs * _stored_bits(row.input) if isinstance(row, LayerRow) else 0
    return storage(row) + inputs


def _stored_bits(precision: Precision) -> int:
    return 2 * precision.size if precision.kind == "ternary" else precision.size


def parameters(row: Row) -> int:
    """The number of parameters a row stores; a folded batch norm stores none.

    >>> parameters(NormRow("bn", elements=10, params=2, follows_layer=True, folded=True))
    0
    """
    if isinstance(row, LayerRow):
        return row.bias + (row.weights if row.stored else 0)
    if isinstance(row, NormRow):
        return 0 if row.folded else row.params
    return row.params if isinstance(row, ParamRow) else 0


def group(row: Row) -> str:
    """The part of the network a row belongs to: a role, or pool, batch_norm, product, other.

    >>> group(PoolRow("pool", adds=48))
    'pool'
    """
    if isinstance(row, LayerRow):
        return row.role
    groups = {NormRow: "batch_norm", PoolRow: "pool", ProductRow: "product", ParamRow: "other"}
    return groups[type(row)]


@dataclass(frozen=True)
class Totals:
    """Sums over rows. C_C and C_S in full adders, C_R and C_M in bits: the paper's four METRICS."""

    METRICS: ClassVar[tuple[str, ...]] = ("C_C", "C_S", "C_R", "C_M")
    C_C: int
    C_S: float
    C_R: int
    C_M: int
    params: int
    macs: int

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Totals:
        rows = list(rows)
        return cls(
            C_C=sum(map(computation, rows)),
            C_S=sum(map(sparse_computation, rows)),
            C_R=sum(map(representation, rows)),
            C_M=sum(map(storage, rows)),
            params=sum(map(parameters, rows)),
            macs=sum(row.N * row.D for row in rows if isinstance(row, LayerRow)),
        )

    @property
    def metrics(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in self.METRICS}


@dataclass(frozen=True)
class Operations:
    """Multiplications, additions and parameters of the network before quantization."""

    mults: int
    adds: int
    params: int

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Operations:
        rows = list(rows)
        return cls(
            mults=sum(_operations(row)[0] for row in rows),
            adds=sum(_operations(row)[1] for row in rows),
            params=sum(map(parameters, rows)),
        )


def _operations(row: Row) -> tuple[int, int]:
    """Multiplications and additions; the bias of a layer is not counted, as in the paper."""
    if isinstance(row, LayerRow):
        return row.N * row.D, row.N * max(row.D - 1, 0)
    if isinstance(row, NormRow):
        return 0 if row.folded else row.elements, row.elements
    if isinstance(row, ProductRow):
        return row.mults, row.adds
    return 0, row.adds if isinstance(row, PoolRow) else 0


@dataclass(frozen=True)
class Cost:
    """The cost of one inference: `rows`, their sums, and what was seen but not counted.

    >>> from torch import zeros
    >>> found = cost(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU()), zeros(1, 1, 5, 5))
    >>> found.total.macs, found.total.params, found.not_counted
    (324, 40, ())
    """

    rows: tuple[Row, ...]
    not_counted: tuple[str, ...] = ()
    note: str = ""

    @cached_property
    def total(self) -> Totals:
        return Totals.of(self.rows)

    def by_role(self) -> dict[str, Totals]:
        """Sums by role, then batch_norm and other; parts that do not occur are left out."""
        return {name: Totals.of(rows) for name, rows in self._groups().items() if name != "pool"}

    def operations(self) -> dict[str, Operations]:
        """The operation table, by the paper's names FL, DW, PW, CONV, FC, PL, BN, OTHER, and total.

        It counts the network itself: precision makes no difference to it.
        """
        table = {GROUPS[name]: Operations.of(rows) for name, rows in self._groups().items()}
        return {**table, "total": Operations.of(self.rows)}

    def to_json(self) -> dict[str, Any]:
        """Plain data with these keys, kept stable:

        total          C_C, C_S (full adders), C_R, C_M (bits), params, macs
        by_role        the same for first, depthwise, pointwise, conv, last, batch_norm, other
        operations     mults, adds, params for FL, DW, PW, CONV, FC, PL, BN, OTHER, total
        rows           for each row its group and name, C_C, C_S, C_R, C_M, params, and for layers
                       also D, N, macs, inputs, weight, input (precisions) and sparsity
        not_counted    operations and layers without a rule, as text
        note           a remark on the figures, or ""
        """
        return {
            "total": asdict(self.total),
            "by_role": {name: asdict(totals) for name, totals in self.by_role().items()},
            "operations": {name: asdict(ops) for name, ops in self.operations().items()},
            "rows": [_row_to_json(row) for row in self.rows],
            "not_counted": list(self.not_counted),
            "note": self.note,
        }

    def table(self, by: By = "role") -> str:
        """The cost as text: by layer, by role, or the operation table (`ops`)."""
        from dbq.costs.rendering import render_cost  # which imports this file

        return render_cost(self, by)

    def __str__(self) -> str:
        return self.table()

    def _groups(self) -> dict[str, list[Row]]:
        groups: dict[str, list[Row]] = {name: [] for name in GROUPS}
        for row in self.rows:
            groups[group(row)].append(row)
        return {name: rows for name, rows in groups.items() if rows}


def _row_to_json(row: Row) -> dict[str, Any]:
    totals = asdict(Totals.of([row]))
    macs = totals.pop("macs")
    result = {"group": group(row), "name": row.name, **totals}
    if isinstance(row, LayerRow):
        precisions = {"weight": str(row.weight), "input": str(row.input)}
        result |= {"D": row.D, "N": row.N, "macs": macs, "inputs": row.inputs, **precisions}
        result["sparsity"] = row.sparsity
    return result


def cost(model: nn.Module, example_input: Any, *, fold_bn: bool = False) -> Cost:
    """What one inference of `model` costs, float or prepared, as it is now.

    The model runs once on the first image of `example_input` (a tensor, or a tuple of arguments)
    and is left unchanged. A layer that runs twice computes twice and is stored once. `fold_bn`
    folds every batch norm that directly follows a weight layer.

    >>> from torch import zeros
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8))
    >>> cost(net, zeros(1, 3, 8, 8)).total.C_M, cost(net, zeros(1, 3, 8, 8), fold_bn=True).total.C_M
    (7424, 6912)
    """
    found = take_census(model, example_input)
    return Cost(fold(found.rows) if fold_bn else found.rows, found.not_counted)


def plan_cost(
    model: nn.Module,
    example_input: Any,
    plan: Plan | str | Path,
    *,
    sparsity: Sparsity | None = None,
    fold_bn: bool = False,
) -> Cost:
    """What `model` would cost under `plan`, from its shapes alone; nothing is quantized.

    `sparsity` gives the share of zero weights by layer name: one number, or one for each branch.
    Other layers count as dense, so that C_S = C_C for them. Works on the meta device too.

    >>> from torch import zeros
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 16, 1), nn.Conv2d(16, 4, 1))
    >>> half = plan_cost(net, zeros(1, 3, 8, 8), "dbq-2t-4", sparsity={"1": 0.5})
    >>> half.rows[1].weight, half.rows[1].nonzero
    (Precision(kind='ternary', size=2), (64.0, 64.0))
    """
    found = take_census(model, example_input, count_zeros=False)
    rows = assign(found.rows, load_plan(plan), sparsity)
    return Cost(fold(rows) if fold_bn else rows, found.not_counted)


def fold(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Rows with every batch norm folded that follows a weight layer.

    >>> fold([NormRow("bn", elements=10, params=2, follows_layer=True)])[0].folded
    True
    """
    return tuple(
        replace(row, folded=True) if isinstance(row, NormRow) and row.follows_layer else row
        for row in rows
    )
