"""A Cost as text that fits 100 columns."""

from __future__ import annotations

from collections.abc import Callable

from dbq.costs.census import LayerRow
from dbq.costs.rules import GROUPS, By, Cost, Totals, group
from dbq.support.text import Table, as_text, plain_table, short

SHOWN = 10  # entries of `not_counted` that are listed; the rest are counted


def render_cost(cost: Cost, by: By) -> str:
    """The table asked for, then what was not counted."""
    tables: dict[By, Callable[[Cost], Table]]
    tables = {"layer": _by_layer, "role": _by_role, "ops": _operations}
    return as_text(tables[by](cost), *_remarks(cost))


def _by_layer(cost: Cost) -> Table:
    columns = ["layer", "part", "weight", "input", "D", "N", "zeros", "C_C", "C_S", "C_R", "C_M"]
    table = plain_table(columns, left=4)
    for row in cost.rows:
        if isinstance(row, LayerRow):
            shape = (str(row.D), short(row.N), f"{row.sparsity:.1%}")
            head = (row.name or "model", GROUPS[row.role], str(row.weight), str(row.input))
            table.add_row(*head, *shape, *_metrics(Totals.of([row])))
    blank = ("",) * 6
    for name, totals in cost.by_role().items():
        if name in ("batch_norm", "other"):
            count = sum(group(row) == name for row in cost.rows)
            table.add_row(f"{count} x {name.replace('_', ' ')}", *blank, *_metrics(totals))
    table.add_section()
    table.add_row("total", *blank, *_metrics(cost.total))
    return table


def _by_role(cost: Cost) -> Table:
    table = plain_table(["part", "params", "MACs", "C_C", "% of C_C", "C_S", "C_R", "C_M"])
    for name, totals in cost.by_role().items():
        table.add_row(name.replace("_", " "), *_role_cells(totals, cost.total))
    table.add_section()
    table.add_row("total", *_role_cells(cost.total, cost.total))
    return table


def _operations(cost: Cost) -> Table:
    table = plain_table(["part", "mults", "%", "adds", "%", "params", "%"])
    operations = cost.operations()
    total = operations.pop("total")
    for name, ops in [*operations.items(), ("total", total)]:
        if name == "total":
            table.add_section()
        pairs = [(ops.mults, total.mults), (ops.adds, total.adds), (ops.params, total.params)]
        cells = [cell for part, whole in pairs for cell in (f"{part:,}", _percent(part, whole))]
        table.add_row(name, *cells)
    return table


def _remarks(cost: Cost) -> list[str]:
    lines = ["C_C, C_S: 1-bit full adders. C_R, C_M: bits. One image."]
    if cost.note:
        lines.append(f"note: {cost.note}")
    if cost.not_counted:
        lines.append("not counted (no rule for it):")
        lines += [f"  {entry}" for entry in cost.not_counted[:SHOWN]]
        if (more := len(cost.not_counted) - SHOWN) > 0:
            lines.append(f"  and {more} more")
    return lines


def _metrics(totals: Totals) -> list[str]:
    return [short(value) for value in totals.metrics.values()]


def _role_cells(totals: Totals, whole: Totals) -> list[str]:
    c_c, *rest = _metrics(totals)
    counts = [short(totals.params), short(totals.macs)]
    return [*counts, c_c, _percent(totals.C_C, whole.C_C), *rest]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}" if whole else "-"
