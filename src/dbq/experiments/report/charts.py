"""The charts of a report as Vega-Lite specifications: data in, plain dicts out.

One description serves the page, where it is interactive, and a file (`drawing.py`). Fonts and
background come from the theme of whoever shows the chart, so a chart sets only what carries meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from dbq.experiments.report.facts import METRICS, RunFacts
from dbq.experiments.report.pareto import COSTS, PALETTE, pareto_panel, placed

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name; nothing is fetched
ROWS = alt.NamedData("rows")
RATIO_STEP, LAST_RATIO = 0.05, 4.0
PANEL = 430  # width of one of several charts side by side
BAR = 15  # height of a horizontal bar and the gap below it


def finished(drawing: Any, description: str, **datasets: Sequence[Mapping[str, Any]]) -> Spec:
    """The specification of an altair chart; `description` is what screen readers read out.

    The chart refers to its data by name: altair would copy and check each of their values.
    """
    spec: Spec = drawing.to_dict()
    del spec["config"]
    return {**spec, "$schema": SCHEMA, "description": description, "datasets": datasets}


def accuracy_curves(runs: Sequence[RunFacts]) -> Spec:
    """Soft accuracy in training and hard accuracy in the test, epoch by epoch."""
    rows = [
        {"run": run.name, "epoch": row["epoch"] + 1, "accuracy": row[key], "of": of}
        for run in runs
        for row in run.metrics
        for key, of in (("soft_top1", "soft, training"), ("top1", "hard, test"))
    ]
    # Many runs are told apart by pointing at one: the others fade.
    near = alt.selection_point("near", fields=["run"], on="pointerover", clear="pointerout")
    base = alt.Chart(ROWS, width="container", height=280).encode(
        _epochs(rows),
        alt.Y("accuracy:Q", title="top-1, %").scale(zero=False),
        _colour(run.name for run in runs),
        opacity=alt.when(near).then(alt.value(1)).otherwise(alt.value(0.1)),
    )
    order = ["hard, test", "soft, training"]
    lines = base.mark_line().encode(alt.StrokeDash("of:N", title=None, sort=order, legend=None))
    tooltip = ["run:N", "epoch:N", "of:N", alt.Tooltip("accuracy:Q", format=".2f")]
    points = base.mark_point(filled=True, size=45).encode(tooltip=tooltip).add_params(near)
    return finished(
        lines + points.properties(name="dots"),
        "Top-1 accuracy of every run by epoch: soft network in training, hard network in the test",
        rows=rows,
    )


def schedule_curve(runs: Sequence[RunFacts], key: str, title: str) -> Spec | None:
    """Temperature or learning rate by epoch; None if no run has one."""
    rows = [
        {"run": run.name, "epoch": row["epoch"] + 1, title: row[key]}
        for run in runs
        for row in run.metrics
        if row[key] is not None
    ]
    if not rows:
        return None
    curves = alt.Chart(ROWS, width="container", height=150).mark_line(point=True)
    curves = curves.encode(
        _epochs(rows),
        alt.Y(f"{title}:Q").title(title),
        _colour(run.name for run in runs).legend(None),
        tooltip=["run:N", "epoch:N", alt.Tooltip(f"{title}:Q", format=".4g")],
    )
    return finished(curves, f"The {title} of every run by epoch", rows=rows)


def accuracy_against_cost(points: Iterable[Mapping[str, Any]], metric: str) -> Spec:
    """Points of `run`, `top1` and the four costs; the Pareto front is drawn as a line.

    Points with the same `group` share a colour; without it each has its own.
    """
    rows = placed([{"group": point["run"], **point} for point in points], metric)
    panel = _labelled_panel(rows, metric).properties(width="container")
    about = f"Accuracy against {COSTS[metric]}: {len(rows)} networks, the Pareto front as a line"
    return finished(panel, about, **{metric: rows})


def accuracy_against_costs(
    points: Iterable[Mapping[str, Any]], metrics: Iterable[str], title: str
) -> Spec:
    """The same against several costs, side by side."""
    grouped = [{"group": point["run"], **point} for point in points]
    datasets = {metric: placed(grouped, metric) for metric in metrics}
    panels = [_labelled_panel(rows, m).properties(width=PANEL) for m, rows in datasets.items()]
    return finished(alt.hconcat(*panels, title=title), title, **datasets)


def _labelled_panel(rows: Sequence[Mapping[str, Any]], metric: str) -> alt.LayerChart:
    costs = [alt.Tooltip(f"{cost}:Q", format=".4s") for cost in METRICS]
    points = alt.Chart().mark_point(filled=True, size=70, opacity=1)
    points = points.encode(
        _colour((row["group"] for row in rows), "group").legend(None),
        tooltip=["run:N", alt.Tooltip("top1:Q", format=".2f"), *costs],
    )
    # From a point to its label, where that had to move up.
    panel = pareto_panel(metric, points, span=("top1", "height"), label="run")
    return panel.properties(height=340)


def kernel_chart() -> Spec:
    """The float weights of a kernel as a histogram, its thresholds, and the levels they go to.

    The page's script adds the data, and leaves out layers with none: they have no extent.
    """

    def across(field: str) -> alt.X:
        return alt.X(f"{field}:Q", title="weight").scale(zero=False, nice=False)

    bins = alt.Chart(alt.NamedData("bins")).mark_bar(color=PALETTE[1], opacity=0.55, tooltip=True)
    bins = bins.encode(
        across("from").bin("binned"), alt.X2("to"), alt.Y("count:Q", title="weights")
    )
    thresholds = alt.Chart(alt.NamedData("thresholds")).mark_rule(strokeDash=[3, 3], color="#888")
    thresholds = thresholds.encode(
        across("threshold"), tooltip=[alt.Tooltip("threshold:Q", format=".4f")]
    )
    levels = alt.Chart(alt.NamedData("levels")).mark_rule(
        strokeWidth=3, color=PALETTE[0], y=alt.expr("height"), y2=alt.expr("height - 26")
    )
    levels = levels.encode(
        across("level"), tooltip=["count:N", alt.Tooltip("level:Q", format=".4f")]
    )
    return finished(
        alt.layer(bins, thresholds, levels, width="container", height=240),
        "Weights of a kernel: histogram of the float ones, levels, and the thresholds between them",
        bins=[],
        thresholds=[],
        levels=[],
    )


def scale_ratios(runs: Sequence[RunFacts]) -> Spec:
    """alpha_1 / alpha_2 of all kernels; the paper's region is 1 to 2."""
    rows = []
    for run in runs:
        places = Counter(int(min(ratio, LAST_RATIO) / RATIO_STEP) for ratio in run.ratios)
        rows += [
            {"run": run.name, "from": i * RATIO_STEP, "to": (i + 1) * RATIO_STEP, "kernels": count}
            for i, count in sorted(places.items())
        ]
    bars = alt.Chart(ROWS, width="container", height=220).mark_bar(opacity=0.6, tooltip=True)
    bars = bars.encode(
        alt.X("from:Q", title="α₁ / α₂").bin("binned").scale(zero=False),
        alt.X2("to"),
        alt.Y("kernels:Q", title="kernels").stack(None),
        _colour(run.name for run in runs),
    )
    return finished(
        bars,
        f"Distribution of alpha 1 / alpha 2 over all kernels with two branches, {LAST_RATIO:g} and "
        "more at the right",
        rows=rows,
    )


def layer_times(bench: Mapping[str, Any]) -> Spec:
    """Microseconds of each layer in the native engine."""
    rows = [layer for layer in bench["layers"] if layer["kernel"]]
    numbers = [alt.Tooltip(f"{n}:Q", format=".1f") for n in ("microseconds", "gmac_per_second")]
    bars = alt.Chart(ROWS, width="container", height=BAR * len(rows)).mark_bar()
    bars = bars.encode(
        alt.Y("name:N", sort=None, title=None),
        alt.X("microseconds:Q", title="µs"),
        alt.Color("kernel:N").scale(range=PALETTE),
        tooltip=["name:N", "kernel:N", *numbers],
    )
    return finished(
        bars,
        f"Time of each layer in the native engine, {bench['isa']}, {bench['threads']} threads",
        rows=rows,
    )


def _colour(names: Iterable[str], field: str = "run") -> alt.Color:
    order = list(dict.fromkeys(names))
    colours = [PALETTE[i % len(PALETTE)] for i in range(len(order))]
    legend = alt.Legend(title=None, orient="bottom", columns=4, labelLimit=260)
    shown = legend if len(order) <= len(PALETTE) else None
    return alt.Color(f"{field}:N", legend=shown).scale(domain=order, range=colours)


def _epochs(rows: Sequence[Mapping[str, Any]]) -> alt.X:
    last = max((row["epoch"] for row in rows), default=1)
    return alt.X("epoch:Q").axis(tickMinStep=1, tickCount=min(last, 12), format="d")
