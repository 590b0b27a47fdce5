"""The callback in the real Hugging Face Trainer: temperature, decay, and which network is evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dbq
from dbq.errors import DbqError
from tests.experiments.bridges.networks import images, labels, quantized, temperatures

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed: the Trainer needs it")
pytestmark = pytest.mark.filterwarnings("ignore")  # of the package, about its own surroundings


class Classifier(nn.Module):
    """A network as the Trainer wants it: keywords in, loss and logits out."""

    def __init__(self) -> None:
        super().__init__()
        self.network = quantized()
        self.seen: list[set[float]] = []
        self.judged: list[Tensor] = []

    def forward(self, pixels: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.network(pixels)
        if self.training:
            self.seen.append(temperatures(self.network))
        else:
            self.judged.append(logits)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def trainer(model: Classifier, folder: Path, own_optimizer: bool = True) -> Any:
    from dbq.experiments.bridges.transformers import DbqCallback

    rows = [{"pixels": x, "labels": y} for x, y in zip(images(), labels(), strict=True)]
    args = transformers.TrainingArguments(
        output_dir=str(folder), num_train_epochs=3, per_device_train_batch_size=12,
        per_device_eval_batch_size=24, use_cpu=True, report_to=[], disable_tqdm=True,
        weight_decay=1e-4, save_strategy="no", remove_unused_columns=False,
    )  # fmt: skip
    optimizer = torch.optim.SGD(dbq.param_groups(model, 1e-4), lr=0.01) if own_optimizer else None
    return transformers.Trainer(
        model, args, train_dataset=rows, eval_dataset=rows, optimizers=(optimizer, None),
        callbacks=[DbqCallback(start=5, increment=10)],
    )  # fmt: skip


def test_the_temperature_follows_the_epoch_and_the_hard_network_is_judged(tmp_path: Path) -> None:
    model = Classifier()
    job = trainer(model, tmp_path)
    job.train()
    assert model.seen == [{5.0}] * 2 + [{15.0}] * 2 + [{25.0}] * 2
    job.evaluate()
    hard = quantized().eval()
    hard.load_state_dict(model.network.state_dict())
    assert torch.equal(torch.cat(model.judged), hard(images()))


def test_decay_of_quantizers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DbqError, match=r"weight_quantizer.*param_groups"):
        trainer(Classifier(), tmp_path, own_optimizer=False).train()
