"""The callback in the real Lightning: temperature, decay, and which network is validated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dbq
from dbq.errors import DbqError
from tests.experiments.bridges.networks import images, labels, quantized, temperatures

lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # of the package, about its own surroundings


def module(decays_all: bool = False, judges_soft: bool = False) -> Any:
    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.network = quantized()
            self.seen: list[set[float]] = []

        def training_step(self, batch: Any, index: int) -> Any:
            self.seen.append(temperatures(self.network))
            return nn.functional.cross_entropy(self.network(batch[0]), batch[1])

        def validation_step(self, batch: Any, index: int) -> None:
            hard = quantized().eval()
            hard.load_state_dict(self.network.state_dict())
            assert torch.equal(self.network(batch[0]), hard(batch[0]))

        def on_validation_model_eval(self) -> None:
            self.train() if judges_soft else self.eval()

        def configure_optimizers(self) -> Any:
            groups = self.parameters() if decays_all else dbq.param_groups(self, 1e-4)
            return torch.optim.SGD(groups, lr=0.01, weight_decay=1e-4 if decays_all else 0.0)

    return Module()


def fit(model: Any, folder: Path, epochs: int = 3, resume: Path | None = None) -> Any:
    from dbq.experiments.bridges.lightning import DbqCallback

    loader = DataLoader(TensorDataset(images(), labels()), batch_size=12)
    trainer = lightning.Trainer(
        max_epochs=epochs, callbacks=[DbqCallback(start=5, increment=10)], accelerator="cpu",
        default_root_dir=folder, logger=False, enable_progress_bar=False, num_sanity_val_steps=0,
        enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(model, loader, loader, ckpt_path=resume)
    return trainer


def test_the_temperature_follows_the_epoch_also_after_resuming(tmp_path: Path) -> None:
    first, second = module(), module()
    trainer = fit(first, tmp_path, epochs=2)
    assert first.seen == [{5.0}] * 2 + [{15.0}] * 2
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    fit(second, tmp_path, epochs=3, resume=tmp_path / "last.ckpt")
    assert second.seen == [{25.0}] * 2


def test_decay_of_quantizers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DbqError, match=r"weight_quantizer.*param_groups"):
        fit(module(decays_all=True), tmp_path)


def test_a_soft_network_is_not_validated(tmp_path: Path) -> None:
    with pytest.raises(DbqError, match=r"soft.*eval"):
        fit(module(judges_soft=True), tmp_path)
