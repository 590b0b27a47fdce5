"""The interface of watchers, which follow a run, and what they are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class StepReport:
    """Where a run is. `loss` is the epoch's mean so far, `speed` in images a second."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    rate: float
    temperature: float | None
    speed: float
    batch: int

    @property
    def seconds_left(self) -> float:
        steps = (self.epochs - self.epoch) * self.steps - self.step
        return steps * self.batch / self.speed


class Watcher(Protocol):
    """A terminal, TensorBoard, a notebook. Epochs count from 0, as in a run's metrics."""

    def message(self, text: str) -> None: ...

    def step(self, report: StepReport) -> None: ...

    def epoch(self, row: dict[str, Any]) -> None: ...
