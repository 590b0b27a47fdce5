"""The census: what a model computes for one image, as rows that the cost rules apply to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dbq.costs.watch import Events, PoolRow, ProductRow, Ran, watch
from dbq.model.roles import WeightLayer, kernels_of, role_of
from dbq.plans.plan import Role
from dbq.plans.precision import FLOAT, Precision
from dbq.quantizers.contract import WeightQuantizer

# Submodules whose parameters only determine other weights; rule 3 counts none of them.
MAKES_WEIGHTS = {"weight_quantizer", "input_quantizer", "parametrizations"}


@dataclass(frozen=True)
class LayerRow:
    """One execution of a weight layer: `kernels` dot products of length D at each position.

    `nonzero` and `chained` have an entry for each branch (one for float and fixed point), summed
    over the kernels: the weights D' that are not zero, and the additions max(D' - 1, 0) that chain
    them. They are whole numbers if counted, but not if they come from an average sparsity.
    Executions after the first have `stored` False: parameters count once.
    """

    name: str
    role: Role
    D: int
    kernels: int
    positions: int
    inputs: int  # elements of the input tensor
    bias: int  # parameters of the bias
    weight: Precision
    input: Precision
    nonzero: tuple[float, ...]
    chained: tuple[float, ...]
    stored: bool = True

    @property
    def N(self) -> int:  # noqa: N802 (the paper's letter)
        """Dot products for one image."""
        return self.kernels * self.positions

    @property
    def weights(self) -> int:
        return self.kernels * self.D

    @property
    def sparsity(self) -> float:
        """The share of zeros, averaged over branches."""
        total = self.weights * len(self.nonzero)
        return 1 - sum(self.nonzero) / total if total else 0.0


@dataclass(frozen=True)
class NormRow:
    """One execution of a batch norm; it can be folded if it `follows_layer`."""

    name: str
    elements: int
    params: int
    follows_layer: bool
    folded: bool = False


@dataclass(frozen=True)
class ParamRow:
    """A parameter that belongs to none of the layers above."""

    name: str
    params: int


Row = LayerRow | NormRow | PoolRow | ProductRow | ParamRow


@dataclass(frozen=True)
class Census:
    """Rows in order of execution, then what is only stored; and operations without a rule."""

    rows: tuple[Row, ...]
    not_counted: tuple[str, ...]


def take_census(model: nn.Module, example_input: Any, *, count_zeros: bool = True) -> Census:
    """Run `model` on the first image of `example_input` and record what it computes.

    The model is left unchanged. `count_zeros=False` takes every weight as non-zero.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2))
    >>> [(row.name, type(row).__name__) for row in take_census(net, torch.zeros(5, 3, 3, 3)).rows]
    [('0', 'LayerRow'), ('1', 'NormRow'), ('3', 'LayerRow')]
    """
    return _Ledger(model, count_zeros).census(watch(model, example_input))


def dense_taps(weights: int, kernels: int, branches: int) -> tuple[tuple[int, ...], ...]:
    """`nonzero` and `chained` of a layer without zeros.

    >>> dense_taps(weights=18, kernels=2, branches=2)
    ((18, 18), (16, 16))
    """
    return (weights,) * branches, (max(weights - kernels, 0),) * branches


class _Ledger:
    """Turns events into rows; remembers which parameters have been counted."""

    def __init__(self, model: nn.Module, count_zeros: bool) -> None:
        self.model, self.count_zeros = model, count_zeros
        self.entered: set[int] = set()

    def census(self, events: Events) -> Census:
        layers = [event.layer for event in events.ran if isinstance(event, Ran) and event.layer]
        known = [(name, m) for name, m in self.model.named_modules() if isinstance(m, WeightLayer)]
        seen = set(layers)
        idle = [(name, layer) for name, layer in known if layer not in seen]
        rows = [self._row(event, layers) for event in events.ran]
        rows += [self._layer(name, layer, role_of(layer, False, False)) for name, layer in idle]
        rows += list(self._other_parameters())
        notes = [f"{where}: {', '.join(ops)}" for where, ops in events.unknown.items()]
        notes += [f"{name} ({type(layer).__name__}): never runs" for name, layer in idle]
        return Census(tuple(rows), tuple(notes))

    def _row(self, event: Ran | PoolRow | ProductRow, layers: list[WeightLayer]) -> Row:
        if not isinstance(event, Ran):
            return event
        if (layer := event.layer) is not None:
            role = role_of(layer, layer is layers[0], layer is layers[-1])
            return self._layer(event.name, layer, role, event.inputs, event.outputs)
        params = self._enter(*event.parameters)
        return NormRow(event.name, event.outputs, params, event.follows_layer)

    def _layer(
        self, name: str, layer: WeightLayer, role: Role, inputs: int = 0, outputs: int = 0
    ) -> LayerRow:
        weight, made = kernels_of(layer).detach(), _makes_its_weight(layer)
        kernels = len(weight)
        nonzero, chained = _taps(layer, weight, self.count_zeros)
        return LayerRow(
            name, role, D=weight.numel() // max(kernels, 1), kernels=kernels,
            positions=_positions(layer, inputs, outputs), inputs=inputs, bias=self._enter(layer.bias),
            weight=_precision(layer, "weight_quantizer"), nonzero=nonzero, chained=chained,
            input=_precision(layer, "input_quantizer"),
            stored=self._is_new(layer if made else layer.weight),
        )  # fmt: skip

    def _is_new(self, owner: Tensor | nn.Module) -> bool:
        """True the first time it is asked about an object."""
        is_new = id(owner) not in self.entered
        self.entered.add(id(owner))
        return is_new

    def _enter(self, *parameters: Tensor | None) -> int:
        """The number of these parameters that were not counted before."""
        return sum(p.numel() for p in parameters if p is not None and self._is_new(p))

    def _other_parameters(self) -> Iterator[ParamRow]:
        for owner, module in self.model.named_modules():
            if MAKES_WEIGHTS.intersection(owner.split(".")) or _makes_its_weight(module):
                continue
            for name, parameter in module.named_parameters(owner, recurse=False):
                if params := self._enter(parameter):
                    yield ParamRow(name, params)


def _positions(layer: WeightLayer, inputs: int, outputs: int) -> int:
    """How often each kernel is applied: for each pixel it makes, or, transposed, for each it reads."""
    if isinstance(layer, nn.ConvTranspose2d):
        return inputs // layer.in_channels
    kernels = layer.out_channels if isinstance(layer, nn.Conv2d) else layer.out_features
    return outputs // max(kernels, 1)


def _makes_its_weight(module: nn.Module) -> bool:
    """True if the weight is computed from other parameters (weight norm, parametrizations)."""
    return isinstance(module, WeightLayer) and "weight" not in module._parameters


def _precision(layer: nn.Module, quantizer: str) -> Precision:
    precision: Precision = getattr(getattr(layer, quantizer, None), "precision", FLOAT)
    return precision


def _taps(layer: nn.Module, weight: Tensor, count_zeros: bool) -> tuple[tuple[int, ...], ...]:
    """For each branch, summed over kernels: weights D' that are not zero, and max(D' - 1, 0)."""
    if not count_zeros:
        precision = _precision(layer, "weight_quantizer")
        return dense_taps(weight.numel(), len(weight), branches(precision))
    quantizer: WeightQuantizer | None = getattr(layer, "weight_quantizer", None)
    with torch.no_grad():
        used = quantizer.freeze(weight).used if quantizer else (weight != 0).unsqueeze(0)
        taps = used.flatten(2).sum(-1)  # [branches, kernels, D] -> [branches, kernels]
        chained = (taps - 1).clamp(min=0)
    return tuple(taps.sum(1).tolist()), tuple(chained.sum(1).tolist())


def branches(precision: Precision) -> int:
    """How many partial sums a weight of this precision makes: its branches, else one."""
    return precision.size if precision.is_branched else 1
