"""The paper's figures, drawn anew: its printed numbers, and ours from the runs at hand.

Paper and ours are told apart at a glance: the paper's points are hollow, ours are filled. A figure
that needs a trained network and is given none is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from dbq.experiments.paper import printed
from dbq.experiments.paper.tables import paper_cost
from dbq.experiments.report.charts import PALETTE, Spec, chart, scale_ratios
from dbq.experiments.report.facts import RunFacts
from dbq.experiments.report.pareto import label_heights
from dbq.quantizers.dbq.branch import BranchQuantizer
from dbq.quantizers.inputs import BatchNormClip, InputQuantizer

TEMPERATURES = (5.0, 20.0, 80.0)
SAMPLES = 400
PAPER, OURS = "paper (hollow)", "ours (filled)"
SHAPES = {"field": "from", "type": "nominal", "title": None,
          "scale": {"domain": [PAPER, OURS], "range": ["circle", "square"]}}  # fmt: skip


def figures(runs: Sequence[RunFacts], networks: Sequence[nn.Module]) -> Iterator[tuple[str, Spec]]:
    """Name and chart of every figure that can be drawn from these runs and their networks.

    What the paper shows of one network is of the first run that has it.
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
    rows: list[dict[str, Any]] = []
    for given in printed.COMPARISON.rows:
        if given.plan is not None:
            cost, top1 = paper_cost(given).total.C_C, float(given.top1)
            rows.append({"name": given.label, "C_C": cost, "top1": top1, "from": PAPER})
    rows += [
        {
            "name": run.name,
            "C_C": run.result.cost.C_C,
            "top1": run.result.top1,
            "from": OURS,
        }
        for run in runs
        if (run.network, run.data) == ("mobilenet_v1", "imagenet")
    ]
    heights = label_heights({row["name"]: (row["C_C"], row["top1"]) for row in rows})
    for row in rows:
        row["height"] = heights[row["name"]]
    across = {"field": "C_C", "type": "quantitative", "title": "C_C, 1-bit full adders",
              "scale": {"type": "log", "padding": 30, "nice": False},
              "axis": {"format": "~s", "tickCount": 6}}  # fmt: skip
    up = {"field": "top1", "type": "quantitative", "title": "top-1 on ImageNet, %",
          "scale": {"zero": False, "padding": 12}}  # fmt: skip
    return chart(
        "Accuracy against computational cost of MobileNetV1 on ImageNet, by method",
        data={"values": rows},
        width="container",
        height=360,
        layer=[
            _points(across, up, {"field": "name", "type": "nominal", "legend": None,
                                 "scale": {"range": PALETTE}}),
            {"mark": {"type": "text", "align": "left", "dx": 9, "fontSize": 11},
             "encoding": {"x": across, "y": {**up, "field": "height"}, "text": {"field": "name"}}},
        ],
    )  # fmt: skip


def _points(across: Spec, up: Spec, colour: Spec, shape: Spec = SHAPES) -> Spec:
    """Hollow points for the paper's numbers, filled ones for ours."""
    fill = {"condition": {"test": f"datum.from === '{OURS}'", "value": 1}, "value": 0}
    return {
        "mark": {"type": "point", "size": 90, "strokeWidth": 2, "filled": False, "tooltip": True},
        "encoding": {"x": across, "y": up, "color": colour, "fill": colour, "fillOpacity": fill,
                     "shape": shape},
    }  # fmt: skip


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
    return chart(
        f"The 2T quantizer of kernel {kernel} of {where} in {run}: hard, and soft at temperatures "
        + ", ".join(f"{t:g}" for t in TEMPERATURES),
        title=f"{run}: {where}, kernel {kernel}",
        data={"values": rows},
        mark={"type": "line"},
        width=460,
        height=360,
        encoding={
            "x": {"field": "w", "type": "quantitative", "title": "weight w"},
            "y": {"field": "q", "type": "quantitative", "title": "Q(w)"},
            "color": {"field": "curve", "type": "nominal", "title": None,
                      "scale": {"domain": names, "range": PALETTE[: len(names)]}},
            "order": {"field": "w"},
        },
    )  # fmt: skip


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


def _clips(model: nn.Module) -> Iterator[tuple[str, InputQuantizer]]:
    for name, module in model.named_modules():
        quantizer = getattr(module, "input_quantizer", None)
        if isinstance(quantizer, InputQuantizer) and isinstance(quantizer.clip, BatchNormClip):
            yield name, quantizer


@torch.no_grad()
def activation_clip(quantizer: InputQuantizer, run: str, where: str) -> Spec:
    """Densities N(beta, gamma^2) of the channels in front of a layer, and the clip c of eq. 13."""
    clip = quantizer.clip
    assert isinstance(clip, BatchNormClip)
    (norm,) = clip._batch_norm
    c = float(clip(torch.zeros(1)))
    low = float((norm.bias - 4 * norm.weight.abs()).min())
    xs = torch.linspace(low, 1.08 * c, 240).tolist()
    rows = [
        {"y": x, "channel": i, "density": _normal(x, beta, abs(gamma))}
        for i, (beta, gamma) in enumerate(
            zip(norm.bias.tolist(), norm.weight.tolist(), strict=True)
        )
        for x in xs
    ]
    across = {"field": "y", "type": "quantitative", "title": "after batch norm"}
    return chart(
        f"Densities of all channels in front of {where} in {run}, and where they are clipped",
        title=f"{run}: input of {where}, c = {c:.2f}",
        width="container",
        height=260,
        layer=[
            {"data": {"values": rows},
             "mark": {"type": "line", "opacity": 0.35, "strokeWidth": 1, "color": PALETTE[1]},
             "encoding": {"x": across, "detail": {"field": "channel"},
                          "y": {"field": "density", "type": "quantitative"}}},
            {"data": {"values": [{"y": c}]}, "mark": {"type": "rule", "color": PALETTE[0],
                                                      "strokeWidth": 2},
             "encoding": {"x": across}},
        ],
    )  # fmt: skip


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
    colour = {"field": "width", "type": "nominal", "scale": {"range": PALETTE}}
    shape = {"field": "pointwise", "type": "nominal", "title": "pointwise weights"}
    up = {"field": "top1", "type": "quantitative", "title": "top-1, %",
          "scale": {"zero": False, "padding": 10}}  # fmt: skip
    panels = [
        {"width": 330, "height": 300,
         **_points({"field": metric, "type": "quantitative", "title": metric,
                    "scale": {"type": "log", "nice": False, "padding": 15},
                    "axis": {"format": "~s"}}, up, colour, shape)}
        for metric in ("C_S", "C_R")
    ]  # fmt: skip
    data = sorted({run.data for run in runs})
    return chart(f"Accuracy against cost by width and precision, {', '.join(data)}",
                 data={"values": rows}, hconcat=panels)  # fmt: skip
