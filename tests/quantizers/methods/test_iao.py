"""IAO's folded affine weights against its equations in plain Python, and inside a network."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import dbq
from dbq.errors import LoweringError
from dbq.plans.plan import LayerPlan, Plan
from dbq.plans.precision import Precision
from dbq.quantizers.methods.iao import IaoQuantizer
from tests.gradient import gradient
from tests.quantizers.contract import assert_exact


def by_hand(weight: Tensor, factor: list[float], bits: int, symmetric: bool) -> list[list[float]]:
    """Equations 1 and 14 one number at a time; the result is unfolded again."""
    folded = [[x * f for x in row] for row, f in zip(weight.tolist(), factor, strict=True)]
    values = [x for row in folded for x in row]
    low, high = min(0.0, *values), max(0.0, *values)
    if symmetric:
        high = max(-low, high)
        low = -high
    largest = 2 ** (bits - 1) - 1
    step = (high - low) / (2 * largest)
    zero = round(-largest - low / step)

    def quantized(x: float) -> float:
        q = max(-largest, min(largest, round(x / step) + zero))
        return step * (q - zero)

    return [
        [quantized(x) / f for x in row] for row, f in zip(folded, factor, strict=True)
    ]  # fmt: skip


def batch_norm(kernels: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(kernels).double()
    nn.init.uniform_(norm.weight, -2, 2)  # negative factors too
    assert norm.running_var is not None
    norm.running_var.uniform_(0.1, 3)
    return norm


@pytest.mark.parametrize("bits", [2, 3, 5, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("folds", [True, False])
def test_values(bits: int, symmetric: bool, folds: bool) -> None:
    w = torch.randn(4, 9, dtype=torch.float64) + 0.3
    quantizer = IaoQuantizer(Precision("fixed", bits), 4, symmetric=symmetric)
    factor = [1.0] * 4
    if folds:
        norm = batch_norm(4)
        quantizer.follow(norm)
        assert norm.running_var is not None
        pairs = zip(norm.weight.tolist(), norm.running_var.tolist(), strict=True)
        factor = [gamma / math.sqrt(var + norm.eps) for gamma, var in pairs]
    quantizer.initialise(w)
    expected = torch.tensor(by_hand(w, factor, bits, symmetric), dtype=torch.float64)
    # Codes are equal; the value is a few roundings of numbers up to 254 steps large.
    assert torch.allclose(quantizer(w), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("symmetric", [True, False])
def test_folded_weights_are_frozen_with_their_zero_points(symmetric: bool) -> None:
    w = torch.randn(4, 3, 3, 3) + 0.3
    quantizer, norm = IaoQuantizer(Precision("fixed", 8), 4, symmetric=symmetric), batch_norm(4)
    quantizer.follow(norm)
    assert_exact(quantizer, w)
    zeros = quantizer.freeze(w).zeros
    if symmetric:
        assert zeros is None
    else:
        # one zero point for the folded layer, turned round where its factor is negative
        assert len((zeros * norm.weight.sign()).unique()) == 1
        assert zeros.any()


def test_zero_stays_exactly_zero_and_dead_batch_norms_are_not_folded() -> None:
    w = torch.randn(3, 8) + 5
    w[:, 0] = 0
    quantizer = IaoQuantizer(Precision("fixed", 8), 3)
    norm = batch_norm(3)
    with torch.no_grad():
        norm.weight[1] = 0
    quantizer.follow(norm)
    quantized = quantizer(w)
    assert torch.equal(quantized[:, 0], torch.zeros(3))
    assert torch.isfinite(quantized).all()
    assert torch.equal(quantizer(torch.zeros(3, 8)), torch.zeros(3, 8))


def test_gradient_is_straight_through() -> None:
    w = torch.randn(4, 9, requires_grad=True)
    weighting = torch.randn(4, 9)
    (IaoQuantizer(Precision("fixed", 4), 4)(w) * weighting).sum().backward()
    assert torch.equal(gradient(w), weighting)


# -- inside a network -------------------------------------------------------------------------------


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8),
        nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10),
    )  # fmt: skip


def plan(**options: bool | float) -> Plan:
    return Plan("iao", default=LayerPlan.of(8, 8, "iao", **options), clip="range")


def test_the_layer_with_its_batch_norm_is_the_folded_integer_layer() -> None:
    net = network()
    images = torch.randn(8, 3, 8, 8)
    net(images * 3)  # statistics that are not 0 and 1
    dbq.prepare(net, plan(), images)
    conv, norm = net[0], net[1]
    assert isinstance(norm, nn.BatchNorm2d)
    net.eval()
    outputs = norm(conv(images))
    frozen = conv.weight_quantizer.freeze(conv.weight)
    codes = frozen.codes.double() - frozen.zeros[:, None, None, None]  # sign of gamma applied
    factor = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
    integer_weight = codes * factor.sign()[:, None, None, None]  # of the folded layer
    step = frozen.scales.double() * factor.abs()
    assert torch.allclose(step, step[0].expand(8), rtol=1e-6), "one step for the folded layer"
    bias = norm.bias.double() + factor * (conv.bias.double() - norm.running_mean.double())
    x = conv.input_quantizer(images).double()
    folded = nn.functional.conv2d(x, integer_weight * step[0], bias)
    # float32 rounding of sums of 27 products of numbers up to about 4
    assert torch.allclose(outputs.double(), folded, atol=1e-4)


def test_statistics_freeze_after_their_share_of_the_training() -> None:
    net = network()
    images = torch.randn(8, 3, 8, 8)
    dbq.prepare(net, plan(freeze=0.5), images)
    moved = []
    for progress in (0.4, 0.5):
        dbq.set_progress(net, progress)
        net.train()
        before = net.get_buffer("1.running_mean").clone()
        net(images)
        moved.append(not torch.equal(before, net.get_buffer("1.running_mean")))
    assert moved == [True, False]


def test_only_the_symmetric_form_deploys() -> None:
    images = torch.randn(8, 3, 8, 8)
    for symmetric in (True, False):
        net = network()
        dbq.prepare(net, plan(symmetric=symmetric), images)
        dbq.calibrate(net, [images])
        if symmetric:
            assert dbq.lower(net, images).operations
        else:
            with pytest.raises(LoweringError, match=r"^0.*symmetric"):
                dbq.lower(net, images)
