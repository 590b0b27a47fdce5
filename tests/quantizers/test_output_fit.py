"""Codes by output error: against exhaustive search, and never worse than rounding to nearest."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from dbq.plans.precision import Precision
from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.dbq.branch import BranchQuantizer
from dbq.quantizers.fitting.output_error import (
    descend,
    grouped,
    in_turn,
    output_error,
    round_in_order,
)
from dbq.quantizers.fixed import FixedPointQuantizer
from dbq.quantizers.ratios import whole_ratios


def moments_of(groups: int, d: int, seed: int = 0) -> Tensor:
    """Second moments of correlated inputs."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(groups, d, d, generator=generator).double()
    return mix @ mix.mT / d + 0.05 * torch.eye(d).double()


def to_integers(column: Tensor) -> Tensor:
    return column.round().clamp(-1, 1)


def test_near_the_best_of_all_codes() -> None:
    """Three to the fifth combinations can all be tried."""
    moments = moments_of(1, 5)
    target = 1.5 * torch.randn(1, 40, 5, generator=torch.Generator().manual_seed(1)).double()
    every = torch.tensor(list(product((-1.0, 0.0, 1.0), repeat=5))).double()
    difference = every.unsqueeze(1) - target[0]  # 243 x 40 x 5
    best = ((difference @ moments[0]) * difference).sum(-1).min(0).values
    plain = output_error(to_integers(target), target, moments)[0]
    in_order = round_in_order(target, moments, to_integers)
    ordered = output_error(in_order, target, moments)[0]
    found = output_error(descend(in_order, target, moments, to_integers, 5), target, moments)[0]
    assert (found >= best - 1e-9).all()
    assert (found <= ordered + 1e-9).all()
    assert (found - best).mean() < 0.2 * (plain - best).mean()


def test_singular_moments_round_to_nearest() -> None:
    target = torch.tensor([[[0.4, 0.6, -2.0]]]).double()
    assert torch.equal(
        round_in_order(target, torch.zeros(1, 3, 3).double(), to_integers), to_integers(target)
    )


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("precision", ["1T", "2T", "3T", "8b", "4b", "2b"])
def test_fit_lowers_the_error_and_its_weight_has_the_codes(precision: str, groups: int) -> None:
    wanted = Precision.parse(precision)
    make = BranchQuantizer if wanted.kind == "ternary" else FixedPointQuantizer
    generator = torch.Generator().manual_seed(2)
    target = torch.randn(6, 3, 3, 2, generator=generator)
    moments = moments_of(groups, 18)

    def error(quantizer: WeightQuantizer, weight: Tensor) -> Tensor:
        rows = grouped(quantizer.eval()(weight).flatten(1).double(), moments)
        return output_error(rows, grouped(target.flatten(1).double(), moments), moments)

    plain, fitted = make(wanted, 6), make(wanted, 6)
    plain.initialise(target)
    weight = fitted.fit(target, moments)
    assert weight.shape == target.shape
    assert error(fitted, weight).sum() < 0.9 * error(plain, target).sum()
    assert torch.equal(fitted(weight), fitted.freeze(weight).weight)


@pytest.mark.parametrize("precision", ["1T", "2T", "3T", "4b", "2b"])
def test_kernels_make_up_for_each_other(precision: str) -> None:
    """The error of all kernels together is less than if each is fitted for itself."""
    wanted = Precision.parse(precision)
    make = BranchQuantizer if wanted.kind == "ternary" else FixedPointQuantizer
    target = torch.randn(32, 18, generator=torch.Generator().manual_seed(6))
    moments, together = moments_of(1, 18), moments_of(1, 32, seed=7)[0]
    errors = []
    for between in (together, None):
        quantizer = make(wanted, 32)
        weight = quantizer.fit(target, moments, between)
        difference = (quantizer.eval()(weight).detach() - target).double()
        errors.append(float(((together @ difference @ moments[0]) * difference).sum()))
        assert torch.equal(quantizer(weight), quantizer.freeze(weight).weight)
    assert errors[0] < 0.9 * errors[1]


def test_what_is_left_is_asked_for_the_best_answer() -> None:
    """Given the errors of the first kernels, no other target of the last ones has a smaller error."""
    moments, together = moments_of(1, 5)[0], moments_of(1, 6, seed=8)[0]
    target = torch.randn(6, 5, generator=torch.Generator().manual_seed(9)).double()
    asked, places = [], []

    def rounded(chosen: Tensor, rows: Tensor) -> Tensor:
        asked.append(rows)
        places.append(chosen)
        return rows.round()

    in_turn(target, together, rounded, parts=2)
    first, last = places
    errors = torch.zeros(6, 5).double()
    errors[first] = (asked[0].round() - target[first]).double()
    errors[last] = asked[1] - target[last]
    slope = together @ errors @ moments
    assert slope[last].abs().max() < 1e-9
    assert slope[first].abs().max() > 0.01


def test_kernels_that_nothing_adds_up_are_each_for_itself() -> None:
    target = torch.randn(8, 12, generator=torch.Generator().manual_seed(10))
    weights = [
        BranchQuantizer(Precision("ternary", 2), 8).fit(target, moments_of(1, 12), together)
        for together in (3 * torch.eye(8), None)
    ]
    assert torch.equal(*weights)


def test_weights_keep_off_the_borders_of_their_cells() -> None:
    """Codes must not hang on the last bit: another machine, or one step of training, keeps them."""
    target = torch.randn(8, 24, generator=torch.Generator().manual_seed(3))
    quantizer = BranchQuantizer(Precision("ternary", 2), 8)
    weight = quantizer.fit(target, moments_of(1, 24))
    distance = (weight.unsqueeze(2) - quantizer.borders().unsqueeze(1)).abs().amin(2)
    gaps = quantizer.borders().diff(dim=1).amin(1, keepdim=True)
    assert (distance > 0.05 * gaps).all()


def test_two_scales_have_the_ratio_that_lowering_gives_them() -> None:
    """What is deployed is then what was fitted."""
    target = torch.randn(16, 24, generator=torch.Generator().manual_seed(5))
    quantizer = BranchQuantizer(Precision("ternary", 2), 16)
    frozen = quantizer.eval().freeze(quantizer.fit(target, moments_of(1, 24)))
    lowered = whole_ratios(frozen).scales
    torch.testing.assert_close(lowered, frozen.scales.double(), rtol=1e-5, atol=0)
    assert len(frozen.ratios.unique()) > 1


def test_a_kernel_of_zeros_stays_zero() -> None:
    target = torch.randn(3, 8, generator=torch.Generator().manual_seed(4))
    target[1] = 0
    for quantizer in (
        BranchQuantizer(Precision("ternary", 2), 3),
        FixedPointQuantizer(Precision("fixed", 8), 3),
    ):
        quantizer.eval()
        weight = quantizer.fit(target, moments_of(1, 8))
        assert (quantizer(weight)[1] == 0).all()
        assert torch.isfinite(weight).all()
