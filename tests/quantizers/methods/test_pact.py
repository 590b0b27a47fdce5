"""PACT against its published equations."""

from __future__ import annotations

import math

import pytest
import torch

from dbq.plans.precision import Precision
from dbq.quantizers.inputs import SMALLEST_CLIP
from dbq.quantizers.methods.pact import INITIAL_CLIP, PactInputQuantizer
from tests.gradient import gradient


def made(bits: int, signed: bool, alpha: float) -> PactInputQuantizer:
    quantizer = PactInputQuantizer(Precision("fixed", bits), signed)
    quantizer.clip.alpha.data.fill_(alpha)
    return quantizer


def by_hand(x: float, alpha: float, bits: int, signed: bool) -> tuple[float, float, float]:
    """q(x), dq/dx, dq/dalpha."""
    largest = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    floor = -alpha if signed else 0.0
    step = alpha / largest
    q = step * round(min(max(x, floor), alpha) / step)
    if x >= alpha:
        return q, 0.0, 1.0
    if signed and x <= -alpha:
        return q, 0.0, -1.0
    return q, float(x >= floor), 0.0


@pytest.mark.parametrize("bits", [2, 3, 8])
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("alpha", [1.5, -1.5])
def test_values_and_gradients(bits: int, signed: bool, alpha: float) -> None:
    quantizer = made(bits, signed, alpha)
    x = torch.cat([torch.linspace(-4, 4, 400) + 1e-4, torch.tensor([1.5, 0.0])]).requires_grad_()
    G = torch.randn(402)
    y = quantizer(x)
    y.backward(G)
    rows = [by_hand(value, 1.5, bits, signed) for value in x.tolist()]
    q, d_x, d_alpha = (torch.tensor(column) for column in zip(*rows, strict=True))
    # float32: the step, the quotient and the product round once each, 3 * 2^-24 * 1.5
    torch.testing.assert_close(y.detach(), q, rtol=0, atol=4e-7)
    assert torch.equal(gradient(x), d_x * G)
    wanted = math.copysign(1, alpha) * math.fsum((d_alpha * G).tolist())
    assert math.isclose(
        quantizer.clip.alpha.grad.item(), wanted, rel_tol=1e-4
    )  # 200 float32s added


def test_the_scale_that_deployment_reads_gives_the_same_bits() -> None:
    quantizer = made(4, False, 2.3)
    x = 3 * torch.rand(500)
    grid = quantizer.grid()
    codes = (x / grid.scale).round().clamp(grid.low, grid.high)
    assert torch.equal(codes * grid.scale, quantizer(x))
    assert (grid.type, grid.low, grid.high) == ("u8", 0, 15)


def test_alpha_starts_large_and_decay_brings_it_down() -> None:
    quantizer = PactInputQuantizer(Precision("fixed", 4), signed=False)
    assert quantizer.clip.alpha.item() == INITIAL_CLIP
    assert quantizer.decays
    optimizer = torch.optim.SGD(quantizer.parameters(), lr=0.1, weight_decay=0.5)
    quantizer(torch.rand(10, requires_grad=True)).sum().backward()  # nothing is clipped
    optimizer.step()
    assert math.isclose(quantizer.clip.alpha.item(), INITIAL_CLIP * (1 - 0.05), rel_tol=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 1e-30, -1e-30])
def test_an_alpha_that_has_vanished_stays_usable(alpha: float) -> None:
    quantizer = made(4, True, alpha)
    x = torch.randn(50, requires_grad=True)
    y = quantizer(x)
    assert torch.isfinite(y).all()
    assert y.abs().max() <= 1.01 * SMALLEST_CLIP
    (y * x.detach().sign()).sum().backward()
    assert quantizer.clip.alpha.grad.abs() == 50, "every value asks for a larger clip"


def test_state_and_half_precision() -> None:
    quantizer, fresh = made(4, False, 2.3), made(4, False, 6.0)
    fresh.load_state_dict(quantizer.state_dict())
    x = 3 * torch.rand(100)
    assert torch.equal(fresh(x), quantizer(x))
    half = x.bfloat16()
    assert torch.equal(quantizer(half), quantizer(half.float()).bfloat16())
    quantizer.reset()
    assert quantizer.clip.alpha.item() == INITIAL_CLIP
