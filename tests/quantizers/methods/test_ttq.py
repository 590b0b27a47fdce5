"""TTQ: levels, the three gradients and the two planes, in plain Python."""

from __future__ import annotations

import math

import pytest
import torch

from dbq.errors import PlanError
from dbq.plans.precision import Precision
from dbq.quantizers.methods.ttq import TtqQuantizer
from tests.gradient import gradient
from tests.quantizers.contract import assert_exact, fitted, gradients

TERNARY = Precision("ternary", 1)


def make(kernels: int) -> TtqQuantizer:
    return TtqQuantizer(TERNARY, kernels)


def sides(w: torch.Tensor, t: float) -> tuple[list[bool], list[bool]]:
    numbers = w.flatten().tolist()
    delta = t * max(abs(x) for x in numbers)
    return [x > delta for x in numbers], [x < -delta for x in numbers]


@pytest.mark.parametrize("t", [0.0, 0.05, 0.4])
def test_start_and_levels(t: float) -> None:
    w = torch.randn(5, 3, 2, 2, dtype=torch.float64)
    quantizer = TtqQuantizer(TERNARY, 5, t).double()
    quantizer.initialise(w)
    numbers, (positive, negative) = w.flatten().tolist(), sides(w, t)
    W_p = math.fsum(x for x, p in zip(numbers, positive, strict=True) if p) / sum(positive)
    W_n = -math.fsum(x for x, n in zip(numbers, negative, strict=True) if n) / sum(negative)
    for mode in (True, False):
        found = quantizer.train(mode)(w).flatten().tolist()
        for ours, p, n in zip(found, positive, negative, strict=True):
            expected = W_p if p else -W_n if n else 0.0
            assert math.isclose(ours, expected, rel_tol=1e-14)  # means of at most 60 doubles


@pytest.mark.parametrize("signs", [(1, 1), (-1, 1), (1, -1)])
def test_gradients(signs: tuple[int, int]) -> None:
    w, G = torch.randn(2, 4, 30, dtype=torch.float64).unbind(0)
    quantizer = make(4).double()
    W_p, W_n = 1.5 * signs[0], 0.6 * signs[1]
    with torch.no_grad():
        quantizer.W_p.fill_(W_p)
        quantizer.W_n.fill_(W_n)
        quantizer.units.copy_(torch.tensor([[0.3, 0.2]]))
    u_p, u_n = quantizer.units[0].tolist()
    assert set(quantizer(w).flatten().tolist()) == {W_p * u_p, 0.0, -W_n * u_n}
    positive, negative = sides(w, 0.05)
    g = G.flatten().tolist()
    d_w, (d_p, d_n) = gradients(quantizer, w, G)
    expected = [
        x * (W_p if p else W_n if n else 1.0) for x, p, n in zip(g, positive, negative, strict=True)
    ]
    # up to 120 doubles added in another order; products of one rounding or two
    assert torch.allclose(
        d_w.flatten(), torch.tensor(expected, dtype=torch.float64), rtol=1e-14, atol=0
    )
    assert math.isclose(
        float(d_p), u_p * math.fsum(x for x, p in zip(g, positive, strict=True) if p), rel_tol=1e-12
    )
    assert math.isclose(
        float(d_n),
        -u_n * math.fsum(x for x, n in zip(g, negative, strict=True) if n),
        rel_tol=1e-12,
    )


def test_the_scales_have_true_gradients() -> None:
    """The output is linear in both, so a difference of any width is the derivative."""
    w, G = torch.randn(2, 4, 30, dtype=torch.float64).unbind(0)
    quantizer = fitted(lambda kernels: make(kernels).double(), w)
    _, found = gradients(quantizer, w, G)
    for scale, d_scale in zip((quantizer.W_p, quantizer.W_n), found, strict=True):
        before = (quantizer(w) * G).sum()
        with torch.no_grad():
            scale.add_(0.5)
        rise = ((quantizer(w) * G).sum() - before) / 0.5
        assert math.isclose(
            float(rise.detach()), float(d_scale), rel_tol=1e-11
        )  # 120 terms of O(1)


def test_a_step_moves_the_levels_as_far_whatever_the_size_of_the_weights() -> None:
    """Behind the layer is a batch norm, so that only the relation of the levels counts."""
    w, x = torch.randn(6, 10, dtype=torch.float64), torch.randn(50, 10, dtype=torch.float64)
    G, found = torch.randn(50, 6, dtype=torch.float64), []
    for size in (1.0, 0.01):
        quantizer = fitted(lambda kernels: make(kernels).double(), size * w)
        y = x @ quantizer(size * w).T
        torch.autograd.backward(((y - y.mean(0)) / y.std(0) * G).sum())
        found.append([float(gradient(quantizer.W_p)), float(gradient(quantizer.W_n))])
    assert min(abs(d) for d in found[0]) > 0.1, "they do move"
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=0)  # sums of 3,000 doubles


def test_two_planes_and_negative_scales() -> None:
    w = torch.randn(4, 3, 2, 2)
    quantizer = fitted(make, w)
    frozen = quantizer.freeze(w)
    codes, scales = frozen.codes, frozen.scales
    assert codes[0].unique().tolist() == [0, 1]
    assert codes[1].unique().tolist() == [-1, 0]
    assert not (codes[0] * codes[1]).any(), "no weight is in both"
    assert torch.equal(frozen.used, (quantizer(w) != 0).unsqueeze(0)), "one branch, of two planes"
    assert torch.equal(scales.unique(dim=0), quantizer.units), "the factors are 1 at the start"
    with torch.no_grad():
        quantizer.W_p.neg_()
    assert torch.equal(quantizer.freeze(w).codes[0], -codes[0])
    assert torch.equal(quantizer.freeze(w).scales, scales)
    assert_exact(quantizer, w)


def test_what_it_refuses() -> None:
    with pytest.raises(PlanError, match="2T"):
        TtqQuantizer(Precision("ternary", 2), 3)
    with pytest.raises(PlanError, match="threshold"):
        TtqQuantizer(TERNARY, 3, threshold=2.0)
