"""CIFAR-10's photographs with two labels, vehicle and animal: a small stand-in for Visual Wake Words."""

from __future__ import annotations

import torch
from torch import Tensor

from dbq.data.cifar10.files import CLASSES as CIFAR10_CLASSES
from dbq.data.cifar10.files import MEAN, STD, load_cifar10
from dbq.data.options import DataOptions
from dbq.data.split import Split, TensorSplit

CLASSES = ("animal", "vehicle")
VEHICLES = ("airplane", "automobile", "ship", "truck")


def load(options: DataOptions, device: torch.device) -> tuple[Split, Split]:
    """Train (pad 4, crop, flip) and test, as CIFAR-10 itself."""
    mean, std = options.mean or MEAN, options.std or STD

    def split(name: str) -> Split:
        images, labels = load_cifar10(options.directory, name)
        return TensorSplit(
            images, is_vehicle(labels), name=name, classes=CLASSES,
            mean=mean, std=std, pad=4, flip=True, device=device,
        )  # fmt: skip

    return split("train"), split("test")


def is_vehicle(labels: Tensor) -> Tensor:
    """CIFAR-10's labels as ours.

    >>> is_vehicle(torch.tensor([0, 3, 9]))
    tensor([1, 0, 1])
    """
    return torch.tensor([int(name in VEHICLES) for name in CIFAR10_CLASSES])[labels]
