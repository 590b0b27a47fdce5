"""Relaxed quantization against eqs. 3 to 5, sampled and written out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dbq.errors import PlanError
from dbq.plans.precision import Precision
from dbq.quantizers.methods.rq import RelaxedQuantizer
from tests.quantizers.contract import assert_exact, assert_finite


def made(w: Tensor, bits: int, tau: float = 0.66) -> RelaxedQuantizer:
    quantizer = RelaxedQuantizer(Precision("fixed", bits), len(w), tau).to(w.dtype)
    quantizer.initialise(w)
    return quantizer


def probabilities(w: float, alpha: float, sigma: float, points: range) -> list[float]:
    """Eq. 3 at each point, renormalised as in eq. 4."""

    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    pi = [
        sigmoid((alpha * (k + 0.5) - w) / sigma) - sigmoid((alpha * (k - 0.5) - w) / sigma)
        for k in points
    ]
    return [p / sum(pi) for p in pi]


def local(w: float, alpha: float, largest: int) -> range:
    """Two points on each side of the nearest, moved inside at the ends."""
    reach = min(2, largest)
    centre = max(-largest + reach, min(largest - reach, round(w / alpha)))
    return range(centre - reach, centre + reach + 1)


@pytest.mark.parametrize("bits", [2, 3, 8])
def test_a_training_step_is_eq_5(bits: int) -> None:
    """Given the same Gumbel numbers, drawn here from the same generator."""
    largest, tau = 2 ** (bits - 1) - 1, 0.5
    w = torch.randn(4, 6, dtype=torch.float64)
    quantizer = made(w, bits, tau).train()
    quantizer.log_sigma.data.add_(0.4)
    alpha, sigma = quantizer.log_alpha.exp().item(), quantizer.log_sigma.exp().item()
    torch.manual_seed(3)
    found = quantizer(w)
    torch.manual_seed(3)
    count = len(local(0.0, alpha, largest))
    draws = torch.empty(count, 4, 6, dtype=torch.float64).exponential_()
    for i in range(4):
        for j in range(6):
            points = local(w[i, j].item(), alpha, largest)
            pi = probabilities(w[i, j].item(), alpha, sigma, points)
            u = [-math.log(x) for x in draws[:, i, j].tolist()]
            z = [math.exp((math.log(p) + g) / tau) for p, g in zip(pi, u, strict=True)]
            wanted = alpha * sum(a * k for a, k in zip(z, points, strict=True)) / sum(z)
            # differences of sigmoids lose up to four digits of double precision in the tails
            assert math.isclose(found[i, j].item(), wanted, rel_tol=1e-9, abs_tol=1e-11)


def test_points_are_drawn_with_their_probabilities() -> None:
    """At a low temperature samples are grid points; how often each is drawn is pi."""
    n, alpha, sigma, value = 40_000, 0.5, 0.3, 0.37
    w = torch.full((1, n), value, dtype=torch.float64)
    quantizer = made(w, 4, tau=1e-3).train()
    quantizer.log_alpha.data.fill_(math.log(alpha))
    quantizer.log_sigma.data.fill_(math.log(sigma))
    codes = (quantizer(w) / alpha).detach()
    points = local(value, alpha, 7)
    for k, p in zip(points, probabilities(value, alpha, sigma, points), strict=True):
        share = (codes - k).abs().lt(1e-6).double().mean().item()
        assert abs(share - p) < 5 * math.sqrt(p / n) + 5e-3  # five deviations; a few stay between


@pytest.mark.parametrize("bits", [2, 4])
def test_gradients_by_finite_differences(bits: int) -> None:
    """Weights away from the middle between two points, where the local grid moves."""
    w = torch.tensor([[0.1, -0.4, 1.1, 2.9, -3.2, 0.3]], dtype=torch.float64, requires_grad=True)
    quantizer = made(w.detach(), bits).train()
    quantizer.log_alpha.data.zero_()
    quantizer.log_sigma.data.fill_(-0.5)

    def forward(weight: Tensor, *_: Tensor) -> Tensor:
        torch.manual_seed(5)
        return quantizer(weight)

    inputs = (w, quantizer.log_alpha, quantizer.log_sigma)
    assert torch.autograd.gradcheck(forward, inputs, eps=1e-6, atol=1e-7)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_eval_is_the_nearest_point(bits: int, dtype: torch.dtype) -> None:
    w = torch.randn(5, 3, 2, 2).to(dtype)
    largest = 2 ** (bits - 1) - 1
    quantizer = made(w, bits)
    alpha, sigma = quantizer.log_alpha.exp().item(), quantizer.log_sigma.exp().item()
    # the logarithm is rounded to 2^-24 of itself, at most 5: 3e-7 relative in alpha
    assert math.isclose(alpha, w.abs().max().item() / largest, rel_tol=1e-6)
    assert math.isclose(sigma, alpha / 3, rel_tol=1e-6)
    quantizer.log_alpha.data.sub_(0.7)  # so that some are clipped
    hard, alpha = assert_exact(quantizer, w), quantizer.log_alpha.exp().item()
    wanted = [alpha * max(-largest, min(largest, round(x / alpha))) for x in w.flatten().tolist()]
    # exp and the product round in the weight's type; no weight is that near to a middle
    torch.testing.assert_close(hard.flatten().tolist(), wanted, rtol=1e-6, atol=1e-7)
    assert quantizer.freeze(w).codes.abs().max() == largest


def test_little_noise_and_low_temperature_are_rounding() -> None:
    w = torch.randn(4, 50)
    quantizer = made(w, 4, tau=0.01)
    quantizer.log_sigma.data.sub_(20)
    near = (w / quantizer.log_alpha.exp()).frac().abs().sub(0.5).abs() > 0.05
    assert near.sum() > 100
    hard = quantizer.eval()(w)
    torch.testing.assert_close(quantizer.train()(w)[near], hard[near], rtol=1e-4, atol=1e-5)


def test_any_step_and_noise_are_usable() -> None:
    w = torch.randn(4, 9)
    for alpha, sigma in ((-200, -200), (-20, 5), (200, -200), (0, 50), (3, -90)):
        quantizer = made(w, 4)
        quantizer.log_alpha.data.fill_(float(alpha))
        quantizer.log_sigma.data.fill_(float(sigma))
        assert_finite(quantizer, w)
        assert_exact(quantizer, w)
    with pytest.raises(PlanError, match="tau"):
        RelaxedQuantizer(Precision("fixed", 4), 4, tau=0.0)
