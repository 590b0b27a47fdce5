"""The demo: a small MobileNet on real handwritten digits, from float to ternary, in a minute.

It uses nothing but the public names and an ordinary PyTorch loop, so it reads as an example too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dbq
from dbq.costs import Totals
from dbq.data.digits import load_digits
from dbq.text import as_text, plain_table, short

Data = tuple[Tensor, Tensor]

PLANS = {
    "fx8-3": "8-bit fixed point",
    "dbq-1t-a8": "one ternary branch",
    "dbq-2t-4": "two ternary branches",
}
SEED, BATCH = 0, 64

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Row:
    """One line of the demo's table; accuracies in percent, of the hard network on the test set."""

    plan: str
    meaning: str
    prepared: float
    calibrated: float
    trained: float
    cost: Totals


def run(progress: Progress, float_epochs: int = 15, epochs: int = 6) -> list[Row]:
    """Train a float network, quantize it by several plans, fine-tune each, and count.

    `progress(what, done, total)` is called after every epoch.
    """
    torch.manual_seed(SEED)
    train, test = (as_rgb(*part) for part in load_digits())
    example = test[0][:1]

    network = dbq.create_model("mobilenet_v1", num_classes=10, width=0.25, small_input=True)
    fit(network, train, float_epochs, rate=0.1, what="training float", progress=progress)
    top1 = accuracy(network, test)
    rows = [Row("fp", "float", top1, top1, top1, dbq.cost(network, example).total)]

    for plan, meaning in PLANS.items():
        model = copy.deepcopy(network)
        dbq.prepare(model, plan, example)
        prepared = accuracy(model, test)
        dbq.calibrate(model, torch.split(train[0], 256))
        calibrated = accuracy(model, test)
        fit(model, train, epochs, 0.02, f"fine-tuning {plan}", progress, teacher=network)
        dbq.calibrate(model, torch.split(train[0], 256))
        total = dbq.cost(model, example).total
        rows.append(Row(plan, meaning, prepared, calibrated, accuracy(model, test), total))
    return rows


def fit(
    model: nn.Module,
    data: Data,
    epochs: int,
    rate: float,
    what: str,
    progress: Progress,
    teacher: nn.Module | None = None,
) -> None:
    """SGD with a cosine rate; a teacher's soft labels count for half of the loss."""
    optimizer = torch.optim.SGD(dbq.param_groups(model, weight_decay=1e-4), lr=rate, momentum=0.9)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    ternary = dbq.branches(model)
    temperature = dbq.TemperatureSchedule(model, start=20, increment=20) if ternary else None
    for epoch in range(epochs):
        model.train()
        for x, y in shuffled(data):
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            if teacher is not None:
                with torch.no_grad():
                    soft_labels = teacher.eval()(x).softmax(1)
                loss = (loss + F.cross_entropy(logits, soft_labels)) / 2
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        cosine.step()
        if temperature:
            temperature.step()
        progress(what, epoch + 1, epochs)


def as_rgb(images: Tensor, labels: Tensor) -> Data:
    return images.expand(-1, 3, -1, -1), labels


def shuffled(data: Data) -> Iterator[Data]:
    images, labels = data
    for index in torch.split(torch.randperm(len(labels)), BATCH):
        yield images[index], labels[index]


@torch.no_grad()
def accuracy(model: nn.Module, data: Data) -> float:
    """Top-1 in percent."""
    images, labels = data
    return 100 * float((model.eval()(images).argmax(1) == labels).double().mean())


def results_table(rows: list[Row]) -> str:
    """The demo's results as text, with what they mean."""
    table = plain_table(
        [
            "plan",
            "pointwise weights",
            "prepared",
            "calibrated",
            "trained",
            "C_C",
            "C_S",
            "C_R",
            "C_M",
        ],
        left=2,
    )
    base = rows[0].cost
    for row in rows:
        cost = row.cost
        table.add_row(
            row.plan, row.meaning, f"{row.prepared:.1f}", f"{row.calibrated:.1f}",
            f"{row.trained:.1f}", *(short(c) for c in (cost.C_C, cost.C_S, cost.C_R, cost.C_M)),
        )  # fmt: skip
    last = rows[-1].cost
    return as_text(
        "MobileNetV1 0.25 on 360 test digits: top-1 in %, cost of one inference",
        table,
        "prepared: quantized, nothing else. calibrated: batch norm re-estimated, no labels.",
        "C_C 1-bit full adders, C_S without those of zero weights, C_R bits of weights and inputs,",
        f"C_M bits of the model. {rows[-1].plan} against float: "
        f"C_S {base.C_S / last.C_S:.1f}x less, C_M {base.C_M / last.C_M:.1f}x less.",
    )


def to_json(rows: list[Row]) -> list[dict[str, Any]]:
    """Plain data: a dict for each row, costs under "cost"."""
    return [asdict(row) for row in rows]
