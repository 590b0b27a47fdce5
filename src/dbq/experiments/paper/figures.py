"""The paper's figures: its printed numbers, and ours from the given runs.

The paper's points are hollow, ours are filled. A figure that needs a trained network is left out if
none is given.
"""

from __future__ import annotations

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
from dbq.quantizers.dbq.branch import BranchQuantizer
from dbq.quantizers.inputs import BatchNormClip, ClippedInput

TEMPERATURES = (5.0, 20.0, 80.0)
SAMPLES = 400
PAPER, OURS = "paper (hollow)", "ours (filled)"


def figures(runs: Sequence[RunFacts], networks: Sequence[nn.Module]) -> Iterator[tuple[str, Spec]]:
    """Name and chart of every figure that can be drawn from these runs and their networks.

    A figure of a single network shows the first run that has what it needs.
    """
    yield "motivation", motivation(runs)
    each = list(zip(runs, networks, strict=True))
    for run, where, quantizer in ((r, *q) for r, model in each for q in _two_branches(model)):
        yield "quantizer", quantizer_curves(quantizer, run.name, where)
        break
    for run, where, clip in ((r, *c) for r, model in each for c in _clips(model)):
        yield "clip", activation_clip(clip, run.name, where)
        break
    branched = [run for run in runs if run.ratios]
    if branched:
        yield "alpha-ratio", scale_ratios(branched[:1])
    widths = [run for run in runs if run.network.startswith("mobilenet_v1") and is_wake_words(run)]
    if widths:
        yield "width-and-precision", width_and_precision(widths)


def motivation(runs: Sequence[RunFacts]) -> Spec:
    """Accuracy against C_C of MobileNetV1 on ImageNet: the paper's first figure."""
    rows = [
        _point(given.label, paper_cost(given).total.C_C, float(given.top1), PAPER)
        for given in printed.COMPARISON.rows
        if given.plan is not None
    ]
    rows += [
        _point(run.name, run.result.cost.C_C, run.result.top1, OURS)
        for run in runs
        if (run.network, run.data) == ("mobilenet_v1", "imagenet")
    ]
    shapes = alt.Scale(domain=[PAPER, OURS], range=["circle", "square"])
    points = _points("name", alt.Shape("from:N", title=None, scale=shapes), legend=False)
    panel = pareto_panel("C_C", points, label="name", title="top-1 on ImageNet, %", line=False)
    return finished(
        panel.properties(width="container", height=360),
        "Accuracy against computational cost of MobileNetV1 on ImageNet, by method",
        C_C=placed(rows, "C_C"),
    )


def _point(name: str, cost: float, top1: float, source: str) -> dict[str, Any]:
    return {"name": name, "C_C": cost, "top1": top1, "from": source}


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


def _two_branches(model: nn.Module) -> Iterator[tuple[str, BranchQuantizer]]:
    for name, module in model.named_modules():
        quantizer = getattr(module, "weight_quantizer", None)
        if isinstance(quantizer, BranchQuantizer) and quantizer.precision.size == 2:
            yield name, quantizer


@torch.no_grad()
def quantizer_curves(quantizer: BranchQuantizer, run: str, where: str, kernel: int = 0) -> Spec:
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
        f"The 2T quantizer of kernel {kernel} of {where} in {run}: hard, and soft at temperatures "
    )
    return finished(curves, about + temperatures, rows=rows)


def staircase(quantizer: BranchQuantizer, kernel: int) -> list[dict[str, Any]]:
    """Q(w) of one kernel over its range: hard in eval(), soft at each of TEMPERATURES."""
    # Thresholds are within +-1 of gamma_1 w.
    reach = 1.25 / float(quantizer.gamma_1[kernel].detach().abs())
    w = torch.linspace(-reach, reach, SAMPLES)
    weight = torch.zeros(len(quantizer.alpha), SAMPLES)
    weight[kernel] = w
    before, training = float(quantizer.temperature), quantizer.training
    curves = {"hard": quantizer.eval()(weight)[kernel]}
    quantizer.train()
    for temperature in TEMPERATURES:
        quantizer.temperature.fill_(temperature)
        curves[f"T = {temperature:g}"] = quantizer(weight)[kernel]
    quantizer.temperature.fill_(before)
    quantizer.train(training)
    return [
        {"w": x, "q": y, "curve": name}
        for name, values in curves.items()
        for x, y in zip(w.tolist(), values.tolist(), strict=True)
    ]


def _clips(model: nn.Module) -> Iterator[tuple[str, ClippedInput]]:
    for name, module in model.named_modules():
        quantizer = getattr(module, "input_quantizer", None)
        if isinstance(quantizer, ClippedInput) and isinstance(quantizer.clip, BatchNormClip):
            yield name, quantizer


@torch.no_grad()
def activation_clip(quantizer: ClippedInput, run: str, where: str) -> Spec:
    """Densities N(beta, gamma^2) of the channels in front of a layer, and the clip c of eq. 13."""
    clip = quantizer.clip
    assert isinstance(clip, BatchNormClip)
    norm, c = clip.batch_norm, float(clip.value())
    low = float((norm.bias - 4 * norm.weight.abs()).min())
    xs = torch.linspace(low, 1.08 * c, 240).tolist()
    rows = [
        {"y": x, "channel": i, "density": _normal(x, beta, abs(gamma))}
        for i, (beta, gamma) in enumerate(
            zip(norm.bias.tolist(), norm.weight.tolist(), strict=True)
        )
        for x in xs
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


def _normal(x: float, mean: float, deviation: float) -> float:
    deviation = max(deviation, 1e-6)
    return math.exp(-(((x - mean) / deviation) ** 2) / 2) / (deviation * math.sqrt(2 * math.pi))


def is_wake_words(run: RunFacts) -> bool:
    """Visual Wake Words, or the smaller task that stands in for it here."""
    return run.data in ("visual_wake_words", "cifar10-vehicles")


def width_and_precision(runs: Sequence[RunFacts]) -> Spec:
    """Accuracy against C_S and against C_R: colour is the width, shape the pointwise precision."""
    rows = []
    for run in runs:
        pointwise = {row["weights"] for row in run.layers if row["role"] == "pointwise"}
        cost = run.result.cost
        rows.append({
            "run": run.name,
            "width": run.network.partition(" x")[2] or "1",
            "pointwise": "/".join(sorted(pointwise)),
            "top1": run.result.top1,
            "C_S": cost.C_S,
            "C_R": cost.C_R,
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
