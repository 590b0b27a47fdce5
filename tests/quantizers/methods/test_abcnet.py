"""ABC-Net against numpy's least squares on bases made in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dbq.plans.precision import Precision
from dbq.quantizers.methods.abcnet import AbcNetQuantizer
from tests.quantizers.contract import gradients

SHIFTS = {1: [0.0], 2: [-1.0, 1.0], 3: [-1.0, 0.0, 1.0]}


def by_hand(row: np.ndarray, size: int) -> tuple[np.ndarray, float]:
    """The quantized row and the sum of its alphas."""
    bases = [
        [1.0 if x - row.mean() + u * row.std() >= 0 else -1.0 for x in row] for u in SHIFTS[size]
    ]
    alphas = np.linalg.lstsq(np.array(bases).T, row, rcond=None)[0]
    return np.array(bases).T @ alphas, float(alphas.sum())


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("per_channel", [True, False])
def test_values_and_gradient(size: int, per_channel: bool) -> None:
    w, G = torch.randn(2, 5, 3, 4, 4, dtype=torch.float64).unbind(0)
    w += 0.2
    quantizer = AbcNetQuantizer(Precision("binary", size), 5, per_channel)
    found, (d_w, _) = quantizer(w), gradients(quantizer, w, G)
    rows = w.numpy().reshape(5 if per_channel else 1, -1)
    expected, sums = zip(*(by_hand(row, size) for row in rows), strict=True)
    # The condition of the equations is below 100, so some 240 roundings of 2^-53 stay below 1e-11.
    np.testing.assert_allclose(found.numpy().reshape(rows.shape), np.stack(expected), rtol=1e-11)
    slopes = np.array(sums)[:, None]
    np.testing.assert_allclose(
        d_w.numpy().reshape(rows.shape), G.numpy().reshape(rows.shape) * slopes, rtol=1e-11
    )


def test_more_bases_never_fit_worse() -> None:
    """Three contain the one; three contain the two."""
    w = torch.randn(50, 40, dtype=torch.float64)
    errors = [
        (AbcNetQuantizer(Precision("binary", size), 50)(w) - w).square().sum(1)
        for size in (1, 2, 3)
    ]
    assert (errors[2] <= errors[0] * (1 + 1e-12)).all()
    assert (errors[2] <= errors[1] * (1 + 1e-12)).all()


def test_two_signs_of_one_size_are_exact() -> None:
    w = torch.tensor([[0.5, -0.5, 0.5, -0.5]])
    for size in (1, 2, 3):
        assert torch.equal(AbcNetQuantizer(Precision("binary", size), 1)(w), w)


def test_the_slope_may_be_negative() -> None:
    """Here B = (-1, 1, 1, 1) and alpha = (5 - 2 - 2 - 2) / 4: codes turn round, the slope stays."""
    w, G = torch.tensor([[-5.0, -2.0, -2.0, -2.0]]), torch.randn(1, 4)
    quantizer = AbcNetQuantizer(Precision("binary", 1), 1)
    frozen = quantizer.freeze(w)
    assert frozen.codes.tolist() == [[[1, -1, -1, -1]]]
    assert frozen.scales.tolist() == [[0.25]]
    assert torch.equal(gradients(quantizer, w, G)[0], -0.25 * G)
