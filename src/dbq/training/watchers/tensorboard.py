"""TensorBoard: the numbers of each epoch as scalars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dbq.errors import TrainingError
from dbq.training.watchers.watching import StepReport


class TensorBoardWatcher:
    """Writes to DIR/tensorboard. An epoch repeated after a crash replaces the first attempt."""

    def __init__(self, run: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise TrainingError(
                "--tensorboard needs TensorBoard: pip install tensorboard"
            ) from None
        self.make: Any = SummaryWriter
        self.directory = str(run / "tensorboard")
        self.writer: Any = None

    def message(self, text: str) -> None:
        pass

    def step(self, report: StepReport) -> None:
        pass

    def epoch(self, row: dict[str, Any]) -> None:
        number = row["epoch"]
        if self.writer is None:
            self.writer = self.make(self.directory, purge_step=number)
        for key in ("loss", "soft_top1", "top1", "top5", "test_loss", "rate", "temperature"):
            if row[key] is not None:
                self.writer.add_scalar(key, row[key], number)
        for layer, zeros in row["sparsity"].items():
            for j, share in enumerate(zeros, start=1):
                self.writer.add_scalar(f"sparsity/{layer}/branch{j}", share, number)
        self.writer.flush()
