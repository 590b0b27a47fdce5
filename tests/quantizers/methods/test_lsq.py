"""Learned steps against a plain-Python statement of the published equations."""

from __future__ import annotations

import math

import pytest
import torch

from dbq.plans.precision import Precision
from dbq.quantizers.methods.lsq import LsqInputQuantizer, LsqQuantizer
from tests.gradient import gradient
from tests.quantizers.contract import assert_exact, assert_finite

SHAPE = (5, 3, 2, 2)


def made(w: torch.Tensor, bits: int, **options: bool) -> LsqQuantizer:
    quantizer = LsqQuantizer(Precision("fixed", bits), len(w), **options).to(w.dtype)
    quantizer.initialise(w)
    return quantizer


def by_hand(values: list[float], s: float, low: int, high: int) -> tuple[list[float], ...]:
    """q(w), dq/dw and dq/ds (before g) of each value."""
    q, d_w, d_s = [], [], []
    for value in values:
        u = value / s
        v = round(min(max(u, low), high))
        q.append(s * v)
        d_w.append(1.0 if low < u < high else 0.0)
        d_s.append(v - u if low < u < high else float(low if u <= low else high))
    return q, d_w, d_s


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_values_and_gradients(bits: int, symmetric: bool) -> None:
    w = torch.randn(SHAPE, dtype=torch.float64, requires_grad=True)
    high = 2 ** (bits - 1) - 1
    low = -high if symmetric or bits == 8 else -high - 1
    quantizer = made(w.detach(), bits, symmetric=symmetric)
    start = 2 * sum(abs(x) for x in w.flatten().tolist()) / w.numel() / math.sqrt(high)
    assert math.isclose(quantizer.step.item(), start, rel_tol=1e-13)  # a sum of 60 doubles
    step = 0.5 / high  # so that weights are clipped on both sides
    quantizer.step.data.fill_(step)
    G = torch.randn(SHAPE, dtype=torch.float64)
    found = quantizer(w)
    found.backward(G)
    q, d_w, d_s = (
        torch.tensor(column, dtype=torch.float64)
        for column in by_hand(w.flatten().tolist(), step, low, high)
    )
    assert {float(low), float(high)} <= set(d_s.tolist())
    # a quotient and a product of doubles: 2^-52 relative, of numbers up to 1
    torch.testing.assert_close(found.detach().flatten(), q, rtol=0, atol=1e-15)
    assert torch.equal(w.grad.flatten(), d_w * G.flatten())
    wanted = math.fsum((d_s * G.flatten()).tolist()) / math.sqrt(w.numel() * high)
    # 60 numbers up to 128 * 3 are added: each may lose 2^-53 of the largest partial sum
    assert math.isclose(quantizer.step.grad.item(), wanted, rel_tol=1e-9, abs_tol=1e-11)


def test_per_channel_is_every_kernel_by_itself() -> None:
    w, G = torch.randn(SHAPE, dtype=torch.float64), torch.randn(SHAPE, dtype=torch.float64)
    together = made(w, 3, per_channel=True)
    together(w).backward(G)
    for k in range(len(w)):
        alone = made(w[k : k + 1], 3)
        alone(w[k : k + 1]).backward(G[k : k + 1])
        assert torch.equal(alone(w[k : k + 1]), together(w)[k : k + 1])
        torch.testing.assert_close(
            gradient(alone.step)[0], gradient(together.step)[k], rtol=1e-12, atol=1e-14
        )


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_lowest_code(bits: int, symmetric: bool) -> None:
    w = torch.randn(SHAPE)
    quantizer = made(w, bits, symmetric=symmetric)
    with torch.no_grad():
        quantizer.step.mul_(-0.01)  # of any sign, and so small that weights are clipped
    assert_exact(quantizer, w)
    codes, high = quantizer.freeze(w).codes, 2 ** (bits - 1) - 1
    assert codes.max() == high
    assert codes.min() == (-high if symmetric or bits == 8 else -high - 1)


def test_any_step_is_usable() -> None:
    """Zero, negative and tiny steps quantize, and have a gradient to leave by."""
    w = torch.randn(4, 9)
    for step in (0.0, -0.2, 1e-20):
        quantizer = made(w, 4)
        quantizer.step.data.fill_(step)
        assert_finite(quantizer, w)
        assert_exact(quantizer, w)
        assert quantizer.step.grad.item() != 0
    mirrored = made(w, 4)
    mirrored.step.data.fill_(0.2)
    assert_finite(mirrored, w)
    quantizer.step.data.fill_(-0.2)
    assert_finite(quantizer, w)
    assert quantizer.step.grad == -mirrored.step.grad


# ---------------------------------------------------------------- activations


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("signed", [True, False])
def test_inputs_learn_a_step_from_the_first_training_batch(bits: int, signed: bool) -> None:
    x = torch.randn(6, 3, 4, 4, dtype=torch.float64)
    x = x if signed else x.relu()
    x.requires_grad_()
    quantizer = LsqInputQuantizer(Precision("fixed", bits), signed).double()
    low, high = quantizer.code_range
    start = 2 * sum(abs(v) for v in x.flatten().tolist()) / x.numel() / math.sqrt(high)
    untrained = quantizer.eval()(x)
    assert not quantizer.has_seen
    assert math.isclose(untrained.abs()[untrained != 0].min().item(), start, rel_tol=1e-12)
    quantizer.train()
    # the sum of a batch is taken in float32: 2^-24 relative, and a little for its additions
    torch.testing.assert_close(quantizer(x), untrained, rtol=1e-5, atol=0)
    assert math.isclose(quantizer.step.item(), start, rel_tol=1e-6)

    G = torch.randn_like(x)
    quantizer(x).backward(G)
    step = quantizer.step.item()
    q, d_x, d_s = by_hand(x.flatten().tolist(), step, low, high)
    torch.testing.assert_close(quantizer(x).flatten().tolist(), q, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(x.grad.flatten(), torch.tensor(d_x).double() * G.flatten())
    wanted = sum(a * b for a, b in zip(d_s, G.flatten().tolist(), strict=True))
    g = 1 / math.sqrt(3 * 4 * 4 * high)  # features of one sample
    assert math.isclose(quantizer.step.grad.item(), wanted * g, rel_tol=1e-10)

    other = 3 * x.detach()
    quantizer(other)
    assert quantizer.scale().item() == step, "later batches do not move it"
    quantizer.reset()
    quantizer(other)
    assert math.isclose(quantizer.step.item(), 3 * start, rel_tol=1e-6)


def test_inputs_before_and_after_loading() -> None:
    x = torch.randn(4, 8).relu()
    quantizer = LsqInputQuantizer(Precision("fixed", 3), signed=False)
    quantizer.train()(torch.zeros(0, 8))
    assert not quantizer.has_seen, "nothing was in it"
    quantizer(torch.zeros(2, 8))
    assert quantizer.has_seen
    assert 0 < quantizer.grid().scale < 1e-9
    quantizer(x)
    assert quantizer.scale() > 1e-3, "after zeros, the next batch sets the step"
    fresh = LsqInputQuantizer(Precision("fixed", 3), signed=False)
    fresh.load_state_dict(quantizer.state_dict())
    assert torch.equal(fresh.train()(2 * x), quantizer(2 * x))
    assert torch.equal(fresh.eval()(2 * x), quantizer.eval()(2 * x))
    quantizer.step.data.neg_()
    assert torch.equal(fresh(x), quantizer(x)), "only the size of a step counts"
    assert torch.equal(quantizer(x.bfloat16()), quantizer(x.bfloat16().float()).bfloat16())
    assert quantizer(torch.zeros(0, 8)).shape == (0, 8)
