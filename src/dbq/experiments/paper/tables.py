"""The complexity tables of the paper, our figure beside each printed one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from dbq.costs.assignment import assign
from dbq.costs.census import LayerRow, Row, take_census
from dbq.costs.rules import Cost, Totals, fold, representation, storage
from dbq.experiments.paper import printed as paper
from dbq.experiments.paper.printed import NOT_GIVEN, Printed, PrintedTable
from dbq.networks.table import create_model, input_size
from dbq.plans.shipped import PLANS
from dbq.support.text import as_text, plain_table

MEBIBYTE = 8 * 2**20  # bits


@dataclass(frozen=True)
class Figure:
    """A printed figure and ours, in the same unit; None where it cannot be computed.

    >>> Figure("33.37", 33.3731).agrees, str(Figure("0.64", 0.5976))
    (True, '0.64  0.5976 ≠')
    """

    printed: str
    ours: float | None

    @property
    def agrees(self) -> bool | None:
        """True if ours, rounded to the printed digits, is the printed figure."""
        if self.ours is None or self.printed == NOT_GIVEN:
            return None
        return f"{self.ours:.{self.decimals}f}" == self.printed

    @property
    def decimals(self) -> int:
        return len(self.printed.partition(".")[2])

    def __str__(self) -> str:
        ours = "-" if self.ours is None else f"{self.ours:.{self.decimals + 2}f}"
        mark = {True: "✓", False: "≠", None: " "}[self.agrees]
        return f"{self.printed} {ours:>7} {mark}"

    def to_json(self) -> dict[str, Any]:
        printed = None if self.printed == NOT_GIVEN else float(self.printed)
        return {"printed": printed, "ours": self.ours, "agrees": self.agrees}


@dataclass(frozen=True)
class Line:
    """A row of a table: its label, accuracy as printed (context only), figures, and a remark."""

    label: str
    top1: str
    figures: tuple[Figure, ...]
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table of the paper. `columns` names the figures, `units` says what they are counted in."""

    key: str
    title: str
    columns: tuple[str, ...]
    units: tuple[str, ...]
    lines: tuple[Line, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data: key, title, units by column, and rows of label, top1, figures, note."""
        rows = []
        for line in self.lines:
            named = zip(self.columns, line.figures, strict=True)
            figures = {column: figure.to_json() for column, figure in named}
            top1 = line.top1 or None
            rows.append({"label": line.label, "top1": top1, "figures": figures, "note": line.note})
        units = dict(zip(self.columns, self.units, strict=True))
        return {"key": self.key, "title": self.title, "units": units, "rows": rows}

    def __str__(self) -> str:
        has_accuracy = any(line.top1 for line in self.lines)
        units = [f" [{unit}]" if unit else "" for unit in self.units]
        heads = [column + unit for column, unit in zip(self.columns, units, strict=True)]
        columns = ["", *(["top-1"] if has_accuracy else []), *heads]
        table = plain_table(columns, left=len(columns) - len(heads))
        notes = list(dict.fromkeys(line.note for line in self.lines if line.note))
        for line in self.lines:
            number = f" ({notes.index(line.note) + 1})" if line.note else ""
            accuracy = [line.top1] if has_accuracy else []
            table.add_row(line.label + number, *accuracy, *map(str, line.figures))
        return as_text(self.title, table, *(f"({i}) {note}" for i, note in enumerate(notes, 1)))


def paper_tables() -> list[Table]:
    """Every complexity table of the paper and its supplement, recomputed.

    >>> table = paper_tables()[0]
    >>> table.key, all(figure.agrees for line in table.lines for figure in line.figures)
    ('operations', True)
    """
    return [
        _operation_shares(),
        *(_complexity(printed) for printed in paper.COMPLEXITY_TABLES),
        _storage(),
        _sparsity(),
        _statements(),
    ]


@cache
def network_rows(name: str) -> tuple[Row, ...]:
    """The census of a shipped network at the size it was designed for."""
    with torch.random.fork_rng(devices=[]):  # its random weights do not matter
        model = create_model(name)
    image = torch.zeros(1, 3, input_size(name), input_size(name))
    return take_census(model, image, count_zeros=False).rows


def paper_cost(row: Printed) -> Cost:
    """The cost of a printed row by our rules.

    >>> paper_cost(paper.RESNET20.rows[0]).total.C_C
    23734261762
    """
    assert row.plan is not None
    sparsity = published_sparsity(row.zeros) if row.zeros in paper.BRANCH_SPARSITY else None
    rows = assign(network_rows(row.network), row.plan, sparsity)
    return Cost(fold(rows) if row.fold_bn else rows)


def published_sparsity(column: str) -> dict[str, float]:
    """The supplement's branch sparsities by layer name of mobilenet_v1, as shares.

    >>> published_sparsity("DBQ-2T")["blocks.0.pointwise.conv"]
    0.6482
    """
    names = [row.name for row in _pointwise(network_rows("mobilenet_v1"))]
    shares = (round(percent / 100, 4) for percent in paper.BRANCH_SPARSITY[column])
    return dict(zip(names, shares, strict=True))


def _pointwise(rows: Sequence[Row]) -> list[LayerRow]:
    return [row for row in rows if isinstance(row, LayerRow) and row.role == "pointwise"]


def _complexity(printed: PrintedTable) -> Table:
    units = (f"1e{printed.adders} FA",) * 2 + (f"1e{printed.bits} b",) * 2
    lines = tuple(_complexity_line(row, printed) for row in printed.rows)
    return Table(printed.key, printed.title, Totals.METRICS, units, lines)


def _complexity_line(row: Printed, table: PrintedTable) -> Line:
    ours: tuple[float | None, ...] = (None,) * 4
    note = row.note
    if row.plan is not None:
        total = paper_cost(row).total
        adders, bits = 10**table.adders, 10**table.bits
        C_S = None if row.zeros == "unknown" else total.C_S / adders
        ours = (total.C_C / adders, C_S, total.C_R / bits, total.C_M / bits)
        if C_S is None and row.figures[1] != NOT_GIVEN:
            note = ". ".join(filter(None, [note, _unknown_zeros(row, adders)]))
    figures = tuple(Figure(text, value) for text, value in zip(row.figures, ours, strict=True))
    return Line(row.label, row.top1, figures, note)


def _unknown_zeros(row: Printed, adders: int) -> str:
    text = "C_S not computable: the zeros of the trained weights are not published"
    if row.note:  # the row has an inconsistency of its own
        return text
    share = implied_sparsity(row, float(row.figures[1]) * adders)
    return f"{text} (the printed figure means {100 * share:.0f} % of the branches' weights)"


def implied_sparsity(row: Printed, C_S: float) -> float:
    """The share of zeros in every branch that would make a row cost `C_S`; the rules are linear.

    >>> round(implied_sparsity(paper.RESNET20.rows[-1], C_S=1.79e9), 2)
    0.42
    """
    assert row.plan is not None
    dense = assign(network_rows(row.network), row.plan)
    branched = [r.name for r in dense if isinstance(r, LayerRow) and r.weight.is_branched]
    half = assign(dense, row.plan, dict.fromkeys(branched, 0.5))
    C_C = Cost(dense).total.C_C
    return 0.5 * (C_C - C_S) / (C_C - Cost(half).total.C_S)


def _operation_shares() -> Table:
    operations = Cost(network_rows("mobilenet_v1")).operations()
    total = operations["total"]
    lines = []
    for part, printed in paper.OPERATION_SHARES.items():
        ops = operations[part]
        pairs = [(ops.mults, total.mults), (ops.adds, total.adds), (ops.params, total.params)]
        figures = [Figure(p, 100 * a / b) for p, (a, b) in zip(printed, pairs, strict=True)]
        lines.append(Line(part, "", tuple(figures)))
    title = (
        f"MobileNetV1: shares of {total.mults:,} multiplications, {total.adds:,} additions "
        f"and {total.params:,} parameters"
    )
    return Table("operations", title, ("mults", "adds", "params"), ("%",) * 3, tuple(lines))


def _storage() -> Table:
    rows = assign(network_rows("mobilenet_v2"), PLANS["dbq-2t-4"])
    bits, largest = Cost(rows).total, max(representation(row) - storage(row) for row in rows)
    lines = []
    for label, (top1, weights, activations) in paper.STORAGE.items():
        figures = Figure(weights, None), Figure(activations, None)
        note = "not recomputable: per-layer bits not published"
        if label == "DBQ-2T":
            figures = Figure(weights, bits.C_M / MEBIBYTE), Figure(activations, largest / MEBIBYTE)
            note = (
                "activations: the largest input of a layer, 96x112x112 at 8 bits; the text says "
                f"C_R - C_M, which is {(bits.C_R - bits.C_M) / MEBIBYTE:.2f} MB"
            )
        lines.append(Line(label, top1, figures, note))
    title = "MobileNetV2 on ImageNet: storage"
    return Table("storage", title, ("weights", "activations"), ("MB = 2^20 B",) * 2, tuple(lines))


def _sparsity() -> Table:
    """The paper's input to C_S; only its network averages can be recomputed."""
    layers = _pointwise(network_rows("mobilenet_v1"))
    columns = tuple(paper.BRANCH_SPARSITY)
    lines = []
    for i, layer in enumerate(layers):
        given = [f"{paper.BRANCH_SPARSITY[column][i]:.2f}" for column in columns]
        label = f"PW {i}: {layer.D} to {layer.kernels}"
        note = "the paper prints 64 to 32" if i == 0 else ""
        lines.append(Line(label, "", tuple(Figure(text, None) for text in given), note))
    weights = sum(layer.weights for layer in layers)
    averages = []
    for column in columns:
        zeros = zip(layers, paper.BRANCH_SPARSITY[column], strict=True)
        ours = sum(layer.weights * percent for layer, percent in zeros) / weights
        averages.append(Figure(paper.SPARSITY_AVERAGE[column], ours))
    lines.append(Line("average over weights", "", tuple(averages)))
    title = "MobileNetV1: average branch sparsity, used for C_S above"
    return Table("sparsity", title, columns, ("%",) * len(columns), tuple(lines))


def _statements() -> Table:
    lines = []
    for statement in paper.STATEMENTS:
        of, against = (_metric(*place) for place in (statement.of, statement.against))
        ours = {
            "times below": against / of,
            "% below": 100 * (1 - of / against),
            "% above": 100 * (of / against - 1),
        }[statement.relation]
        (table, label, metric), (_, other, other_metric) = statement.of, statement.against
        network = "ResNet-20" if table == "resnet20" else "MobileNetV1"
        text = f"{network} {label}: {metric} {statement.relation} {other_metric} of {other}"
        lines.append(Line(text, "", (Figure(statement.printed, ours),), statement.note))
    title = "Ratios stated in the text, from the figures above (C_S as printed)"
    return Table("statements", title, ("ratio",), ("",), tuple(lines))


def _metric(table: str, label: str, metric: str) -> float:
    printed = next(t for t in paper.COMPLEXITY_TABLES if t.key == table)
    row = next(row for row in printed.rows if row.label == label)
    if metric == "C_S":  # ours would need zeros that are not published
        return float(row.figures[1]) * 10.0**printed.adders
    value: float = getattr(paper_cost(row).total, metric)
    return value
