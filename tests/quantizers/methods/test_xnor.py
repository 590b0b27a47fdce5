"""XNOR: mean moduli and the published gradient, in plain Python."""

from __future__ import annotations

import math

import pytest
import torch

from dbq.errors import PlanError
from dbq.plans.precision import Precision
from dbq.quantizers.methods.xnor import XnorQuantizer
from tests.quantizers.contract import gradients


def make(kernels: int) -> XnorQuantizer:
    return XnorQuantizer(Precision("binary", 1), kernels)


def test_values_and_gradient() -> None:
    w, G = torch.randn(2, 5, 3, 2, 2, dtype=torch.float64).unbind(0)
    w[0, 0, 0] = torch.tensor([0.0, -1.0])
    found = make(5).eval()(w).flatten(1)
    d_w, _ = gradients(make(5), w, G)
    for k, row in enumerate(w.flatten(1).tolist()):
        n = len(row)
        alpha = math.fsum(abs(x) for x in row) / n
        for i, x in enumerate(row):
            g = float(G.flatten(1)[k, i])
            slope = 1 / n + (alpha if abs(x) <= 1 else 0.0)
            # a mean of 12 doubles, added in another order
            assert math.isclose(float(found[k, i]), -alpha if x < 0 else alpha, rel_tol=1e-14)
            assert math.isclose(float(d_w.flatten(1)[k, i]), g * slope, rel_tol=1e-14)


def test_alpha_is_the_least_squares_scale() -> None:
    w = torch.randn(20, 30, dtype=torch.float64)
    quantizer = make(20).eval()
    best = (quantizer(w) - w).square().sum(1)
    frozen = quantizer.freeze(w)
    codes, scales = frozen.codes[0], frozen.scales
    for factor in (0.99, 1.01):
        assert ((codes * scales * factor - w).square().sum(1) > best).all()


def test_sizes() -> None:
    with pytest.raises(PlanError, match="2B"):
        XnorQuantizer(Precision("binary", 2), 3)
