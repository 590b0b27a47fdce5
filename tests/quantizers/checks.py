"""What every weight quantizer promises, whatever its codes."""

from __future__ import annotations

import torch
from torch import Tensor

from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.dbq.branch import recompose


def assert_exact(quantizer: WeightQuantizer, w: Tensor) -> Tensor:
    """eval() is codes times scales, bit for bit; returns it."""
    hard = quantizer.eval()(w).detach()
    codes, scales = quantizer.codes(w), quantizer.scales(w).detach()
    assert codes.dtype == torch.int8
    assert codes.shape[1:] == w.shape
    assert scales.shape == (len(w), len(codes))
    assert (scales >= 0).all()
    assert hard.dtype == w.dtype
    assert torch.equal(recompose(codes, scales), hard), "recomposed bits differ from eval()"
    return hard


def next_step(quantizer: WeightQuantizer, w: Tensor) -> list[Tensor]:
    """The quantized weight and all gradients of one training step."""
    torch.manual_seed(7)
    x = w.clone().requires_grad_()
    quantizer.zero_grad()
    y = quantizer.train()(x)
    y.square().sum().backward()
    return [y.detach(), x.grad, *(parameter.grad for parameter in quantizer.parameters())]


def assert_resumes(quantizer: WeightQuantizer, fresh: WeightQuantizer, w: Tensor) -> None:
    """A new quantizer with the saved state gives the same hard weight and the same next step."""
    fresh.load_state_dict(quantizer.state_dict())
    assert torch.equal(fresh.eval()(w), quantizer.eval()(w))
    steps = zip(next_step(quantizer, w), next_step(fresh, w), strict=True)
    assert all(torch.equal(before, after) for before, after in steps)


def assert_finite(quantizer: WeightQuantizer, w: Tensor) -> None:
    assert all(torch.isfinite(x).all() for x in next_step(quantizer, w))
    assert torch.isfinite(quantizer.eval()(w)).all()


def degenerate() -> list[Tensor]:
    """Layers of zeros, of one value, with kernels of zeros, of one weight, of tiny weights."""
    some = torch.randn(4, 3, 2, 2)
    some[1] = 0
    some[2] = -0.3
    tiny = torch.full((2, 5), 1e-38)
    return [torch.zeros(2, 6), torch.full((3, 2, 1, 1), 0.3), some, torch.randn(1, 1), tiny]
