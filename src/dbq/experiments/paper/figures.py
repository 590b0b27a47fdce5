"""The paper's figures: its printed numbers, and ours from the given runs.

The paper's points are hollow, ours are filled. A figure that needs a trained network is left out if
none is given.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt
import torch
from torch import nn

from dbq.experiments.paper import printed
from dbq.experiments.paper.tables import paper_cost
from dbq.experiments.report.charts import ROWS, Spec, finished, scale_ratios
from dbq.experiments.report.facts import RunFacts
from dbq.experiments.report.pareto import PALETTE, pareto_panel, placed
from dbq.model.layers import QuantLayer
from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.inputs import BatchNormClip

TEMPERATURES = (5.0, 20.0, 80.0)
SAMPLES = 400
WAKE_WORDS = ("visual_wake_words", "cifar10-vehicles")  # the second stands in for the first here
PAPER, OURS = "paper (hollow)", "ours (filled)"


def figures(runs: Sequence[RunFacts], networks: Sequence[nn.Module]) -> Iterator[tuple[str, Spec]]:
    """Name and chart of every figure that can be drawn from these runs and their networks.

    A figure of a single network shows the first run that has what it needs.
    """
    yield "motivation", motivation(runs)
    layers = [
        (layer, run.name, name)
        for run, model in zip(runs, networks, strict=True)
        for name, layer in model.named_modules()
        if isinstance(layer, QuantLayer)
    ]
    for layer, *place in layers:
        quantizer = layer.weight_quantizer
        if quantizer and quantizer.precision.size == 2 and quantizer.borders() is not None:
            yield "quantizer", quantizer_curves(quantizer, *place)
            break
    for layer, *place in layers:
        clip = getattr(layer.input_quantizer, "clip", None)
        if isinstance(clip, BatchNormClip):
            yield "clip", activation_clip(clip, *place)
            break
    branched = [run for run in runs if run.ratios]
    if branched:
        yield "alpha-ratio", scale_ratios(branched[:1])
    widths = [r for r in runs if r.network.startswith("mobilenet_v1") and r.data in WAKE_WORDS]
    if widths:
        yield "width-and-precision", width_and_precision(widths)


def motivation(runs: Sequence[RunFacts]) -> Spec:
    """Accuracy against C_C of MobileNetV1 on ImageNet: the paper's first figure."""
    points = [
        (given.label, paper_cost(given).total.C_C, float(given.top1), PAPER)
        for given in printed.COMPARISON.rows
        if given.plan is not None
    ] + [
        (run.name, run.result.cost.C_C, run.result.top1, OURS)
        for run in runs
        if (run.network, run.data) == ("mobilenet_v1", "imagenet")
    ]
    rows = [dict(zip(("name", "C_C", "top1", "from"), point, strict=True)) for point in points]
    shapes = alt.Scale(domain=[PAPER, OURS], range=["circle", "square"])
    marks = _points("name", alt.Shape("from:N", title=None, scale=shapes), legend=False)
    panel = pareto_panel("C_C", marks, label="name", title="top-1 on ImageNet, %", line=False)
    return finished(
        panel.properties(width="container", height=360),
        "Accuracy against computational cost of MobileNetV1 on ImageNet, by method",
        C_C=placed(rows, "C_C"),
    )


def _points(field: str, shape: alt.Shape, legend: bool = True) -> alt.Chart:
    """Hollow points for the paper's numbers, filled ones for ours; colours tell values of `field`."""
    shown = alt.Undefined if legend else None
    filled = alt.when(f"datum.from === '{OURS}'").then(alt.value(1)).otherwise(alt.value(0))
    points: alt.Chart = alt.Chart().mark_point(size=90, strokeWidth=2, filled=False, tooltip=True)
    return points.encode(
        alt.Color(f"{field}:N", legend=shown).scale(range=PALETTE),
        alt.Fill(f"{field}:N", legend=shown).scale(range=PALETTE),
        shape,
        fillOpacity=filled,
    )


@torch.no_grad()
def quantizer_curves(quantizer: WeightQuantizer, run: str, where: str, kernel: int = 0) -> Spec:
    """The staircase of a trained kernel, and the sigmoids it is trained as at several temperatures."""
    rows = staircase(quantizer, kernel)
    names = ["hard", *(f"T = {t:g}" for t in TEMPERATURES)]
    curves = alt.Chart(ROWS, width=460, height=360, title=f"{run}: {where}, kernel {kernel}")
    curves = curves.mark_line().encode(
        alt.X("w:Q", title="weight w"),
        alt.Y("q:Q", title="Q(w)"),
        alt.Color("curve:N", title=None).scale(domain=names, range=PALETTE[: len(names)]),
        alt.Order("w:Q"),
    )
    temperatures = ", ".join(f"{t:g}" for t in TEMPERATURES)
    about = (
        f"The 2T quantizer of kernel {kernel} of {where} in {run}: hard, and soft at temperatures"
    )
    return finished(curves, f"{about} {temperatures}", rows=rows)


def staircase(quantizer: WeightQuantizer, kernel: int) -> list[dict[str, Any]]:
    """Q(w) of one kernel, a half beyond its outermost thresholds: hard, and soft at TEMPERATURES."""
    quantizer, borders = copy.deepcopy(quantizer).eval(), quantizer.borders()
    assert borders is not None
    assert quantizer.temperature is not None
    reach = 1.5 * float(borders[kernel].detach().abs().max())
    w = torch.linspace(-reach, reach, SAMPLES)
    weight = w.repeat(quantizer.kernels, 1)
    curves = {"hard": quantizer(weight)[kernel]}
    quantizer.train()
    for temperature in TEMPERATURES:
        quantizer.temperature.fill_(temperature)
        curves[f"T = {temperature:g}"] = quantizer(weight)[kernel]
    return [
        {"w": x, "q": y, "curve": name}
        for name, values in curves.items()
        for x, y in zip(w.tolist(), values.tolist(), strict=True)
    ]


@torch.no_grad()
def activation_clip(clip: BatchNormClip, run: str, where: str) -> Spec:
    """Densities N(beta, gamma^2) of the channels in front of a layer, and the clip c of eq. 13."""
    beta, gamma = clip.batch_norm.bias.double(), clip.batch_norm.weight.double().abs()
    c = float(clip.value())
    ys = torch.linspace(float((beta - 4 * gamma).min()), 1.08 * c, 240)
    sigma = gamma.clamp(min=1e-6)
    densities = (
        (-((ys.unsqueeze(1) - beta) / sigma).square() / 2).exp() / sigma / math.sqrt(2 * math.pi)
    )
    rows = [
        {"y": y, "channel": channel, "density": density}
        for channel, values in enumerate(densities.T.tolist())
        for y, density in zip(ys.tolist(), values, strict=True)
    ]
    across = alt.X("y:Q", title="after batch norm")
    channels = alt.Chart(ROWS).mark_line(opacity=0.35, strokeWidth=1, color=PALETTE[1])
    channels = channels.encode(across, alt.Y("density:Q"), alt.Detail("channel:N"))
    limit = alt.Chart(alt.NamedData("clip")).mark_rule(color=PALETTE[0], strokeWidth=2)
    title = f"{run}: input of {where}, c = {c:.2f}"
    return finished(
        alt.layer(channels, limit.encode(across), width="container", height=260, title=title),
        f"Densities of all channels in front of {where} in {run}, and where they are clipped",
        rows=rows,
        clip=[{"y": c}],
    )


def width_and_precision(runs: Sequence[RunFacts]) -> Spec:
    """Accuracy against C_S and against C_R: colour is the width, shape the pointwise precision."""
    rows = []
    for run in runs:
        pointwise = {row["weights"] for row in run.layers if row["role"] == "pointwise"}
        rows.append({
            "run": run.name,
            "width": run.network.partition(" x")[2] or "1",
            "pointwise": "/".join(sorted(pointwise)),
            "top1": run.result.top1,
            "C_S": run.result.cost.C_S,
            "C_R": run.result.cost.C_R,
            "from": OURS,
        })  # fmt: skip
    points = _points("width", alt.Shape("pointwise:N", title="pointwise weights"))
    panels = [
        pareto_panel(m, points, line=False).properties(width=330, height=300)
        for m in ("C_S", "C_R")
    ]
    data = ", ".join(sorted({run.data for run in runs}))
    about = f"Accuracy against cost by width and precision, {data}"
    return finished(alt.hconcat(*panels), about, C_S=rows, C_R=rows)
