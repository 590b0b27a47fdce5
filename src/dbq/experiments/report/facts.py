"""What a report says about a run, from its directory and its network, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dbq.costs.census import LayerRow
from dbq.costs.rules import Totals, cost
from dbq.model.layers import QuantLayer
from dbq.model.preparation import weight_error
from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.dbq.branch import BranchQuantizer
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
CURVES = ("epoch", "loss", "soft_top1", "top1", "test_loss", "rate", "temperature")


@dataclass(frozen=True)
class RunFacts:
    """A finished run. `layers` has a dict for each weight layer, `kernels` some of their kernels."""

    name: str
    recipe: str
    about: str
    network: str
    data: str
    plan: str
    result: Result
    metrics: list[dict[str, Any]]
    layers: list[dict[str, Any]]
    kernels: dict[str, list[dict[str, Any]]]
    ratios: list[float]
    bench: dict[str, Any] | None


def facts_of_run(path: Path, name: str = "") -> RunFacts:
    """Read a run's directory; `name` is what the report calls it."""
    return read_run(path, name)[0]


def read_run(path: Path, name: str = "") -> tuple[RunFacts, nn.Module]:
    """The same, and the network itself."""
    run = RunDir(path)
    result = run.result()
    model, recipe, _ = saved_network(path)
    facts = RunFacts(
        name=name or path.name,
        recipe=recipe.name,
        about=recipe.about,
        network=recipe.model.label,
        data=recipe.data.name,
        plan=recipe.plan.name,
        result=result,
        metrics=[{key: row[key] for key in CURVES} for row in run.metrics()],
        layers=_layers(model, recipe),
        kernels={name: _kernels(layer) for name, layer in _quantized(model).items()},
        ratios=_ratios(model),
        bench=run.bench(),
    )
    return facts, model


def _quantized(model: nn.Module) -> dict[str, QuantLayer]:
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, QuantLayer) and module.weight_quantizer is not None
    }


@torch.no_grad()
def _layers(model: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    """A row for each execution of a weight layer: its properties and its share of each cost."""
    found = cost(model, example_image(recipe))
    quantized, rows = _quantized(model), []
    for row in found.rows:
        if not isinstance(row, LayerRow):
            continue
        layer, own = quantized.get(row.name), Totals.of([row])
        weight = model.get_submodule(row.name).get_parameter("weight")
        quantizer = layer.weight_quantizer if layer else None
        rows.append({
            "layer": row.name,
            "role": row.role,
            "shape": "x".join(map(str, weight.shape)),
            "weights": str(row.weight),
            "input": str(row.input),
            "error": None if quantizer is None else weight_error(quantizer, weight),
            "zeros": row.sparsity,
            **{key: _share(own, found.total, key) for key in METRICS},
        })  # fmt: skip
    return rows


def _share(own: Totals, total: Totals, key: str) -> float:
    whole = getattr(total, key)
    return float(getattr(own, key) / whole) if whole else 0.0


@torch.no_grad()
def _kernels(layer: QuantLayer) -> list[dict[str, Any]]:
    """Float weights of some kernels as histograms, with their levels and thresholds."""
    quantizer = layer.weight_quantizer
    assert isinstance(quantizer, WeightQuantizer)
    hard, weight = per_kernel(quantizer(layer.weight)), per_kernel(layer.weight)
    count = len(weight)
    chosen = sorted({i * count // min(KERNELS, count) for i in range(min(KERNELS, count))})
    return [
        {"kernel": k, **_histogram(weight[k]), "levels": _levels(hard[k]),
         "thresholds": _thresholds(quantizer, k)}
        for k in chosen
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
    return [
        {"level": float(v), "count": int(n)}
        for v, n in zip(values.tolist(), counts.tolist(), strict=True)
    ]


def _thresholds(quantizer: WeightQuantizer, kernel: int) -> list[float]:
    """Where the staircase rises, on the scale of the weights: t / gamma_1."""
    if not isinstance(quantizer, BranchQuantizer) or not quantizer.gamma_1[kernel]:
        return []
    found: list[float] = (quantizer.t[kernel] / quantizer.gamma_1[kernel]).sort().values.tolist()
    return found


@torch.no_grad()
def _ratios(model: nn.Module) -> list[float]:
    """alpha_1 / alpha_2 of every kernel with two branches or more; infinite ones are left out."""
    found: list[float] = []
    for layer in _quantized(model).values():
        quantizer = layer.weight_quantizer
        if isinstance(quantizer, BranchQuantizer) and quantizer.precision.size > 1:
            ratios = quantizer.freeze(layer.weight).ratios[:, 0]
            found += ratios[ratios.isfinite()].tolist()
    return found
