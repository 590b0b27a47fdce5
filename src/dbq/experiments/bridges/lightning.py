"""Lightning: a callback for networks that dbq has quantized. Needs lightning.

    trainer = lightning.Trainer(callbacks=[DbqCallback(start=20, increment=20)])

In `configure_optimizers`, give the optimizer `dbq.param_groups(self, weight_decay)`.
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from dbq.model.param_groups import refuse_decay
from dbq.model.schedule import TemperatureSchedule, refuse_soft, set_progress


class DbqCallback(Callback):  # type: ignore[misc, unused-ignore]  # untyped where it is absent
    """Raises the temperature every epoch, and refuses what would train or judge another network.

    The temperature of epoch e is start + e * increment, also after a run was resumed. Weight decay on
    quantizers and validation of the soft network are errors.
    """

    def __init__(self, start: float = 20.0, increment: float = 20.0) -> None:
        self.start, self.increment = start, increment

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.schedule = TemperatureSchedule(pl_module, self.start, self.increment)
        for optimizer in trainer.optimizers:
            refuse_decay(pl_module, optimizer)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.schedule.move_to(trainer.current_epoch)
        set_progress(pl_module, trainer.current_epoch / (trainer.max_epochs or 1))
        pl_module.log("temperature", self.schedule.temperature)

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, *args: Any
    ) -> None:
        refuse_soft(pl_module)

    def on_test_batch_start(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        refuse_soft(pl_module)
