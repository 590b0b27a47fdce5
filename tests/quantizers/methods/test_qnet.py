"""Quantization Networks against eq. 7 and 12 written out, and finite differences."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import Tensor

from dbq.errors import PlanError
from dbq.model.schedule import TemperatureSchedule
from dbq.plans.precision import Precision
from dbq.quantizers.methods.qnet import MOST_CLUSTERED, QNetQuantizer, clustered
from tests.quantizers.contract import assert_exact, odd_weights


def made(w: Tensor, branches: int) -> QNetQuantizer:
    quantizer = QNetQuantizer(Precision("ternary", branches), len(w)).to(w.dtype)
    quantizer.initialise(w)
    return quantizer


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


@pytest.mark.parametrize("branches", [1, 2])
@pytest.mark.parametrize("sign", [1, -1])
def test_soft_and_hard_values(branches: int, sign: int) -> None:
    w = torch.randn(3, 2, 2, 2, dtype=torch.float64)
    quantizer = made(w, branches)
    with torch.no_grad():
        quantizer.alpha.mul_(1.3)
        quantizer.beta.mul_(0.8 * sign)
    quantizer.temperature.fill_(5.0)
    alpha, beta, b = quantizer.alpha.item(), quantizer.beta.item(), quantizer.thresholds.tolist()
    assert len(b) == 2 * branches
    soft, hard = [], []
    for x in w.flatten().tolist():
        soft.append(alpha * (sum(sigmoid(5 * (beta * x - t)) for t in b) - branches))
        hard.append(alpha * (sum(beta * x > t for t in b) - branches))
    # five terms of O(1), each rounded to 2^-53 relative
    expected = torch.tensor([soft, hard], dtype=torch.float64)
    assert_close = partial(torch.testing.assert_close, rtol=0, atol=1e-14)
    assert_close(quantizer.train()(w).detach().flatten(), expected[0])
    assert_close(assert_exact(quantizer, w).flatten(), expected[1])


@pytest.mark.parametrize("branches", [1, 2])
def test_gradients_are_those_of_the_soft_function(branches: int) -> None:
    w = torch.randn(2, 7, dtype=torch.float64, requires_grad=True)
    quantizer = made(w.detach(), branches).train()
    quantizer.temperature.fill_(4.0)
    parameters = [quantizer.alpha, quantizer.beta]
    assert sorted(dict(quantizer.named_parameters())) == ["alpha", "beta"], "thresholds stay"

    def forward(weight: Tensor, *_: Tensor) -> Tensor:
        return quantizer(weight)

    assert torch.autograd.gradcheck(forward, (w, *parameters), eps=1e-6, atol=1e-7)


@pytest.mark.parametrize("branches", [1, 2])
def test_native_float32_agrees_with_float64(branches: int) -> None:
    w = torch.randn(6, 20)
    outcomes = []
    for dtype in (torch.float32, torch.float64):
        quantizer = made(w, branches).to(dtype)
        x = w.to(dtype, copy=True).requires_grad_()
        y = quantizer(x)
        y.square().sum().backward()
        outcomes.append((y, x.grad, quantizer.alpha.grad, quantizer.beta.grad))
    for single, double in zip(*outcomes, strict=True):
        # 120 terms; T = 50 multiplies the rounding of beta w, 2^-24, in the slope
        torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("branches", [1, 2])
def test_initialisation(branches: int) -> None:
    centres = torch.linspace(-1, 1, 2 * branches + 1, dtype=torch.float64)
    w = (centres.unsqueeze(1) + 0.05 * torch.linspace(-1, 1, 11).double()).flatten().unsqueeze(0)
    quantizer = made(w, branches)
    beta = 5 * branches / 4 / 1.05
    assert math.isclose(quantizer.beta.item(), beta, rel_tol=1e-14)
    assert math.isclose(quantizer.alpha.item(), 1 / beta, rel_tol=1e-14)
    middles = beta * (centres[1:] + centres[:-1]) / 2
    torch.testing.assert_close(quantizer.thresholds, middles)
    levels = assert_exact(quantizer, w).reshape(2 * branches + 1, 11)
    wanted = torch.arange(-branches, branches + 1).double() / beta
    torch.testing.assert_close(levels, wanted.unsqueeze(1).expand(-1, 11))


def test_large_layers_are_clustered_by_a_part() -> None:
    u = torch.randn(3 * MOST_CLUSTERED + 5, dtype=torch.float64)
    thresholds = clustered(u, 1)
    # optimal 3-level quantizer of a normal: thresholds +-0.612; 16,000 samples give it to 1 %
    torch.testing.assert_close(
        thresholds, torch.tensor([-0.612, 0.612]).double(), rtol=0, atol=0.05
    )


@pytest.mark.parametrize("branches", [1, 2])
def test_layers_of_one_value(branches: int) -> None:
    for w in odd_weights():
        if len(w.unique()) == 1:
            # one value q: the level p alpha = 4/5 q is its nearest, zeros stay zero
            wanted = 0.8 * w if w.abs().max() > 1e-30 else 0 * w
            torch.testing.assert_close(assert_exact(made(w, branches), w), wanted)


def test_signs_and_damaged_weights() -> None:
    w = torch.randn(4, 9)
    quantizer = made(w, 2)
    before = assert_exact(quantizer, w)
    quantizer.alpha.data.neg_()
    assert torch.equal(assert_exact(quantizer, w), before), "only the size of alpha counts"
    w[1, 2] = torch.nan
    assert quantizer.eval()(w).isnan().nonzero().tolist() == [[1, 2]]
    with pytest.raises(PlanError, match="3T"):
        QNetQuantizer(Precision("ternary", 3), 4)


def test_the_temperature_schedule_finds_it() -> None:
    net = torch.nn.Sequential(made(torch.randn(2, 4), 1))
    TemperatureSchedule(net, start=5, increment=5).step()
    assert net[0].temperature == 10
