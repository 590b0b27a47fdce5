"""Accuracy of ResNet-20 on CIFAR-10 with quantized weights and no training at all.

    python benchmarks/calibration.py [--data DIR] [--weights FILE]

Needs CIFAR-10 in its binary form and float ResNet-20 weights; says what is missing and stops where
one is not there. Top-1 is over all 10,000 test images; `calibrate` sees 2,000 training images.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from machine import headline, save
from torch import Tensor, nn

import dbq
from dbq.data.cifar10 import load_cifar10
from dbq.data.split import normalise
from dbq.layers import QuantLayer
from dbq.preparation import weight_error
from dbq.text import as_text, plain_table

REPOSITORY = Path(__file__).parents[1]
# plan, initialisation, least accuracy after calibration
CASES = [
    ("resnet-2t", "alternate", 86.0),
    ("resnet-2t", "kmeans", None),
    ("resnet-1t", "alternate", 70.0),
    ("resnet-1t", "kmeans", None),
    ("resnet-2t-a8", "alternate", None),
    ("resnet-1t-a8", "alternate", None),
]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what the float weights were trained with
CALIBRATION_IMAGES, BATCH = 2000, 200


@torch.no_grad()
def top1(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    model.eval()
    right = 0
    for x, y in zip(torch.split(images, 500), torch.split(labels, 500), strict=True):
        right += int((model(x).argmax(1) == y).sum())
    return 100 * right / len(labels)


def total_weight_error(model: nn.Module) -> float:
    """|w_q - w| / |w| over all branched weights together."""
    error = size = 0.0
    for name in dbq.branches(model):
        layer = model.get_submodule(name)
        assert isinstance(layer, QuantLayer)
        assert layer.weight_quantizer is not None
        weight = layer.weight.detach()
        error += (weight_error(layer.weight_quantizer, weight) * float(weight.norm())) ** 2
        size += float(weight.norm()) ** 2
    return float((error / size) ** 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=REPOSITORY / "data")
    beside = REPOSITORY.parent / "shared" / "data" / "resnet20-cifar10-fp.safetensors"
    parser.add_argument("--weights", type=Path, default=beside)
    arguments = parser.parse_args()
    if not arguments.weights.exists():
        print(f"skipped: no float ResNet-20 weights at {arguments.weights} (--weights FILE)")
        return
    try:
        test, labels = load_cifar10(arguments.data, "test")
        train, _ = load_cifar10(arguments.data, "train")
    except dbq.DbqError as missing:
        print(f"skipped: {missing} (--data DIR)")
        return
    test, train = normalise(test, MEAN, STD), normalise(train[:CALIBRATION_IMAGES], MEAN, STD)

    print(f"ResNet-20, CIFAR-10, no training, {headline()}")
    table = plain_table(
        ["plan", "initialisation", "weight error", "top-1", "calibrated", "target"], left=2
    )
    model = dbq.create_model("resnet20", weights=arguments.weights)
    rows: list[dict[str, float | str | None]] = [
        {"plan": "fp", "initialisation": "", "error": 0.0, "top1": top1(model, test, labels),
         "calibrated": None, "target": None}
    ]  # fmt: skip
    for name, init, target in CASES:
        model = dbq.create_model("resnet20", weights=arguments.weights)
        plan = dbq.load_plan(name)
        plan = replace(plan, default=replace(plan.default, options={"init": init}))
        dbq.prepare(model, plan, test[:1])
        error, before = total_weight_error(model), top1(model, test, labels)
        dbq.calibrate(model, torch.split(train, BATCH))
        after = top1(model, test, labels)
        rows.append({"plan": name, "initialisation": init, "error": error, "top1": before,
                     "calibrated": after, "target": target})  # fmt: skip
    for row in rows:
        table.add_row(
            str(row["plan"]), str(row["initialisation"]), f"{row['error']:.3f}",
            f"{row['top1']:.2f}",
            "" if row["calibrated"] is None else f"{row['calibrated']:.2f}",
            "" if row["target"] is None else f">= {row['target']:g}",
        )  # fmt: skip
    print(as_text(table))
    print(save("calibration", "python benchmarks/calibration.py", rows=rows))


if __name__ == "__main__":
    main()
