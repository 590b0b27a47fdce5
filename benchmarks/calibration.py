"""Accuracy of ResNet-20 on CIFAR-10 with quantized weights and no training at all.

    python benchmarks/calibration.py [--data DIR] [--weights FILE]

Needs CIFAR-10 and float weights of ResNet-20; if one is missing, it says so and stops. Top-1 is over all
10,000 test images; `calibrate` sees 2,000 training images, once as they are and once augmented as in
training (random crops with black borders, and flips).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from machine import headline, save
from torch import nn

import dbq
from dbq.data.options import DataOptions
from dbq.data.split import Split
from dbq.data.table import load_data
from dbq.model.layers import QuantLayer
from dbq.model.preparation import weight_error
from dbq.support.text import as_text, plain_table
from dbq.training.evaluation import evaluate
from dbq.training.processes.world import World

REPOSITORY = Path(__file__).parents[1]
# plan, initialisation
CASES = [
    ("fp", "alternate"),
    ("resnet-2t", "alternate"),
    ("resnet-2t", "kmeans"),
    ("resnet-1t", "alternate"),
    ("resnet-1t", "kmeans"),
    ("resnet-2t-a8", "alternate"),
    ("resnet-1t-a8", "alternate"),
]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what the float weights were trained with
CALIBRATION_IMAGES, BATCH = 2000, 200


def top1(model: nn.Module, test: Split) -> float:
    return evaluate(model, test, World(0, 1, torch.device("cpu")), channels_last=True).top1


def calibrated(model: nn.Module, train: Split, test: Split, draw: int | None) -> float:
    """Top-1 after `calibrate`; `draw` augments the images as in training."""
    groups = torch.split(torch.arange(CALIBRATION_IMAGES), BATCH)
    dbq.calibrate(model, train.batches(groups, draw))
    return top1(model, test)


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
    weights = REPOSITORY / "data" / "resnet20-cifar10-fp.safetensors"
    parser.add_argument("--weights", type=Path, default=weights)
    arguments = parser.parse_args()
    if not arguments.weights.exists():
        print(f"skipped: no float ResNet-20 weights at {arguments.weights} (--weights FILE)")
        return
    try:
        train, test = load_data(DataOptions("cifar10", str(arguments.data), MEAN, STD))
    except dbq.DbqError as missing:
        print(f"skipped: {missing} (--data DIR)")
        return

    print(f"ResNet-20, CIFAR-10, no training, {headline()}")
    names = ["plan", "initialisation", "weight error", "top-1", "plain", "augmented"]
    table = plain_table(names, left=2)
    rows: list[dict[str, float | str]] = []
    for name, init in CASES:
        model = dbq.create_model("resnet20", weights=arguments.weights)
        plan = dbq.load_plan(name).with_method("ternary", options={"init": init})
        dbq.prepare(model, plan, torch.zeros(1, 3, 32, 32))
        row: dict[str, float | str] = {
            "plan": name,
            "initialisation": init if name != "fp" else "",
            "error": total_weight_error(model) if name != "fp" else 0.0,
            "top1": top1(model, test),
            "plain": calibrated(model, train, test, draw=None),
            "augmented": calibrated(model, train, test, draw=0),
        }
        rows.append(row)
        table.add_row(
            name, str(row["initialisation"]), f"{row['error']:.3f}",
            *(f"{row[key]:.2f}" for key in ("top1", "plain", "augmented")),
        )  # fmt: skip
    print(as_text(table))
    print(save("calibration", "python benchmarks/calibration.py", rows=rows))


if __name__ == "__main__":
    main()
