"""Accuracy of ResNet-20 on CIFAR-10 with quantized weights and no training at all.

    python benchmarks/calibration.py [--data DIR] [--weights FILE]

Needs CIFAR-10 and float weights of ResNet-20; if one is missing, it says so and stops. Top-1 is over all
10,000 test images; `calibrate` sees 2,000 training images, once as they are and once augmented as in
training (random crops with black borders, and flips).
"""

from __future__ import annotations

import torch
from machine import headline, options, save
from tabular import ROOT, show
from torch import nn

import dbq
from dbq.data.options import DataOptions
from dbq.data.split import Split
from dbq.data.table import load_data
from dbq.model.layers import QuantLayer
from dbq.model.preparation import weight_error
from dbq.training.evaluation import evaluate
from dbq.training.processes.world import World

# plan: initialisations
CASES = {"fp": [""], "resnet-2t": ["alternate", "kmeans"], "resnet-1t": ["alternate", "kmeans"],
         "resnet-2t-a8": ["alternate"], "resnet-1t-a8": ["alternate"]}  # fmt: skip
COLUMNS = {"plan": "{plan}", "initialisation": "{initialisation}", "weight error": "{error:.3f}",
           "top-1": "{top1:.2f}", "plain": "{plain:.2f}", "augmented": "{augmented:.2f}"}  # fmt: skip
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what the float weights were trained with
CALIBRATION_IMAGES, BATCH = 2000, 200


def top1(model: nn.Module, test: Split) -> float:
    return evaluate(model, test, World(0, 1, torch.device("cpu")), channels_last=True).top1


def calibrated(model: nn.Module, train: Split, test: Split, draw: int | None) -> float:
    """Top-1 after `calibrate`; `draw` augments the images as in training."""
    groups = torch.split(torch.arange(CALIBRATION_IMAGES), BATCH)
    dbq.calibrate(model, train.batches(groups, draw), statistics="estimate")
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
    return float((error / max(size, 1e-30)) ** 0.5)


def main() -> None:
    data = ROOT / "data"
    weights = data / "resnet20-cifar10-fp.safetensors"
    arguments = options(__doc__, data=data, weights=weights).parse_args()
    if not arguments.weights.exists():
        print(f"skipped: no float ResNet-20 weights at {arguments.weights} (--weights FILE)")
        return
    try:
        train, test = load_data(DataOptions("cifar10", str(arguments.data), MEAN, STD))
    except dbq.DbqError as missing:
        print(f"skipped: {missing} (--data DIR)")
        return

    print(f"ResNet-20, CIFAR-10, no training, {headline()}")
    rows = []
    for name, init in ((name, init) for name, inits in CASES.items() for init in inits):
        model = dbq.create_model("resnet20", weights=arguments.weights)
        plan = dbq.load_plan(name).with_method("ternary", options={"init": init})
        dbq.prepare(model, plan, torch.zeros(1, 3, 32, 32))
        rows.append({
            "plan": name, "initialisation": init, "error": total_weight_error(model),
            "top1": top1(model, test), "plain": calibrated(model, train, test, draw=None),
            "augmented": calibrated(model, train, test, draw=0),
        })  # fmt: skip
    print(show(COLUMNS, rows))
    print(save("calibration", rows=rows))


if __name__ == "__main__":
    main()
