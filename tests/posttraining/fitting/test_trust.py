"""A few pixels that are far off do not decide what happens to all others."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import dbq
from dbq.model.statistics import Statistics
from dbq.posttraining.agreement import agreement
from dbq.posttraining.fitting.layerwise import Choices, fit_layers
from dbq.posttraining.fitting.trust import USUAL, trust


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_no_pixel_counts_for_more_than_a_multiple_of_a_usual_one() -> None:
    """weight * r^2 = d^2 r^2 / (d^2 + r^2) < d^2, and d is USUAL medians."""
    wanted = noise(4, 3, 5, 5)
    got = wanted + 0.01 * noise(4, 3, 5, 5, seed=1)
    got[0, :, 0, 0] += torch.tensor([10.0, 1e3, 1e6])
    weight = trust(got, wanted)
    assert weight.shape == (4, 5, 5)
    assert float(weight.max()) <= 1
    r = ((got - wanted) / wanted.std([0, 2, 3], correction=0, keepdim=True)).square().mean(1)
    rounding = 4 * torch.finfo(torch.float32).eps  # of the weight, and of the product
    most = max(USUAL**2 * float(r.median()), float(r.flatten().sort().values[89]))
    assert float((weight * r).max()) <= most * (1 + rounding)
    usual = r <= r.median()
    assert float(weight[usual].min()) == pytest.approx(
        USUAL**2 / (USUAL**2 + 1)
    )  # the median itself


def test_what_most_pixels_lack_is_no_outlier() -> None:
    """A quarter of each image differs, as where the rest is background: all of it counts."""
    wanted = noise(4, 3, 8, 8)
    got = wanted.clone()
    got[:, :, :4, :4] += 0.1 * noise(4, 3, 4, 4, seed=1)
    weight = trust(got, wanted)
    assert float(weight[:, :4, :4].min()) > 0.1
    got[:, :, 4:, 4:] += 1e-6 * noise(4, 3, 4, 4, seed=2)
    got[:, :, :4, 4:] += 1e-6 * noise(4, 3, 4, 4, seed=3)
    assert float(trust(got, wanted)[:, :4, :4].min()) > 0.1


@pytest.mark.parametrize("channels", [1, -1])
def test_equal_tensors_count_in_full(channels: int) -> None:
    x = noise(4, 3, 6)
    x[:, 1] = 0  # a dead channel
    assert torch.equal(trust(x, x, channels), torch.ones_like(x.sum(channels)))


def test_weighted_statistics_are_those_of_repeated_pixels() -> None:
    x = noise(2, 3, 4, 4).double()
    times = torch.randint(1, 4, (2, 4, 4), generator=torch.Generator().manual_seed(0))
    found = Statistics()
    found.add(x[:1], times[:1])
    found.add(x[1:], times[1:])
    rows = x.movedim(1, -1).reshape(-1, 3).repeat_interleave(times.flatten(), 0)
    torch.testing.assert_close(found.mean, rows.mean(0))
    torch.testing.assert_close(found.var, rows.var(0, correction=0))


class Corner(nn.Module):
    """Behind the first layer one pixel is stronger than the rest; the classifier never sees it."""

    strength: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 16, 1)
        self.register_buffer("strength", torch.ones(8, 8))
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 1, bias=False)
        self.last_norm = nn.BatchNorm2d(16)
        self.classifier = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x) * self.strength).relu()
        x = self.last_norm(self.second(x)).relu()
        seen: Tensor = self.classifier(x[:, :, 1:, 1:].mean((2, 3)))
        return seen


@torch.no_grad()
def test_clipped_corners_do_not_spoil_the_fit() -> None:
    """The batch norm knows nothing of the corner, so that is clipped; all other pixels lie within."""
    net = Corner()
    net.train()
    for seed in range(50):
        net(noise(16, 3, 8, 8, seed=seed))
    net.eval()
    net.strength[0, 0] = 300
    x, unseen = noise(64, 3, 8, 8, seed=100), noise(64, 3, 8, 8, seed=101)
    student = copy.deepcopy(net)
    dbq.prepare(student, "fx8-3", x[:1])
    dbq.calibrate(student, [x], statistics="keep")
    before = agreement([net(unseen)], [student(unseen)]).distance
    fit_layers(net, student, x, Choices())
    assert (
        agreement([net(unseen)], [student(unseen)]).distance < 10 * before
    )  # 600 if all pixels count
