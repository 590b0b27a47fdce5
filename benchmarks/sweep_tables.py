"""Tables of width against precision, from results/sweep_cifar10-vehicles.json."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean

from tabular import result, table

from dbq.experiments.report.pareto import front

WIDTH, PRECISION = "model.width", "quantize.precision"
COSTS = ("C_C", "C_S", "C_R", "C_M")
LONG = {"8b": "8 bits", "4b": "4 bits", "2b": "2 bits", "1T": "one branch", "2T": "two branches"}
# What the paper says of one branch against 8 bits on Visual Wake Words.
PAPER = {0.5: "-69 %, same accuracy", 0.125: "-45 %, -3"}


@dataclass(frozen=True)
class Point:
    """Width and precision, the accuracy of each seed, costs as the mean over seeds."""

    width: float
    precision: str
    seeds: list[float]
    best: list[float]
    cost: dict[str, float]

    @property
    def top1(self) -> float:
        return mean(self.seeds)


def points() -> list[Point]:
    return [
        Point(p["values"][WIDTH], p["values"].get(PRECISION, "float"), p["top1"], p["best_top1"],
              p["cost"])
        for p in result("sweep_cifar10-vehicles")["points"]
    ]  # fmt: skip


def curve(precision: str) -> list[Point]:
    """The points of one precision, narrow to wide."""
    return sorted((p for p in points() if p.precision == precision), key=lambda p: p.width)


def every_point() -> str:
    heads = ["width", "pointwise weights", "top-1: mean (each seed)", "best epoch", "C_C, 10⁶ FA",
             "C_S, 10⁶ FA", "C_R, Mb", "C_M, Mb", "on the front of"]  # fmt: skip
    fronts = {metric: _front(metric) for metric in ("C_S", "C_M")}
    rows = []
    for p in sorted(points(), key=lambda p: p.width):  # stable: precisions stay in their order
        each = f" ({_list(p.seeds)})" if len(p.seeds) > 1 else ""
        best = ", ".join(m for m, names in fronts.items() if (p.width, p.precision) in names)
        rows.append([f"{p.width:g}", LONG.get(p.precision, p.precision), f"{p.top1:.2f}{each}",
                     _list(p.best), *(f"{p.cost[m] / 1e6:.2f}" for m in COSTS), best])  # fmt: skip
    return table(heads, rows)


def _list(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def _front(metric: str) -> set[tuple[float, str]]:
    """Width and precision of the quantized networks on the Pareto front of a cost."""
    quantized = {
        f"{p.width} {p.precision}": (p.cost[metric], p.top1)
        for p in points()
        if p.precision in LONG
    }
    parts = (name.split() for name in front(quantized))
    return {(float(width), precision) for width, precision in parts}


def at_cost(line: list[Point], metric: str, cost: float) -> float | None:
    """Accuracy at a cost between two widths, interpolated in the logarithm of the cost."""
    for low, high in pairwise(line):
        if low.cost[metric] <= cost <= high.cost[metric]:
            whole = math.log(high.cost[metric] / low.cost[metric])
            share = math.log(cost / low.cost[metric]) / whole
            return low.top1 + share * (high.top1 - low.top1)
    return None


def equal_cost() -> str:
    """Two branches, and what one branch reaches at the same cost where its widths enclose it."""
    heads = ["2T at width", "top-1", "C_M, Mb", "1T at that C_M", "difference", "1T at that C_S",
             "difference"]  # fmt: skip
    rows = []
    for two in curve("2T"):
        cells = []
        for metric in ("C_M", "C_S"):
            one = at_cost(curve("1T"), metric, two.cost[metric])
            cells += ["–", "–"] if one is None else [f"{one:.2f}", f"{two.top1 - one:+.2f}"]
        rows.append([f"{two.width:g}", f"{two.top1:.2f}", f"{two.cost['C_M'] / 1e6:.2f}", *cells])
    return table(heads, rows)


def next_width() -> str:
    """Two branches against one branch in the next wider network."""
    rows = [
        [f"2T at {two.width:g} against 1T at {one.width:g}", f"{two.top1 - one.top1:+.2f}",
         *(_change(two, one, metric) for metric in ("C_M", "C_S", "C_R"))]
        for two, one in zip(curve("2T"), curve("1T")[1:], strict=False)
    ]  # fmt: skip
    paper = ["paper, Visual Wake Words: 2T at 0.25 against 1T at 0.375", "0", "0", "-26 %", "-30 %"]
    return table(["compared", "top-1", "C_M", "C_S", "C_R"], [*rows, paper])


def _change(a: Point, b: Point, metric: str) -> str:
    return f"{100 * (a.cost[metric] / b.cost[metric] - 1):+.0f} %"


def fixed_point() -> str:
    heads = ["width", "C_S of 1T against 8 bits", "top-1", "C_S of 2T against 8 bits", "top-1",
             "paper, 1T"]  # fmt: skip
    return table(heads, (
        [f"{fixed.width:g}",
         *(cell for p in (one, two) for cell in (_change(p, fixed, "C_S"),
                                                 f"{p.top1 - fixed.top1:+.2f}")),
         PAPER.get(fixed.width, "")]
        for fixed, one, two in zip(curve("8b"), curve("1T"), curve("2T"), strict=True)
    ))  # fmt: skip


def spans() -> str:
    """How much each cost varies: over precisions at one width, over widths at one precision."""
    widths = {p.width for p in points()}
    return table(["cost", "over precisions at one width", "over widths at one precision"], (
        [metric,
         _span(metric, ([p for p in points() if p.width == w and p.precision in LONG]
                        for w in sorted(widths))),
         _span(metric, (curve(precision) for precision in LONG))]
        for metric in COSTS
    ))  # fmt: skip


def _span(metric: str, groups: Iterable[list[Point]]) -> str:
    """The mean over groups of largest / smallest."""
    costs = [[p.cost[metric] for p in group] for group in groups]
    return f"{mean(max(each) / min(each) for each in costs):.1f}x"


TABLES: dict[str, Callable[[], str]] = {
    "sweep": every_point,
    "sweep equal-cost": equal_cost,
    "sweep next-width": next_width,
    "sweep fixed-point": fixed_point,
    "sweep spans": spans,
}
