"""Subclasses of Conv2d, Linear and BatchNorm2d that somebody else wrote: quantized, trained, copied."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dbq
from dbq.model.layers import QuantLayer

IMAGE = torch.rand(2, 3, 9, 9, generator=torch.Generator().manual_seed(4))


class Renamed(nn.Conv2d):
    """Adds nothing."""


class SamePadding(nn.Conv2d):
    """Pads more at the end, as TensorFlow does, and has methods of its own."""

    def pads(self, x: Tensor) -> list[int]:
        total = [max(0, (-(-n // 2) - 1) * 2 + 3 - n) for n in x.shape[-2:]]
        return [total[1] // 2, total[1] - total[1] // 2, total[0] // 2, total[0] - total[0] // 2]

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, self.pads(x))
        return F.conv2d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class Activated(nn.Conv2d):
    """Holds its activation."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(super().forward(x))


class Standardised(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        weight = (self.weight - self.weight.mean()) / self.weight.std()
        return self._conv_forward(x, weight, self.bias)


class PreActivated(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.relu(x))


class Biasless(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight)


class NormAct(nn.BatchNorm2d):
    """A batch norm that holds its activation."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.act = nn.ReLU()

    def forward(self, input: Tensor) -> Tensor:
        return self.act(super().forward(input))


def network(kind: type[nn.Conv2d]) -> nn.Sequential:
    torch.manual_seed(1)
    middle: Any = kind(4, 6, 3, stride=2)
    net = nn.Sequential(nn.Conv2d(3, 4, 1), NormAct(4), middle, nn.ReLU(), nn.Flatten(),
                        nn.LazyLinear(2))  # fmt: skip
    net(IMAGE)
    return net


@pytest.mark.parametrize("kind", [Renamed, SamePadding, Activated])
def test_quantized_by_what_they_do(kind: type[nn.Conv2d]) -> None:
    net = network(kind)
    summary = dbq.prepare(net, "fx8-3", IMAGE)
    assert summary.notes == ()
    assert isinstance(net[2], QuantLayer)
    assert isinstance(net[2], kind)
    dbq.calibrate(net, [IMAGE])
    net.eval()
    x = net[:2](IMAGE)
    layer = net[2]
    plain: Any = kind(4, 6, 3, stride=2)
    with torch.no_grad():
        plain.weight.copy_(layer.quantized_weight())
        plain.bias.copy_(layer.bias)
        expected = plain(layer.quantized_input(x))
    assert torch.equal(layer(x), expected), "its own forward, on quantized input and weight"
    net.train()(IMAGE).square().sum().backward()
    assert layer._parameters["weight"].grad.abs().sum() > 0
    assert layer.weight is layer._parameters["weight"], "outside of forward: the float weight"


def test_linear_layers_too() -> None:
    net = nn.Sequential(nn.Flatten(), Biasless(243, 4), nn.Linear(4, 2))
    assert dbq.prepare(net, "fx8-3", IMAGE).notes == ()
    assert isinstance(net[1], QuantLayer)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(Standardised, "another weight"), (PreActivated, "changes its input")],
)
def test_left_alone_and_named(kind: type[nn.Conv2d], reason: str) -> None:
    net = network(kind)
    (note,) = dbq.prepare(net, "fx8-3", IMAGE).notes
    assert note.startswith("2 ")
    assert kind.__name__ in note
    assert reason in note
    assert type(net[2]) is kind


def test_copies_and_pickles() -> None:
    net = network(SamePadding)
    dbq.prepare(net, "dbq-2t-4", IMAGE)
    dbq.calibrate(net, [IMAGE])
    net.eval()
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(net(IMAGE), twin(IMAGE))
        assert type(twin[2]) is type(net[2])
        assert twin[2].weight is not net[2].weight
    twin = network(SamePadding)
    dbq.prepare(twin, "dbq-2t-4", IMAGE)
    twin.load_state_dict(net.state_dict())
    assert torch.equal(net(IMAGE), twin.eval()(IMAGE))


def test_an_activation_inside_a_batch_norm_is_seen() -> None:
    """The layer behind it reads unsigned codes, and is clipped by that batch norm."""
    summary = dbq.prepare(network(Renamed), "fx8-3", IMAGE)
    assert [row.clip for row in summary.layers] == ["±range", "bn 1", "range"]


def test_the_summary_leads_with_the_share_of_the_work() -> None:
    net = nn.Sequential(Standardised(3, 32, 3), nn.Conv2d(32, 8, 1), nn.ReLU(), nn.Conv2d(8, 2, 1))
    summary = dbq.prepare(net, "dbq-2t-4", IMAGE)
    pixels = 49
    float_macs, two, last = 32 * 27 * pixels, 32 * 8 * pixels, 16 * pixels
    assert summary.macs == float_macs + two + last
    assert summary.shares() == pytest.approx(
        {"float": float_macs / summary.macs, "2T": two / summary.macs, "8b": last / summary.macs}
    )
    warning, share = summary.heading()
    assert warning.startswith("WARNING: only 23.9 %")
    assert "76.1 % float, 22.5 % 2T" in share
    assert str(summary).startswith("WARNING")
    assert "WARNING" not in str(dbq.prepare(network(Renamed), "fx8-3", IMAGE))
