"""A sweep in pictures: its Pareto figure, and one page about all its runs."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

from dbq.experiments.report import charts
from dbq.experiments.report.drawing import draw
from dbq.experiments.report.page import write_report
from dbq.experiments.report.pareto import front
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


def sweep_figure(outcome: Outcome) -> charts.Spec:
    """Accuracy against costs: the first key that varies by colour, the others by shape.

    A point is the mean over seeds, its line goes from the worst to the best of them. Float baselines
    are left out: they cost so much that the rest would be a heap at the left.
    """
    sweep = outcome.sweep
    first, *others = sweep.keys.values() or [""]  # only seeds: one point
    points = [p for p in outcome.points if set(p.values) == set(sweep.keys)]
    rows = [_row(point, list(sweep.keys)) for point in points]
    title = f"{sweep.name}: {sweep.about}"
    panels = [_panel(rows, cost, first, ", ".join(others)) for cost in SHOWN]
    return charts.chart(title, title=title, hconcat=panels)


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


def _panel(rows: list[dict[str, Any]], cost: str, first: str, others: str) -> charts.Spec:
    places = {str(i): (row[cost], row["top1"]) for i, row in enumerate(rows)}
    steps = [rows[int(i)] for i in front(places)]
    across = {"field": cost, "type": "quantitative", "title": charts.COSTS[cost],
              "scale": {"type": "log", "nice": False, "padding": 15},
              "axis": {"format": "~s", "tickCount": 5}}  # fmt: skip
    up = {"field": "top1", "type": "quantitative", "title": "top-1, %",
          "scale": {"zero": False, "padding": 10}}  # fmt: skip
    # In the order of the grid, not of the alphabet: 8b, 4b, 2b, 1T, 2T.
    order = {name: list(dict.fromkeys(row[name] for row in rows)) for name in ("first", "others")}
    colour = {"field": "first", "type": "nominal", "title": first, "sort": order["first"],
              "scale": {"range": charts.PALETTE}}  # fmt: skip
    shape = {"field": "others", "type": "nominal", "title": others, "sort": order["others"]}
    return {
        "width": 300,
        "height": 320,
        "layer": [
            {"data": {"values": steps},
             "mark": {"type": "line", "interpolate": "step-after", "opacity": 0.4, "color": "#888"},
             "encoding": {"x": across, "y": up}},
            {"data": {"values": rows}, "mark": {"type": "rule", "opacity": 0.5},
             "encoding": {"x": across, "y": {**up, "field": "worst"}, "y2": {"field": "best"},
                          "color": colour}},
            {"data": {"values": rows},
             "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1, "tooltip": True},
             "encoding": {"x": across, "y": up, "color": colour,
                          **({"shape": shape} if others else {})}},
        ],
    }  # fmt: skip
