"""UNIQ against quantiles from the standard library."""

from __future__ import annotations

import math
from statistics import NormalDist, fmean, pstdev

import pytest
import torch
from torch import Tensor

from dbq.errors import PlanError
from dbq.plans.precision import Precision
from dbq.quantizers.methods.uniq import EDGE, UniqQuantizer
from tests.gradient import gradient
from tests.quantizers.contract import odd_weights


def made(w: Tensor, bits: int, blocks: int = 0) -> UniqQuantizer:
    quantizer = UniqQuantizer(Precision("fixed", bits), len(w), blocks)
    quantizer.initialise(w)
    return quantizer


def normal(w: Tensor) -> NormalDist:
    values = w.flatten().tolist()
    return NormalDist(fmean(values), pstdev(values))


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_eval_is_the_median_of_the_bin(bits: int) -> None:
    w = 0.3 + 2 * torch.randn(4, 3, 2, 2, dtype=torch.float64)
    quantizer, k, law = made(w, bits).eval(), 2**bits, normal(w)
    hard, frozen = quantizer(w), quantizer.freeze(w)
    found = zip(w.flatten(), hard.flatten(), frozen.codes.flatten(), strict=True)
    for x, y, code in ((float(a), float(b), int(c)) for a, b, c in found):
        place = min(k - 1, math.floor(k * law.cdf(x)))
        assert code == place
        # two implementations of the inverse: the standard library's has 1e-15 relative or so
        assert math.isclose(y, law.inv_cdf((place + 0.5) / k), rel_tol=1e-9, abs_tol=1e-9)
    assert frozen.levels.shape == (4, k)
    assert (frozen.levels.diff(dim=1) > 0).all()


def test_bins_are_not_nearest_levels() -> None:
    """The outermost bin of 2 bits begins at 0.674 deviations, nearer to the level 0.319."""
    w = torch.randn(1, 5000, dtype=torch.float64)
    quantizer, law = made(w, 2).eval(), normal(w)
    edge, (low, high) = law.inv_cdf(0.75), (law.inv_cdf(0.625), law.inv_cdf(0.875))
    between = (w > edge) & (w < (low + high) / 2)
    assert between.sum() > 50
    torch.testing.assert_close(quantizer(w)[between].unique().tolist(), [high])


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_training_adds_uniform_noise_to_the_uniformised_weight(bits: int) -> None:
    w = torch.randn(3, 40, dtype=torch.float64, requires_grad=True)
    quantizer, k, law = made(w.detach(), bits).train(), 2**bits, normal(w)
    torch.manual_seed(4)
    found = quantizer(w)
    found.sum().backward()
    torch.manual_seed(4)
    draws = torch.rand(3, 40, dtype=torch.float64)
    rows = (t.flatten().tolist() for t in (w.detach(), found.detach(), draws, w.grad))
    clamped = 0
    for x, y, draw, slope in zip(*rows, strict=True):
        u = law.cdf(x) + (draw - 0.5) / k
        wanted = law.inv_cdf(min(max(u, EDGE), 1 - EDGE))
        assert math.isclose(y, wanted, rel_tol=1e-8, abs_tol=1e-8)
        inside = EDGE < u < 1 - EDGE
        clamped += not inside
        assert math.isclose(slope, law.pdf(x) / law.pdf(wanted) if inside else 0.0, rel_tol=1e-6)
    assert clamped or bits > 4


def test_noise_has_the_size_of_the_quantization_error() -> None:
    w = torch.randn(1, 20_000, dtype=torch.float64)
    quantizer, law = made(w, 4), normal(w)
    before = torch.special.ndtr((w - law.mean) / law.stdev)
    moved = torch.special.ndtr((quantizer.train()(w) - law.mean) / law.stdev) - before
    inner = (before - 0.5).abs() < 0.45
    assert moved[inner].abs().max() <= 1 / 32 + 1e-12
    # the deviation of a uniform number of width 1/16; 18,000 samples give it to 1 %
    assert math.isclose(moved[inner].std().item(), 1 / 16 / math.sqrt(12), rel_tol=0.03)


def stages(progress: float, count: int, blocks: int = 0) -> list[str]:
    found: list[str] = []
    for index in range(count):
        quantizer = UniqQuantizer(Precision("fixed", 4), 2, blocks)
        quantizer.advance(progress, index, count)
        found.append(quantizer.stage)
    return found


def test_layers_take_turns() -> None:
    assert stages(0.0, 3) == ["noise", "float", "float"]
    assert stages(0.33, 3) == ["noise", "float", "float"]
    assert stages(0.34, 3) == ["frozen", "noise", "float"]
    assert stages(1.0, 3) == ["frozen", "frozen", "noise"]
    assert stages(0.5, 4, blocks=2) == ["frozen", "frozen", "noise", "noise"]
    assert stages(0.4, 5, blocks=2) == ["noise", "noise", "noise", "float", "float"]
    assert stages(0.4, 5, blocks=1) == ["noise"] * 5
    assert stages(0.0, 2, blocks=9) == ["noise", "float"]
    assert UniqQuantizer(Precision("fixed", 4), 2).stage == "noise", "if nobody says"


def test_what_a_stage_means() -> None:
    w = torch.randn(2, 9, requires_grad=True)
    quantizer = made(w.detach(), 3).train()
    quantizer.advance(0.0, 1, 2)
    assert quantizer(w) is w
    assert not torch.equal(quantizer.eval()(w), w)
    quantizer.advance(1.0, 0, 2)
    frozen = quantizer.train()(w)
    assert torch.equal(frozen, quantizer.eval()(w))
    assert not frozen.requires_grad


def test_constant_layers() -> None:
    for w in odd_weights():
        if len(w.unique()) == 1:
            torch.testing.assert_close(made(w, 3).eval()(w), w, rtol=1e-6, atol=1e-7)
    zeros = torch.zeros(2, 4, requires_grad=True)
    made(zeros, 3).train()(zeros).sum().backward()
    assert torch.equal(gradient(zeros), torch.ones(2, 4)), "a constant layer can still move"


def test_what_it_refuses() -> None:
    with pytest.raises(PlanError, match="blocks"):
        UniqQuantizer(Precision("fixed", 4), 4, blocks=-1)
