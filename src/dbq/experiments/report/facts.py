"""What a report says about a run, from its directory and its network, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dbq.costs.census import LayerRow
from dbq.costs.rules import Totals, cost
from dbq.deploy.bench import measure
from dbq.deploy.engine import load
from dbq.errors import EngineError, FileFormatError
from dbq.model.layers import quantized_weights
from dbq.model.preparation import weight_error
from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.frozen import Branches
from dbq.quantizers.tensors import per_kernel
from dbq.training.networks import example_image
from dbq.training.recipe import Recipe
from dbq.training.record.result import Result
from dbq.training.record.rundir import RunDir
from dbq.training.record.saved import saved_network

METRICS = Totals.METRICS
KERNELS = 8  # how many of each layer a page shows, evenly spaced
BINS = 48
MOST_LEVELS = 32  # with more, the steps could not be told apart in a chart
BENCH_SECONDS = 0.5
CURVES = ("epoch", "loss", "soft_top1", "top1", "test_loss", "rate", "temperature")


@dataclass(frozen=True)
class RunFacts:
    """A finished run. `layers` has a dict for each weight layer, `kernels` some of their kernels.

    `bench` is what `dbq bench --json` prints, if there is a file to measure; `bench_source` says where
    it comes from, or why there is none.
    """

    name: str
    network: str
    data: str
    plan: str
    is_float: bool
    result: Result
    metrics: list[dict[str, Any]]
    layers: list[dict[str, Any]]
    kernels: dict[str, list[dict[str, Any]]]
    ratios: list[float]
    bench: dict[str, Any] | None
    bench_source: str


def read_run(path: Path, name: str) -> tuple[RunFacts, nn.Module]:
    """Facts of a run's directory, which the report calls `name`, and its network."""
    run = RunDir(path)
    result = run.result()
    model, recipe, _ = saved_network(path)
    bench, source = _bench(run)
    facts = RunFacts(
        name=name,
        network=recipe.model.label,
        data=recipe.data.name,
        plan=recipe.plan.name,
        is_float=recipe.plan.is_float,
        result=result,
        metrics=[{key: row[key] for key in CURVES} for row in run.metrics()],
        layers=_layers(model, recipe),
        kernels={name: _kernels(*found) for name, found in quantized_weights(model).items()},
        ratios=_ratios(model),
        bench=bench,
        bench_source=source,
    )
    return facts, model


def _bench(run: RunDir) -> tuple[dict[str, Any] | None, str]:
    """Times that the user put into the run, or those of its .dbq file, measured here and now."""
    found = run.bench()
    if found is not None:
        return found, "as measured by dbq bench"
    if not run.deployed.exists():
        return None, ""
    try:
        with load(run.deployed) as net:
            return measure(net, BENCH_SECONDS), "measured on this machine"
    except (EngineError, FileFormatError) as error:
        return None, f"not measured: {error}"


@torch.no_grad()
def _layers(model: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    """A row for each execution of a weight layer: its properties and its share of each cost."""
    found = cost(model, example_image(recipe))
    total, quantized, rows = found.total.metrics, quantized_weights(model), []
    for row in found.rows:
        if not isinstance(row, LayerRow):
            continue
        own = Totals.of([row]).metrics
        weight = model.get_submodule(row.name).get_parameter("weight")
        rows.append({
            "layer": row.name,
            "role": row.role,
            "shape": "x".join(map(str, weight.shape)),
            "weights": str(row.weight),
            "input": str(row.input),
            "error": weight_error(*quantized[row.name]) if row.name in quantized else None,
            "zeros": row.sparsity,
            **{key: own[key] / total[key] if total[key] else 0.0 for key in METRICS},
        })  # fmt: skip
    return rows


@torch.no_grad()
def _kernels(quantizer: WeightQuantizer, weight: Tensor) -> list[dict[str, Any]]:
    """Float weights of some kernels as histograms, with their levels and thresholds."""
    hard, rows, borders = per_kernel(quantizer(weight)), per_kernel(weight), quantizer.borders()
    count = min(KERNELS, len(rows))
    return [
        {"kernel": k, **_histogram(rows[k]), "levels": _levels(hard[k]),
         "thresholds": [] if borders is None else borders[k][borders[k].isfinite()].tolist()}
        for k in (i * len(rows) // count for i in range(count))
    ]  # fmt: skip


def _histogram(values: Tensor) -> dict[str, Any]:
    low, high = float(values.min()), float(values.max())
    if not low < high:
        low, high = low - 0.5, high + 0.5
    counts = torch.histc(values.float(), BINS, low, high)
    return {"low": low, "high": high, "counts": [int(n) for n in counts]}


def _levels(hard: Tensor) -> list[dict[str, float]]:
    """The levels that occur, and how many weights take each."""
    values, counts = torch.unique(hard, return_counts=True)
    if len(values) > MOST_LEVELS:
        return []
    found = zip(values.tolist(), counts.tolist(), strict=True)
    return [{"level": level, "count": count} for level, count in found]


@torch.no_grad()
def _ratios(model: nn.Module) -> list[float]:
    """alpha_1 / alpha_2 of kernels with two ternary branches or more; infinite ones are left out."""
    found: list[float] = []
    for quantizer, weight in quantized_weights(model).values():
        layer = quantizer.freeze(weight)
        if (
            isinstance(layer, Branches)
            and layer.planes == 1
            and quantizer.precision.kind == "ternary"
        ):
            ratios = layer.ratios[:, :1]
            found += ratios[ratios.isfinite()].tolist()
    return found
