"""A small network, and an image for it."""

from __future__ import annotations

import torch
from torch import nn

IMAGE = torch.randn(1, 3, 12, 12, generator=torch.Generator().manual_seed(2))


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 1), nn.Dropout(0.5), nn.Flatten(), nn.Linear(1600, 4),
    )  # fmt: skip
