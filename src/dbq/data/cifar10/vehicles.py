"""CIFAR-10's photographs with two labels, vehicle and animal: a small stand-in for Visual Wake Words."""

from __future__ import annotations

import torch
from torch import Tensor

from dbq.data.cifar10 import files
from dbq.data.options import DataOptions
from dbq.data.split import Split

CLASSES = ("animal", "vehicle")
VEHICLES = ("airplane", "automobile", "ship", "truck")


def load(options: DataOptions, device: torch.device) -> tuple[Split, Split]:
    """Train and test, as those of CIFAR-10 but for the labels."""
    return files.load(options, device, CLASSES, is_vehicle)


def is_vehicle(labels: Tensor) -> Tensor:
    """CIFAR-10's labels as ours.

    >>> is_vehicle(torch.tensor([0, 3, 9]))
    tensor([1, 0, 1])
    """
    return torch.tensor([int(name in VEHICLES) for name in files.CLASSES])[labels]
