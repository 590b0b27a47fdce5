"""BNN: signs, the mask of the gradient, and the clipping of the weight."""

from __future__ import annotations

import math

import pytest
import torch

from dbq.errors import PlanError
from dbq.plans.precision import Precision
from dbq.quantizers.methods.bnn import BnnQuantizer
from tests.gradient import gradient
from tests.quantizers.contract import gradients


def make(kernels: int) -> BnnQuantizer:
    return BnnQuantizer(Precision("binary", 1), kernels)


def test_values() -> None:
    w = torch.randn(5, 3, 2, 2)
    w[0, 0, 0] = torch.tensor([0.0, -0.0])
    expected = [-1.0 if x < 0 else 1.0 for x in w.flatten().tolist()]
    for mode in (True, False):
        assert make(5).train(mode)(w).flatten().tolist() == expected


def test_the_gradient_is_that_of_a_hard_tanh() -> None:
    """Of a tensor that is computed, hence not clipped: the mask has to do it."""
    w = (2 * torch.randn(4, 9)).requires_grad_()
    with torch.no_grad():
        w[0, :4] = torch.tensor([1.0, -1.0, math.nextafter(1, 2), 1.0001])
    G = torch.randn(4, 9)
    (make(4)(w * 1.0) * G).sum().backward()
    assert torch.equal(gradient(w), torch.where(w.abs() <= 1, G, 0.0))
    assert (w.abs() > 1).any()


def test_the_weight_is_clipped_in_training_only() -> None:
    w = torch.nn.Parameter(torch.tensor([[-3.0, 0.5, 1.5]]))
    quantizer = make(1)
    quantizer.eval()(w)
    assert w.tolist() == [[-3.0, 0.5, 1.5]]
    quantizer.train()(w.detach())
    assert w.tolist() == [[-3.0, 0.5, 1.5]], "frozen weights stay"
    quantizer(w)
    assert w.tolist() == [[-1.0, 0.5, 1.0]]


def test_clipping_does_not_disturb_autograd() -> None:
    """A shared layer uses its weight twice in a step, the second time after it was clipped."""
    w = torch.nn.Parameter(torch.tensor([[-3.0, 0.5, 1.5]]))
    quantizer, x = make(1).train(), torch.tensor([[1.0, 2.0, 3.0]])
    y = torch.nn.functional.linear(x, quantizer(w))
    (y * torch.nn.functional.linear(x, quantizer(w))).sum().backward()
    # y = x . q, so d(y^2)/dw = 2 y x where the clipped weight lies in [-1, 1]: everywhere.
    assert torch.equal(gradient(w), 2 * y.detach() * x)


def test_a_weight_that_momentum_has_carried_out_comes_back() -> None:
    w = torch.nn.Parameter(torch.full((1, 1), 0.9))
    quantizer, optimizer = make(1).train(), torch.optim.SGD([w], lr=0.5)
    for slope in (-1.0, 1.0, 1.0, 1.0):  # up to 1.4, then down
        optimizer.zero_grad()
        (slope * quantizer(w)).sum().backward()
        optimizer.step()
    assert float(w.detach()) == -0.5, "1 - 3 * 0.5, from the border"


def test_sizes() -> None:
    with pytest.raises(PlanError, match="2B"):
        BnnQuantizer(Precision("binary", 2), 3)


def test_gradients_of_clipped_leaves_pass() -> None:
    w, G = 2 * torch.randn(4, 9), torch.randn(4, 9)
    d_w, _ = gradients(make(4), w, G)
    assert torch.equal(d_w, G)
