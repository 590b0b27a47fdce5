"""A sweep in pictures: its Pareto figure, and one page about all its runs."""

from __future__ import annotations

from pathlib import Path

from dbq.report.charts import accuracy_against_costs
from dbq.report.drawing import draw
from dbq.report.page import write_report
from dbq.sweep_outcome import COSTS, Outcome, Row

SHOWN = ("C_S", "C_M")


def draw_sweep(outcome: Outcome, out: Path) -> list[Path]:
    """Write sweep.svg and report.html into `out`; returns both."""
    keys = outcome.sweep.keys
    points = [
        {
            "run": label(row, list(keys)),
            "top1": row.top1,
            **{cost: row.cost[cost] for cost in COSTS},
        }
        for row in outcome.rows
    ]
    title = f"{outcome.sweep.name}: {outcome.sweep.about}"
    figure = draw(accuracy_against_costs(points, SHOWN, title), out / "sweep.svg")
    page = out / "report.html"
    write_report([Path(row.run) for row in outcome.rows], page, title)
    return [figure, page]


def label(row: Row, keys: list[str]) -> str:
    """What varies, in short: the values of the keys, and the seed if it is not the first."""
    values = [str(row.values.get(key, "float")) for key in keys]
    return " ".join([*values, *([f"seed {row.seed}"] if row.seed else [])])
