"""Temperature of the soft steps, a pure function of the epoch."""

from __future__ import annotations

from torch import nn

from dbq.errors import DbqError
from dbq.quantizers.branch import BranchQuantizer


def linear_temperature(epoch: int, start: float, increment: float) -> float:
    """T_e = T_init + e T_inc (supplement, section 1).

    >>> linear_temperature(4, start=5, increment=2.5)
    15.0
    """
    return start + epoch * increment


class TemperatureSchedule:
    """Sets the temperature of all branch quantizers of a model; `step()` once after each epoch.

    >>> from dbq.preparation import prepare
    >>> import torch
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 2, 1))
    >>> _ = prepare(net, "dbq-1t", torch.zeros(1, 3, 8, 8))
    >>> schedule = TemperatureSchedule(net, start=5, increment=2.5)
    >>> schedule.step()
    >>> schedule.temperature
    7.5
    """

    def __init__(self, model: nn.Module, start: float, increment: float) -> None:
        self.quantizers = [m for m in model.modules() if isinstance(m, BranchQuantizer)]
        if not self.quantizers:
            raise DbqError(
                "the model has no ternary layer: call dbq.prepare first, with a plan that has some"
            )
        if not (start > 0 and increment >= 0):
            raise DbqError(
                f"temperature {start} + e * {increment}: expected start > 0, increment >= 0"
            )
        self.start, self.increment, self.epoch = start, increment, 0
        self._apply()

    @property
    def temperature(self) -> float:
        return linear_temperature(self.epoch, self.start, self.increment)

    def step(self) -> None:
        self.epoch += 1
        self._apply()

    def _apply(self) -> None:
        for quantizer in self.quantizers:
            quantizer.temperature.fill_(self.temperature)

    def state_dict(self) -> dict[str, float]:
        return {"start": self.start, "increment": self.increment, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.start, self.increment = float(state["start"]), float(state["increment"])
        self.epoch = int(state["epoch"])
        self._apply()
