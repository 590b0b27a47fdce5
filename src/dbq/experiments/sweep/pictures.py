"""The Pareto figure of a sweep, and the page about all its runs."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

import altair as alt

from dbq.experiments.report.charts import Spec, finished
from dbq.experiments.report.drawing import draw
from dbq.experiments.report.page import write_report
from dbq.experiments.report.pareto import PALETTE, pareto_panel, placed
from dbq.experiments.sweep.outcome import LOCK, Outcome, Point
from dbq.support.lock import only_one

SHOWN = ("C_S", "C_R", "C_M")


def draw_sweep(outcome: Outcome, out: Path) -> list[Path]:
    """Write sweep.svg and report.html into `out`; returns both."""
    page, title = out / "report.html", f"{outcome.sweep.name}: {outcome.sweep.about}"
    with only_one(out / LOCK):
        figure = draw(sweep_figure(outcome), out / "sweep.svg")
        write_report([Path(row.run) for row in outcome.rows], page, title)
    return [figure, page]


def sweep_figure(outcome: Outcome) -> Spec:
    """Accuracy against costs: the first key that varies by colour, the others by shape.

    A point is the mean over seeds, its line spans the worst to the best of them. Float baselines are
    left out: they cost so much that they would compress the rest into the left edge.
    """
    sweep = outcome.sweep
    first, *others = sweep.keys.values() or [""]  # only seeds: one point
    points = [p for p in outcome.points if set(p.values) == set(sweep.keys)]
    rows = [_row(point, list(sweep.keys)) for point in points]
    marks = _marks(rows, first, ", ".join(others))
    panels = [pareto_panel(cost, marks, span=("worst", "best")) for cost in SHOWN]
    sized = [panel.properties(width=300, height=320) for panel in panels]
    title = f"{sweep.name}: {sweep.about}"
    datasets = {cost: placed(rows, cost) for cost in SHOWN}
    return finished(alt.hconcat(*sized, title=title), title, **datasets)


def _row(point: Point, keys: list[str]) -> dict[str, Any]:
    first, *others = [str(point.values[key]) for key in keys] or ["all"]
    return {
        "first": first,
        "others": " ".join(others),
        "top1": mean(point.top1),
        "worst": min(point.top1),
        "best": max(point.top1),
        "seeds": len(point.top1),
        **point.cost,
    }


def _marks(rows: list[dict[str, Any]], first: str, others: str) -> alt.Chart:
    # In the order of the grid, not of the alphabet: 8b, 4b, 2b, 1T, 2T.
    colours, shapes = (
        list(dict.fromkeys(row[name] for row in rows)) for name in ("first", "others")
    )
    marks: alt.Chart = alt.Chart().mark_point(filled=True, size=80, opacity=1, tooltip=True)
    marks = marks.encode(alt.Color("first:N", title=first, sort=colours).scale(range=PALETTE))
    return marks.encode(alt.Shape("others:N", title=others, sort=shapes)) if others else marks
