"""Clipping rules and the activation quantizer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dbq.plans.precision import Precision
from dbq.quantizers.inputs import BatchNormClip, ClippedInput, ConstantClip, RunningClip
from tests.gradient import gradient


def by_hand(x: float, clip: float, bits: int, signed: bool) -> float:
    high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    low = -high if signed else 0
    step = clip / high
    return step * round(max(low * step, min(clip, x)) / step)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("signed", [True, False])
def test_values_and_gradient(bits: int, signed: bool) -> None:
    clip = 2.5
    quantizer = ClippedInput(Precision("fixed", bits), signed, ConstantClip(clip))
    x = torch.linspace(-4, 4, 2001) + 1e-4  # no value on a rounding tie
    x = x if signed else x.relu()
    x.requires_grad_()
    y = quantizer(x)
    expected = [by_hand(value, clip, bits, signed) for value in x.tolist()]
    # float32: the quotient and the product round once each, 2 * 2^-24 * 2.5
    torch.testing.assert_close(y, torch.tensor(expected), rtol=0, atol=4e-7)
    assert len(y.unique()) == (2**bits - 1 if signed else 2**bits)
    y.sum().backward()
    inside = (x <= clip) & (x >= -clip) if signed else x <= clip
    assert torch.equal(gradient(x), inside.float())


def test_half_precision_is_rounded_in_float32() -> None:
    quantizer = ClippedInput(Precision("fixed", 8), False, ConstantClip(6.0))
    x = (7 * torch.rand(1000)).bfloat16()
    assert torch.equal(quantizer(x), quantizer(x.float()).bfloat16())


class TestBatchNormRule:
    def norm(self, beta: list[float], gamma: list[float]) -> nn.BatchNorm2d:
        norm = nn.BatchNorm2d(len(beta))
        with torch.no_grad():
            norm.bias.copy_(torch.tensor(beta))
            norm.weight.copy_(torch.tensor(gamma))
        return norm

    def test_unsigned_signed_and_cap(self) -> None:
        norm = self.norm([1.0, -3.0], [0.5, -1.0])  # a negative gamma spreads all the same
        x = torch.zeros(1)
        assert BatchNormClip(norm, 6, signed=False, cap=None)(x) == 4.0  # max(1+3, -3+6)
        assert BatchNormClip(norm, 6, signed=True, cap=None)(x) == 9.0  # max(1+3, 3+6)
        assert BatchNormClip(norm, 6, signed=True, cap=6.0)(x) == 6.0
        assert BatchNormClip(norm, 2, signed=False, cap=None)(x) == 2.0

    def test_follows_the_live_batch_norm(self) -> None:
        norm = self.norm([1.0], [1.0])
        clip = BatchNormClip(norm, 6, signed=False, cap=None)
        with torch.no_grad():
            norm.bias.add_(1)
        assert clip(torch.zeros(1)) == 8.0
        assert not list(clip.parameters()), "the batch norm is not owned by the clip"

    def test_without_affine_and_dead(self) -> None:
        assert BatchNormClip(nn.BatchNorm2d(3, affine=False), 6, False, None)(torch.zeros(1)) == 6
        dead = self.norm([-9.0], [0.0])
        assert BatchNormClip(dead, 6, False, None)(torch.zeros(1)) > 0

    @pytest.mark.parametrize("signed", [True, False])
    def test_probability_bound_of_the_paper(self, signed: bool) -> None:
        """Pr{y <= c} >= 0.999 for y ~ N(beta, gamma^2) in each channel (eq. 14).

        Six sigma clip 1e-9 of a channel: of 4e6 samples 0.004 are expected outside, so that even one
        in a thousand would be 4000.
        """
        beta, gamma = torch.randn(40), torch.randn(40) * 2
        norm = self.norm(beta.tolist(), gamma.tolist())
        y = beta + gamma * torch.randn(100_000, 40)
        c = BatchNormClip(norm, 6, signed, None)(y)
        outside = (y.abs() if signed else y) > c
        assert outside.float().mean(0).max() <= 0.001
        # The rule can fail: at k = 1 it must not hold.
        tight = BatchNormClip(norm, 1, signed, None)(y)
        assert ((y.abs() if signed else y) > tight).float().mean(0).max() > 0.001


class TestRunningRange:
    def quantizer(self, momentum: float = 0.25) -> ClippedInput:
        quantizer = ClippedInput(Precision("fixed", 8), True, RunningClip())
        quantizer.momentum = momentum
        return quantizer

    def test_first_batch_sets_then_moves(self) -> None:
        quantizer = self.quantizer().train()
        for batch, clip in (([-4.0, 2.0], 4.0), ([8.0], 5.0)):  # 4 + 0.25 * (8 - 4)
            assert float(quantizer(torch.tensor(batch)).abs().max()) == pytest.approx(clip)
            assert quantizer.grid().scale * 127 == pytest.approx(clip)
        assert float(quantizer.eval()(torch.tensor([100.0]))) == pytest.approx(5), "frozen in eval"

    def test_own_range_until_something_was_seen(self) -> None:
        quantizer = self.quantizer().eval()
        for largest in (-3.0, 7.0):
            assert float(quantizer(torch.tensor([largest]))) == pytest.approx(largest)
        assert not quantizer.has_seen
        quantizer.train()(torch.zeros(0, 4))
        assert not quantizer.has_seen, "nothing was in it"

    def test_zeros_are_seen_and_the_next_batch_replaces_them(self) -> None:
        quantizer = self.quantizer().train()
        assert torch.equal(quantizer(torch.zeros(4)), torch.zeros(4))
        saved = self.quantizer()
        saved.load_state_dict(quantizer.state_dict())
        assert quantizer.has_seen
        assert saved.has_seen, "a state dict remembers it"
        assert quantizer.eval()(torch.tensor([5.0])) < 1e-5, "eval() uses what was seen"
        assert float(quantizer.train()(torch.tensor([5.0]))) == pytest.approx(5)
        assert quantizer(torch.zeros(4)).abs().max() == 0
        assert quantizer.clip.limit == 3.75, "from here on, zeros count as any other batch"
        quantizer.reset()
        assert not quantizer.has_seen
