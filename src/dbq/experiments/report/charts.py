"""The charts of a report, as Vega-Lite specifications: data in, plain dicts out.

One description serves the page, where it is interactive, and a file (`drawing.py`). Fonts and
background are the reader's theme, so a chart says only what carries meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dbq.experiments.report.facts import METRICS, RunFacts
from dbq.experiments.report.pareto import front, label_heights

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name; nothing is fetched
# Told apart by people with any colour vision, on white and on black.
PALETTE = ["#d1495b", "#3d7ea6", "#e8963a", "#5b9a6f", "#9467bd", "#8c7b6b", "#c77ea8", "#7f7f7f"]
RATIO_STEP, LAST_RATIO = 0.05, 4.0
PANEL = 430  # width of one of several charts side by side
BAR = 15  # height of a horizontal bar and the gap below it
COSTS = {
    "C_C": "C_C, 1-bit full adders",
    "C_S": "C_S, without those of zero weights",
    "C_R": "C_R, bits of weights and inputs",
    "C_M": "C_M, bits of the model",
}


def chart(description: str, **parts: Any) -> Spec:
    """A specification with what all have; `description` is read aloud by screen readers."""
    return {"$schema": SCHEMA, "description": description, **parts}


def accuracy_curves(runs: Sequence[RunFacts]) -> Spec:
    """Soft accuracy in training and hard accuracy in the test, epoch by epoch."""
    values = [
        {"run": run.name, "epoch": row["epoch"] + 1, "accuracy": row[key], "of": of}
        for run in runs
        for row in run.metrics
        for key, of in (("soft_top1", "soft, training"), ("top1", "hard, test"))
    ]
    near = {"name": "near", "select": {"type": "point", "fields": ["run"], "on": "pointerover",
                                       "clear": "pointerout"}}  # fmt: skip
    return chart(
        "Top-1 accuracy of every run by epoch: soft network in training, hard network in the test",
        data={"values": values},
        width="container",
        height=280,
        encoding={
            "x": _epochs(values),
            "y": _number("accuracy", "top-1, %", zero=False),
            "color": _runs(run.name for run in runs),
            # Many runs are told apart by pointing at one: the others fade.
            "opacity": {"condition": {"param": "near", "value": 1}, "value": 0.1},
        },
        layer=[
            {"mark": "line",
             "encoding": {"strokeDash": {"field": "of", "type": "nominal", "title": None,
                                         "sort": ["hard, test", "soft, training"],
                                         "legend": None}}},
            {"params": [near],
             "mark": {"type": "point", "filled": True, "size": 45, "tooltip": True},
             "encoding": {"tooltip": _tooltip("run", "epoch", "of", accuracy=".2f")}},
        ],
    )  # fmt: skip


def schedule_curve(runs: Sequence[RunFacts], key: str, title: str) -> Spec | None:
    """Temperature or learning rate by epoch; None if no run has one."""
    values = [
        {"run": run.name, "epoch": row["epoch"] + 1, title: row[key]}
        for run in runs
        for row in run.metrics
        if row[key] is not None
    ]
    if not values:
        return None
    return chart(
        f"The {title} of every run by epoch",
        data={"values": values},
        width="container",
        height=150,
        mark={"type": "line", "point": True, "tooltip": True},
        encoding={
            "x": _epochs(values),
            "y": _number(title, title),
            "color": {**_runs(run.name for run in runs), "legend": None},
            "tooltip": _tooltip("run", "epoch", **{title: ".4g"}),
        },
    )


def accuracy_against_cost(points: Iterable[Mapping[str, Any]], metric: str) -> Spec:
    """Points of `run`, `top1` and the four costs; the Pareto front is drawn as a line.

    A point's `group` says with which others it shares a colour; without it each has its own.
    """
    rows = [{"group": point["run"], **point} for point in points]
    places = {row["run"]: (row[metric], row["top1"]) for row in rows}
    best, heights = front(places), label_heights(places)
    for row in rows:
        row |= {"front": row["run"] in best, "height": heights[row["run"]]}
    across = _number(metric, COSTS[metric], scale={"type": "log", "padding": 30, "nice": False},
                     axis={"format": "~s", "tickCount": 5})  # fmt: skip
    up = _number("top1", "top-1, %", scale={"zero": False, "padding": 12})
    colour = {**_runs(row["group"] for row in rows), "field": "group", "legend": None}
    tooltip = _tooltip("run", top1=".2f", **dict.fromkeys(METRICS, ".4s"))
    return chart(
        f"Accuracy against {COSTS[metric]}: {len(rows)} networks, the Pareto front as a line",
        data={"values": rows},
        width="container",
        height=340,
        layer=[
            {"transform": [{"filter": "datum.front"}],
             "mark": {"type": "line", "interpolate": "step-after", "opacity": 0.4, "color": "#888"},
             "encoding": {"x": across, "y": up}},
            # From a point to its label, where that had to go higher.
            {"mark": {"type": "rule", "opacity": 0.6},
             "encoding": {"x": across, "y": up, "y2": {"field": "height"}, "color": colour}},
            {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
             "encoding": {"x": across, "y": up, "color": colour, "tooltip": tooltip}},
            {"mark": {"type": "text", "align": "left", "dx": 8, "fontSize": 10},
             "encoding": {"x": across, "y": {**up, "field": "height"}, "text": {"field": "run"}}},
        ],
    )  # fmt: skip


def accuracy_against_costs(
    points: Sequence[Mapping[str, Any]], metrics: Iterable[str], title: str
) -> Spec:
    """The same against several costs, side by side."""
    panels = [{**accuracy_against_cost(points, metric), "width": PANEL} for metric in metrics]
    return chart(title, title=title, hconcat=panels)


def kernel_data(kernel: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """What `kernel_chart` draws of a kernel. The page's script does the same."""
    width = (kernel["high"] - kernel["low"]) / len(kernel["counts"])
    bins = [
        {"from": kernel["low"] + i * width, "to": kernel["low"] + (i + 1) * width, "count": count}
        for i, count in enumerate(kernel["counts"])
    ]
    thresholds = [{"threshold": threshold} for threshold in kernel["thresholds"]]
    return {"bins": bins, "thresholds": thresholds, "levels": kernel["levels"]}


def kernel_chart(**datasets: list[dict[str, Any]]) -> Spec:
    """The float weights of a kernel as a histogram, its thresholds, and the levels they go to.

    A layer of the chart whose data is empty is to be left out: it has no extent.
    """
    across = {"type": "quantitative", "title": "weight", "scale": {"zero": False, "nice": False}}
    return chart(
        "Weights of a kernel: histogram of the float ones, levels, and the thresholds between them",
        datasets=datasets,
        width="container",
        height=240,
        layer=[
            {"data": {"name": "bins"},
             "mark": {"type": "bar", "color": PALETTE[1], "opacity": 0.55, "tooltip": True},
             "encoding": {"x": {"field": "from", **across, "bin": "binned"}, "x2": {"field": "to"},
                          "y": _number("count", "weights")}},
            {"data": {"name": "thresholds"},
             "mark": {"type": "rule", "strokeDash": [3, 3], "color": "#888", "tooltip": True},
             "encoding": {"x": {"field": "threshold", **across},
                          "tooltip": _tooltip(threshold=".4f")}},
            {"data": {"name": "levels"},
             "mark": {"type": "rule", "strokeWidth": 3, "color": PALETTE[0], "tooltip": True,
                      "y": {"expr": "height"}, "y2": {"expr": "height - 26"}},
             "encoding": {"x": {"field": "level", **across},
                          "tooltip": _tooltip("count", level=".4f")}},
        ],
    )  # fmt: skip


def scale_ratios(runs: Sequence[RunFacts]) -> Spec:
    """alpha_1 / alpha_2 of all kernels; the paper's region is 1 to 2."""
    values = []
    for run in runs:
        places = Counter(int(min(ratio, LAST_RATIO) / RATIO_STEP) for ratio in run.ratios)
        values += [{"run": run.name, "from": place * RATIO_STEP, "to": (place + 1) * RATIO_STEP,
                    "kernels": count} for place, count in sorted(places.items())]  # fmt: skip
    return chart(
        f"Distribution of alpha 1 / alpha 2 over all kernels with two branches, {LAST_RATIO:g} and "
        "more at the right",
        data={"values": values},
        mark={"type": "bar", "opacity": 0.6, "tooltip": True},
        width="container",
        height=220,
        encoding={
            "x": {"field": "from", "type": "quantitative", "bin": "binned", "title": "α₁ / α₂",
                  "scale": {"zero": False}},
            "x2": {"field": "to"},
            "y": {**_number("kernels", "kernels"), "stack": None},
            "color": _runs(run.name for run in runs),
        },
    )  # fmt: skip


def layer_times(bench: Mapping[str, Any]) -> Spec:
    """Microseconds of each layer in the native engine."""
    values = [layer for layer in bench["layers"] if layer["kernel"]]
    return chart(
        f"Time of each layer in the native engine, {bench['isa']}, {bench['threads']} threads",
        data={"values": values},
        mark={"type": "bar", "tooltip": True},
        width="container",
        height=BAR * len(values),
        encoding={
            "y": {"field": "name", "type": "nominal", "sort": None, "title": None},
            "x": _number("microseconds", "µs"),
            "color": {"field": "kernel", "type": "nominal", "scale": {"range": PALETTE}},
            "tooltip": _tooltip("name", "kernel", microseconds=".1f", gmac_per_second=".1f"),
        },
    )


def _runs(names: Iterable[str]) -> Spec:
    order = list(dict.fromkeys(names))
    scale = {"domain": order, "range": [PALETTE[i % len(PALETTE)] for i in range(len(order))]}
    legend: Spec | None = {"title": None, "orient": "bottom", "columns": 4, "labelLimit": 260}
    return {"field": "run", "type": "nominal", "scale": scale,
            "legend": legend if len(order) <= len(PALETTE) else None}  # fmt: skip


def _epochs(values: Sequence[Mapping[str, Any]]) -> Spec:
    last = max((row["epoch"] for row in values), default=1)
    return {"field": "epoch", "type": "quantitative",
            "axis": {"tickMinStep": 1, "tickCount": min(last, 12), "format": "d"}}  # fmt: skip


def _number(field: str, title: str | None, zero: bool = True, **parts: Any) -> Spec:
    scale = parts.pop("scale", {"zero": zero})
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, **parts}


def _tooltip(*names: str, **formats: str) -> list[Spec]:
    plain: list[Spec] = [{"field": name} for name in names]
    return plain + [
        {"field": name, "type": "quantitative", "format": form} for name, form in formats.items()
    ]
