"""Fixed-point weights against a plain-Python statement of the rule."""

from __future__ import annotations

import math

import pytest
import torch

from dbq.plans.precision import Precision
from dbq.quantizers.fixed import FixedPointQuantizer
from tests.gradient import gradient


def by_hand(row: list[float], peak: float, bits: int) -> list[float]:
    largest = 2 ** (bits - 1) - 1
    step = peak / largest
    return [step * max(-largest, min(largest, round(x / step))) for x in row]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("per_channel", [True, False])
def test_values(bits: int, per_channel: bool) -> None:
    w = torch.randn(5, 3, 2, 2, dtype=torch.float64)
    quantizer = FixedPointQuantizer(Precision("fixed", bits), 5, per_channel=per_channel)
    quantized = quantizer(w).flatten(1)
    for kernel, row in zip(quantized, w.flatten(1), strict=True):
        peak = float((row if per_channel else w).abs().max())
        expected = by_hand(row.tolist(), peak, bits)
        for found, wanted in zip(kernel.tolist(), expected, strict=True):
            assert math.isclose(found, wanted, rel_tol=1e-14)
    codes = quantizer.freeze(w).codes
    assert int(codes.abs().max()) == 2 ** (bits - 1) - 1, "the largest weight is the largest code"


def test_gradient_is_straight_through() -> None:
    w = torch.randn(4, 9, requires_grad=True)
    weighting = torch.randn(4, 9)
    (FixedPointQuantizer(Precision("fixed", 4), 4)(w) * weighting).sum().backward()
    assert torch.equal(gradient(w), weighting)


def test_zeros_stay_zero() -> None:
    quantizer = FixedPointQuantizer(Precision("fixed", 8), 2)
    w = torch.zeros(2, 4)
    assert torch.equal(quantizer(w), w)
    w[0, 1] = 1e-44  # so small that its scale would be 0
    assert torch.equal(quantizer(w), torch.zeros(2, 4))
