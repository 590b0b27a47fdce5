"""Pixels count by what the network's outputs make of them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dbq
from dbq.posttraining.fitting.importance import EQUAL_SHARE, OWN_SHARE, importance
from dbq.posttraining.fitting.layerwise import Choices


class LooksLeft(nn.Module):
    """Classifies by the left half of its features; the right half is noise to it."""

    def __init__(self, classes: int = 6) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.body = nn.Conv2d(8, 16, 1)
        self.head = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.body(torch.relu(self.stem(x))))
        logits: Tensor = self.head(y[..., : y.shape[-1] // 2].mean([2, 3]))
        return logits


def images(count: int, seed: int = 1) -> Tensor:
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def test_what_is_not_looked_at_counts_least() -> None:
    found = importance(LooksLeft().eval(), images(5), {"body": 5, "head": 5}, batch=2, seed=0)
    body = found["body"].places
    assert body.shape == (5, 8, 8)
    assert torch.allclose(body[..., 4:], torch.tensor(EQUAL_SHARE))
    assert float(body[..., :4].mean()) > 1
    assert torch.allclose(body.mean([1, 2]), torch.ones(5))
    assert torch.equal(found["head"].places, torch.ones(5))  # one place for each image


def test_it_is_the_curvature_of_the_divergence() -> None:
    """Two classes have one direction, so that a single draw says it all: the diagonal of J' S J."""
    net, x = LooksLeft(2).eval().double(), images(1).double()

    def logits(y: Tensor) -> Tensor:
        out: Tensor = net.head(torch.relu(y)[..., :4].mean([2, 3]))
        return out[0]

    y = net.body(torch.relu(net.stem(x))).detach()
    jacobian = torch.autograd.functional.jacobian(logits, y)[:, 0]  # classes x 16 x 8 x 8
    p = logits(y).detach().softmax(0)
    curvature = torch.einsum("acij,ab,bcij->ij", jacobian, p.diag() - p.outer(p), jacobian)
    found = importance(net, x, {"body": 1}, batch=1, seed=0)["body"]
    wanted = EQUAL_SHARE + (1 - EQUAL_SHARE) * curvature / curvature.mean()
    assert torch.allclose(found.places[0].double(), wanted, rtol=1e-5)
    between = torch.einsum("acij,ab,bdij->cd", jacobian, p.diag() - p.outer(p), jacobian)
    assert found.channels is not None
    wanted = between / between.diagonal().mean() + OWN_SHARE * torch.eye(16)
    assert torch.allclose(found.channels, wanted, rtol=1e-5, atol=1e-6)


def test_fewer_images_for_early_layers() -> None:
    counts = {"stem": 3, "body": 9, "head": 20}
    found = importance(LooksLeft().eval(), images(10), counts, batch=2, seed=0)
    assert {name: len(of_layer.places) for name, of_layer in found.items()} == {
        "stem": 4, "body": 10, "head": 10,
    }  # fmt: skip


def test_writing_in_place_changes_nothing() -> None:
    def network(inplace: bool) -> nn.Module:
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(inplace), nn.Conv2d(4, 5, 6), nn.Flatten()
        ).eval()

    found = [
        importance(network(inplace), images(4), {"0": 4}, batch=4, seed=0)["0"].places
        for inplace in (True, False)
    ]
    assert torch.equal(*found)


def test_several_outputs() -> None:
    class Two(LooksLeft):
        def forward(self, x: Tensor) -> Any:
            y = self.body(torch.relu(self.stem(x)))
            return {"left": y[..., :4], "count": (y > 0).sum()}  # the second has no gradient

    found = importance(Two().eval(), images(4), {"stem": 4, "body": 4}, batch=4, seed=0)
    body = found["body"].places
    assert torch.allclose(body[..., 4:], torch.tensor(EQUAL_SHARE))
    assert bool((body[..., :4] > EQUAL_SHARE).all())


def test_a_layer_is_right_where_it_matters() -> None:
    """Channels come in pairs that are equal in the left half and opposite in the right one.

    There only the sums of two weights matter, here their differences: one branch has to choose.
    """
    torch.manual_seed(0)
    net = LooksLeft().eval()
    net.stem = nn.Conv2d(8, 8, 1, bias=False)
    nn.init.eye_(net.stem.weight.data[..., 0, 0])
    half = torch.rand(200, 4, 8, 8, generator=torch.Generator().manual_seed(1))
    x = torch.cat([half, half], 1)
    x[:, 4:, :, 4:] = 1 - x[:, 4:, :, 4:]
    errors = []
    for counts in (True, False):
        student = copy.deepcopy(net)
        plan = dbq.Plan("fp").with_layers({"body": dbq.LayerPlan.of("1T")})
        dbq.quantize(student, plan, x, choices=Choices(importance=counts))
        with torch.no_grad():
            error = (student.eval().body(x) - net.body(x))[..., :4]
        errors.append(float((error - error.mean([0, 2, 3], keepdim=True)).square().mean()))
    assert errors[0] < 0.8 * errors[1]


@pytest.mark.parametrize("weight", ["1T", "2T", "3b"])
def test_channels_that_are_added_up_make_up_for_each_other(weight: str) -> None:
    """What a network reads of eight channels is three sums of them."""
    torch.manual_seed(0)
    body = nn.Conv2d(6, 8, 1, bias=False)
    net = nn.Sequential(body, nn.Conv2d(8, 3, 1, bias=False), nn.Flatten()).eval()
    x = torch.randn(100, 6, 5, 5, generator=torch.Generator().manual_seed(1))
    errors = []
    for together in (True, False):
        student = copy.deepcopy(net)
        plan = dbq.Plan("fp").with_layers({"0": dbq.LayerPlan.of(weight)})
        dbq.quantize(student, plan, x, choices=Choices(together=together))
        with torch.no_grad():
            errors.append(float((student.eval()(x) - net(x)).square().mean()))
    assert errors[0] < 0.7 * errors[1]


def test_too_many_channels_are_each_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbq.posttraining.fitting.importance.MOST_CHANNELS", 10)
    found = importance(LooksLeft().eval(), images(4), {"stem": 4, "body": 4}, batch=2, seed=0)
    assert found["body"].channels is None
    assert found["stem"].channels is not None


def test_a_network_without_gradients_gets_a_note() -> None:
    class NoBackward(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            raise RuntimeError("cannot be differentiated")

    class Opaque(LooksLeft):
        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = NoBackward.apply(super().forward(x))
            return y

    summary = dbq.quantize(Opaque(), "dbq-2t-1", images(40))
    (note,) = (note for note in summary.notes if "alike" in note)
    assert "cannot be differentiated" in note
