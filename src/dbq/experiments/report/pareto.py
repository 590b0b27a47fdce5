"""Cost and accuracy: the Pareto front, and the panel that every such figure consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

LINE = 0.045  # height of a label's line, as a share of the range of accuracies
NEAR = 1.6  # points whose costs differ by less have labels above each other
# Distinguishable with any colour vision, on white and on black.
PALETTE = ["#d1495b", "#3d7ea6", "#e8963a", "#5b9a6f", "#9467bd", "#8c7b6b", "#c77ea8", "#7f7f7f"]
COSTS = {
    "C_C": "C_C, 1-bit full adders",
    "C_S": "C_S, without those of zero weights",
    "C_R": "C_R, bits of weights and inputs",
    "C_M": "C_M, bits of the model",
}


def pareto_panel(
    metric: str,
    points: alt.Chart,
    *,
    span: tuple[str, str] | None = None,
    label: str = "",
    title: str = "top-1, %",
    line: bool = True,
) -> alt.LayerChart:
    """Accuracy against a cost; the rows are those of `placed`, in a data set named after the cost.

    `points` is the mark of a point with all of its encodings except the position. `span` names the
    ends of a vertical line at each point, `label` the text to its right. `line` draws the Pareto
    front.
    """

    def up(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=title).scale(zero=False, padding=12)

    across = alt.X(f"{metric}:Q", title=COSTS[metric]).axis(format="~s", tickCount=5)
    across = across.scale(type="log", nice=False, padding=30 if label else 15)
    base = alt.Chart().encode(across, up("top1"))
    layers = [points.encode(across, up("top1"))]
    if span:
        low, high = span
        rule = base.mark_rule(opacity=0.6).encode(up(low), alt.Y2(high), points.encoding.color)
        layers.insert(0, rule)
    if line:
        steps = base.transform_filter("datum.front")
        layers.insert(0, steps.mark_line(interpolate="step-after", opacity=0.4, color="#888"))
    if label:
        text = base.mark_text(align="left", dx=8, fontSize=10)
        layers.append(text.encode(up("height"), alt.Text(f"{label}:N")))
    return alt.LayerChart(layer=layers, data=alt.NamedData(metric))


def placed(rows: Sequence[Mapping[str, Any]], metric: str) -> list[dict[str, Any]]:
    """Rows of a panel: whether each is on the front, and at which height its label goes."""
    places = {str(i): (row[metric], row["top1"]) for i, row in enumerate(rows)}
    best, heights = front(places), label_heights(places)
    return [
        {**row, "front": i in best, "height": heights[i]}
        for i, row in zip(places, rows, strict=True)
    ]


def front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Names on the front of (cost, accuracy) points, cheapest first.

    A point is on it unless another is at least as good in both and better in one. Equal points are
    all on it.

    >>> front({"a": (1.0, 50.0), "b": (2.0, 40.0), "c": (3.0, 60.0)})
    ['a', 'c']
    """
    names: list[str] = []
    best = float("-inf")
    reached = float("inf")  # the cost at which `best` was reached
    for name, (cost, accuracy) in sorted(points.items(), key=lambda p: (p[1][0], -p[1][1], p[0])):
        if accuracy > best or (accuracy == best and cost == reached):
            names.append(name)
            best, reached = accuracy, cost
    return names


def label_heights(points: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """A height for each label, so that those of points one above the other do not overlap.

    >>> label_heights({"a": (1.0, 50.0), "b": (1.0, 50.1), "c": (9.0, 50.0), "d": (1.0, 90.0)})
    {'a': 50.0, 'c': 50.0, 'b': 51.8, 'd': 90.0}
    """
    accuracies = [accuracy for _, accuracy in points.values()]
    gap = LINE * (max(accuracies) - min(accuracies)) if accuracies else 0.0
    heights: dict[str, float] = {}
    for name, (cost, accuracy) in sorted(points.items(), key=lambda item: item[1][1]):
        below = [heights[other] for other in heights if NEAR > points[other][0] / cost > 1 / NEAR]
        heights[name] = max(accuracy, max(below) + gap) if below else accuracy
    return heights
