"""Patches are what a layer's dot products read; errors from sums are errors of outputs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dbq.model.roles import WeightLayer, kernels_of
from dbq.posttraining.fitting.moments import DAMPINGS, Moments, best_damping, outputs, patches


class SamePadding(nn.Conv2d):
    """Pads more at the end, by itself."""

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, (0, 1, 1, 2))
        return F.conv2d(x, self.weight, self.bias, stride=self.stride, groups=self.groups)


LAYERS = [
    nn.Conv2d(4, 6, 1),
    nn.Conv2d(4, 6, 1, stride=2),
    nn.Conv2d(4, 6, 3, padding=1),
    nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(0, 1), dilation=(1, 2), bias=False),
    nn.Conv2d(4, 8, 3, groups=4, padding="same"),
    nn.Conv2d(4, 8, 3, groups=2, padding=1, padding_mode="reflect"),
    pytest.param(
        nn.Conv2d(4, 6, 4, padding="same"),
        marks=pytest.mark.filterwarnings("ignore:Using padding='same'"),
    ),
    nn.Conv2d(4, 6, 3, padding="valid"),
    SamePadding(4, 8, 3, stride=2, groups=2),
    nn.ConvTranspose2d(4, 6, 2, stride=2),
    nn.ConvTranspose2d(4, 6, 3, stride=(2, 3), padding=1, output_padding=1, groups=2),
    nn.ConvTranspose2d(4, 6, 3, padding=(2, 3), dilation=(1, 2), bias=False),
    nn.ConvTranspose2d(4, 6, 1, stride=2, padding=1),
    nn.Linear(4, 5),
]


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("every", [1, 2])
def test_products_of_patches_are_the_outputs(layer: WeightLayer, every: int) -> None:
    x = torch.randn(3, 7, 4) if isinstance(layer, nn.Linear) else torch.randn(3, 4, 8, 9)
    rows = patches(layer, x, every)
    weight = kernels_of(layer).reshape(len(rows), -1, rows.shape[-1])
    wanted = outputs(layer, layer(x), every)
    torch.testing.assert_close(rows @ weight.mT, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("centred", [False, True])
def test_errors_are_those_of_the_outputs(centred: bool) -> None:
    """Recomputed from the samples themselves."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 500, 6, generator=generator) + 1
    weight = torch.randn(3, 6, generator=generator)
    y = x @ weight.T + 0.1 * torch.randn(1, 500, 3, generator=generator)
    other = weight + 0.2
    total = Moments.of(x[:, :200], y[:, :200]) + Moments.of(x[:, 200:], y[:, 200:])
    problem = total.problem(weight, centred, damping=0.01)
    difference = (x @ other.T - y)[0].double()
    if centred:
        difference = difference - difference.mean(0)
    damping = problem.H.diagonal(dim1=1, dim2=2).mean() * 0.01 / 1.01
    moved = (other - weight).double()
    wanted = difference.T @ difference / 500 + damping * moved @ moved.T  # of pairs of kernels
    together = torch.tensor([[1.0, -0.9, 0.0], [-0.9, 2.0, 0.3], [0.0, 0.3, 1.0]]).double()
    assert problem.error(other) == pytest.approx(float(wanted.trace()), rel=1e-4)
    assert problem.error(other, together) == pytest.approx(
        float((together * wanted).sum()), rel=1e-4
    )
    target = problem.target()
    alone = [torch.eye(3).double()[k].diag() for k in range(3)]  # of one kernel
    for k, one in enumerate(alone):
        assert problem.error(other, one) == pytest.approx(float(wanted[k, k]), rel=1e-4)
    for between in (None, together, *alone):
        assert problem.error(target, between) <= problem.error(weight, between) + 1e-9
        error, power = problem.error(other, between), problem.error(0 * weight, between)
        assert problem.relative_error(other, between) == pytest.approx(error / power)
    shifted = x[0].double() @ other.T.double() + total.shift(other)
    torch.testing.assert_close(shifted.mean(0), y[0].double().mean(0), rtol=1e-4, atol=1e-4)


def test_damping_is_strong_where_samples_are_few() -> None:
    """More inputs than samples: what fits one half says little about the other."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(4, 60, generator=generator)

    def halves(samples: int) -> tuple[Moments, Moments]:
        def half() -> Moments:
            x = torch.randn(1, samples, 60, generator=generator)
            noise = 3 * torch.randn(1, samples, 4, generator=generator)
            return Moments.of(x, x @ (1.3 * weight.T) + noise)

        return half(), half()

    assert best_damping(halves(40), weight, centred=False) > DAMPINGS[2]
    assert best_damping(halves(40_000), weight, centred=False) == DAMPINGS[0]
