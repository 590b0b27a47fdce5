"""Learning rate and temperature as pure functions of the epoch, which may be fractional."""

from __future__ import annotations

import math

from torch import nn

from dbq.errors import DbqError
from dbq.quantizers.contract import WeightQuantizer


def cosine_rate(
    epoch: float, epochs: int, rate: float, warmup: int = 0, resolution: float = 1.0
) -> float:
    """The learning rate of an epoch (supplement, section 1).

        rate (e + 1) / E_W                  in the first E_W epochs
        rate / 2 (1 + cos(pi e / E_T))      after them

    `resolution` is how often the rate moves, in epochs: the first value of the warm-up is
    resolution / E_W, so that it ends at the full rate either way.

    >>> [round(cosine_rate(e, epochs=4, rate=0.1, warmup=2), 4) for e in range(4)]
    [0.05, 0.1, 0.05, 0.0146]
    """
    if epoch < warmup:
        return rate * (epoch + resolution) / warmup
    return rate / 2 * (1 + math.cos(math.pi * epoch / epochs))


def linear_temperature(epoch: float, start: float, increment: float) -> float:
    """T_e = T_init + e T_inc (supplement, section 1).

    >>> linear_temperature(4, start=5, increment=2.5)
    15.0
    """
    return start + epoch * increment


def exponential_temperature(progress: float, start: float, end: float) -> float:
    """T = T_init (T_end / T_init)^p for a progress p from 0 to 1: the same factor in every epoch.

    >>> [round(exponential_temperature(p, start=10, end=90), 3) for p in (0, 0.5, 1)]
    [10.0, 30.0, 90.0]
    """
    return float(start * (end / start) ** progress)


def soft_quantizers(model: nn.Module) -> list[WeightQuantizer]:
    """The quantizers of a model that have a temperature."""
    return [q for q in weight_quantizers(model) if q.temperature is not None]


def refuse_soft(model: nn.Module) -> None:
    """Raise DbqError if a quantizer is soft: what is judged then is not what will be deployed."""
    for name, module in model.named_modules():
        if isinstance(module, WeightQuantizer) and module.training:
            raise DbqError(f"{name} is soft while the network is judged: call model.eval()")


def set_progress(model: nn.Module, progress: float) -> None:
    """Tell every quantizer how far training has come, from 0 to 1.

    Methods that quantize one layer after another, or freeze statistics half-way, need to know; the
    others, dbq among them, do not. `dbq train` calls it; in a loop of your own, call it every epoch or
    step.

    >>> from dbq.plans.plan import LayerPlan, Plan
    >>> from dbq.model.preparation import prepare
    >>> import torch
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    >>> _ = prepare(net, Plan("mine", default=LayerPlan.of(8, method="iao")), torch.zeros(1, 3, 8, 8))
    >>> set_progress(net, 0.75)
    >>> net[0].weight_quantizer.frozen  # from here on, the running statistics are used
    True
    """
    tell_progress(weight_quantizers(model), progress)


def tell_progress(quantizers: list[WeightQuantizer], progress: float) -> None:
    """`set_progress` for the quantizers of a network, for callers that keep a list of them."""
    peers: dict[type[WeightQuantizer], list[WeightQuantizer]] = {}
    for quantizer in quantizers:
        peers.setdefault(type(quantizer), []).append(quantizer)
    for group in peers.values():
        for index, quantizer in enumerate(group):
            quantizer.advance(progress, index, len(group))


def weight_quantizers(model: nn.Module) -> list[WeightQuantizer]:
    """All weight quantizers of a model, in its order."""
    return [module for module in model.modules() if isinstance(module, WeightQuantizer)]


class TemperatureSchedule:
    """Sets the temperature of all soft quantizers of a model; `step()` once after each epoch.

    T rises linearly, by `increment` an epoch. With `end` it rises exponentially instead, to `end` after
    `epochs` epochs.

    >>> from dbq.model.preparation import prepare
    >>> import torch
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 2, 1))
    >>> _ = prepare(net, "dbq-1t", torch.zeros(1, 3, 8, 8))
    >>> schedule = TemperatureSchedule(net, start=5, increment=2.5)
    >>> schedule.step()
    >>> schedule.temperature
    7.5
    """

    def __init__(
        self,
        model: nn.Module,
        start: float,
        increment: float = 0.0,
        *,
        end: float = 0.0,
        epochs: int = 0,
    ) -> None:
        self.quantizers = soft_quantizers(model)
        if not self.quantizers:
            raise DbqError(
                "the model has no ternary layer: call dbq.prepare first, with a plan that has some"
            )
        if not (start > 0 and increment >= 0):
            raise DbqError(
                f"temperature {start} + e * {increment}: expected start > 0, increment >= 0"
            )
        if end and not (end >= start and epochs >= 1 and increment == 0):
            raise DbqError(
                f"temperature from {start} to {end} in {epochs} epochs: expected end >= start, a number "
                "of epochs, and no increment"
            )
        self.start, self.increment, self.end, self.epochs = start, increment, end, epochs
        self.move_to(0)

    @property
    def temperature(self) -> float:
        if self.end:
            return exponential_temperature(self.epoch / self.epochs, self.start, self.end)
        return linear_temperature(self.epoch, self.start, self.increment)

    def step(self) -> None:
        self.move_to(self.epoch + 1)

    def move_to(self, epoch: float) -> None:
        """Set the temperature of a certain epoch, or of a moment inside one."""
        self.epoch = epoch
        for quantizer in self.quantizers:
            assert quantizer.temperature is not None
            quantizer.temperature.fill_(self.temperature)

    def state_dict(self) -> dict[str, float]:
        names = ("start", "increment", "end", "epochs", "epoch")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.start, self.increment = float(state["start"]), float(state["increment"])
        self.end, self.epochs = float(state.get("end", 0)), int(state.get("epochs", 0))
        self.move_to(state["epoch"])
