"""Learned bits against the published equations of case U3."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import dbq
from dbq.errors import PlanError
from dbq.model.layers import quantize_layer
from dbq.plans.precision import Precision
from dbq.quantizers.methods.mixed import MixedQuantizer
from tests.quantizers.contract import assert_exact, assert_finite


def made(w: Tensor, bits: int, power_of_two: bool = True, initial: int = 4) -> MixedQuantizer:
    quantizer = MixedQuantizer(Precision("fixed", bits), len(w), power_of_two, initial)
    quantizer.to(w.dtype).initialise(w)
    return quantizer


def with_grid(w: Tensor, d: float, q_max: float, **options: bool) -> MixedQuantizer:
    quantizer = made(w, 8, **options)
    quantizer.d.data.fill_(d)
    quantizer.q_max.data.fill_(q_max)
    return quantizer


def bits_by_hand(d: float, q_max: float) -> int:
    return math.ceil(math.log2(q_max / d + 1) + 1)


@pytest.mark.parametrize(("d", "used"), [(0.25, 0.25), (0.3, 0.25), (0.2, 0.25), (-0.36, 0.5)])
def test_values_and_gradients_with_a_power_of_two(d: float, used: float) -> None:
    """Going forward with the nearest power of two, going back to d itself."""
    w = torch.randn(4, 12, dtype=torch.float64, requires_grad=True)
    G = torch.randn(4, 12, dtype=torch.float64)
    q_max = 1.0  # a multiple of all steps
    quantizer = with_grid(w.detach(), d, q_max)
    found = quantizer(w)
    found.backward(G)
    d_d = d_q = 0.0
    for x, y, g, d_w in zip(*(t.flatten().tolist() for t in (w, found, G, w.grad)), strict=True):
        inside = abs(x) <= q_max
        wanted = used * round(x / used) if inside else math.copysign(q_max, x)
        assert y == wanted  # steps are powers of two: nothing is rounded
        assert d_w == (g if inside else 0.0)
        d_d += g * (wanted - x) / used if inside else 0.0
        d_q += 0.0 if inside else g * math.copysign(1, x)
    # 48 terms of O(1) added in another order
    assert math.isclose(quantizer.d.grad.item(), math.copysign(1, d) * d_d, rel_tol=1e-11)
    assert math.isclose(quantizer.q_max.grad.item(), d_q, rel_tol=1e-11)
    assert d_q != 0


def test_without_powers_of_two_the_step_is_what_it_is() -> None:
    w = torch.randn(4, 12, dtype=torch.float64)
    hard = assert_exact(with_grid(w, 0.3, 0.9, power_of_two=False), w)
    for x, y in zip(w.flatten().tolist(), hard.flatten().tolist(), strict=True):
        assert math.isclose(y, 0.3 * max(-3, min(3, round(x / 0.3))), abs_tol=1e-15)


def test_bits_follow_from_step_and_range() -> None:
    w = torch.randn(2, 200)
    for code in range(1, 128):
        quantizer = with_grid(w, 2.0**-4, code * 2.0**-4)
        bits = bits_by_hand(2.0**-4, code * 2.0**-4)
        assert quantizer.precision == Precision("fixed", bits)
        assert quantizer.learned_bits().item() == bits
        assert quantizer.freeze(100 * w).codes.abs().max() == code <= 2 ** (bits - 1) - 1


@pytest.mark.parametrize("limit", [2, 4, 8])
def test_the_plan_is_the_upper_limit_and_two_bits_the_lower(limit: int) -> None:
    w = torch.randn(2, 100)
    quantizer, largest = made(w, limit), 2 ** (limit - 1) - 1
    quantizer.d.data.fill_(2.0**-6)
    quantizer.q_max.data.fill_(1000.0)
    assert quantizer.precision.size == limit
    assert assert_exact(quantizer, 10 * w).abs().max() == largest * 2.0**-6
    quantizer(10 * w).sum().backward()
    clipped = 10 * w.abs() > largest * 2.0**-6
    # the range is `largest` steps, so what is clipped moves the step that many times over
    least = largest * w.sign()[clipped].sum() - 0.5 * (~clipped).sum()
    most = largest * w.sign()[clipped].sum() + 0.5 * (~clipped).sum()
    assert least - 1e-3 <= quantizer.d.grad.item() <= most + 1e-3
    assert quantizer.q_max.grad.item() == 0
    quantizer.q_max.data.fill_(1e-3)
    assert quantizer.precision.size == 2
    assert set(quantizer.freeze(w / 64).codes.unique().tolist()) == {-1, 0, 1}


def test_bits_have_the_gradient_of_the_smooth_formula() -> None:
    w = torch.randn(2, 10, dtype=torch.float64)
    d, q_max = 0.21, 1.9
    quantizer = with_grid(w, d, q_max, power_of_two=False)
    quantizer.learned_bits().backward()

    def smooth(d: float, q_max: float) -> float:
        return math.log2(q_max / d + 1) + 1

    h = 1e-6  # central differences: h^2 times third derivatives of O(100)
    by_d = (smooth(d + h, q_max) - smooth(d - h, q_max)) / (2 * h)
    by_q = (smooth(d, q_max + h) - smooth(d, q_max - h)) / (2 * h)
    assert math.isclose(quantizer.d.grad.item(), by_d, rel_tol=1e-7)
    assert math.isclose(quantizer.q_max.grad.item(), by_q, rel_tol=1e-7)
    low = with_grid(w, 1.0, 0.5)
    low.learned_bits().backward()
    assert low.d.grad == low.q_max.grad == 0, "nothing to gain below two bits"


@pytest.mark.parametrize(("limit", "initial", "bits"), [(8, 4, 4), (3, 4, 3), (8, 6, 6), (2, 2, 2)])
def test_initialisation(limit: int, initial: int, bits: int) -> None:
    w = torch.randn(3, 20)
    largest = 2 ** (bits - 1) - 1
    quantizer = made(w, limit, initial=initial)
    exact = w.abs().max().item() / largest
    assert quantizer.d.item() == 2.0 ** math.floor(math.log2(exact))
    assert quantizer.q_max.item() == largest * quantizer.d.item()
    assert quantizer.precision.size == bits
    plain = made(w, limit, power_of_two=False, initial=initial)
    assert math.isclose(plain.d.item(), exact, rel_tol=1e-6)
    assert plain.precision.size == bits


def test_any_step_and_range_are_usable() -> None:
    w = torch.randn(4, 9)
    for d, q_max in ((0.0, 0.0), (-0.1, 0.3), (1e-30, 1.0), (1.0, -1e-30), (1e6, 1e-6)):
        quantizer = with_grid(w, d, q_max)
        assert_exact(quantizer, w)
        assert_finite(quantizer, w)
        assert 2 <= quantizer.precision.size <= 8
    with pytest.raises(PlanError, match="initial"):
        MixedQuantizer(Precision("fixed", 4), 4, initial=1)


def network() -> nn.Sequential:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 5), nn.Linear(5, 2))
    for layer, bits in ((net[0], 4), (net[2], 6)):
        quantize_layer(layer, made(layer.weight.detach(), 8, initial=bits), None)
    return net


def test_costs_read_the_inferred_precision() -> None:
    net = network()
    found = dbq.cost(net, torch.zeros(1, 3, 4, 4))
    assert [str(row.weight) for row in found.rows if hasattr(row, "weight")][:2] == ["4b", "6b"]
