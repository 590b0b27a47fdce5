"""Hugging Face Trainer: a callback for networks that dbq has quantized. Needs transformers.

    optimizer = torch.optim.SGD(dbq.param_groups(model, weight_decay=4e-5), lr=0.01)
    Trainer(model, args, callbacks=[DbqCallback()], optimizers=(optimizer, None), ...)

The optimizer that the Trainer makes by itself decays thresholds and scales.
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from dbq.model.param_groups import refuse_decay
from dbq.model.schedule import TemperatureSchedule, refuse_soft, set_progress


class DbqCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]  # untyped where it is absent
    """Raises the temperature every epoch, and refuses what would train or judge another network.

    The temperature of epoch e is start + e * increment, also after a run was resumed. Weight decay on
    quantizers and evaluation of the soft network are errors.
    """

    def __init__(self, start: float = 20.0, increment: float = 20.0) -> None:
        self.start, self.increment = start, increment

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, model: Any, optimizer: Any, **_: Any
    ) -> None:
        self.schedule = TemperatureSchedule(model, self.start, self.increment)
        refuse_decay(model, optimizer)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, *, model: Any, **_: Any) -> None:
        epoch = int(state.epoch or 0)
        self.schedule.move_to(epoch)
        set_progress(model, min(1.0, epoch / max(state.num_train_epochs, 1)))

    def on_prediction_step(
        self, args: Any, state: Any, control: Any, *, model: Any, **_: Any
    ) -> None:
        refuse_soft(model)
