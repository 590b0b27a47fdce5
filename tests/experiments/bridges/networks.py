"""A small quantized network and data for it, as users of other libraries would bring them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import dbq
from dbq.model.schedule import soft_quantizers

CLASSES = 3


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES),
    )  # fmt: skip


def images(count: int = 24) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def labels(count: int = 24) -> Tensor:
    return torch.arange(count) % CLASSES


def quantized() -> nn.Module:
    model = network()
    dbq.prepare(model, "dbq-2t-4", images(2))
    dbq.calibrate(model, [images()])
    return model


def temperatures(model: nn.Module) -> set[float]:
    """Of all soft quantizers: one number, if they agree."""
    found = [q.temperature for q in soft_quantizers(model) if q.temperature is not None]
    assert found
    return {float(temperature) for temperature in found}
