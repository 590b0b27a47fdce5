"""Layers that are no plain Conv2d or Linear: fitted if their output is that of their product."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dbq
from dbq.model.layers import QuantLayer
from dbq.posttraining.agreement import agreement
from dbq.posttraining.fitting.layerwise import fit_layers
from tests.posttraining.restated import counts_of, importance_of, output_error
from tests.posttraining.test_quantize import images


class SamePadding(nn.Conv2d):
    """Pads more at the end, as TensorFlow does."""

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, (0, 1, 0, 1))
        return F.conv2d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class Activated(nn.Conv2d):
    """Holds its activation."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(super().forward(x))


LAYERS = {
    "padded by its class": SamePadding(8, 12, 3, stride=2),
    "transposed": nn.ConvTranspose2d(8, 12, 3, stride=2, padding=1),
    "transposed in groups": nn.ConvTranspose2d(8, 12, 2, stride=2, groups=4, bias=False),
    "grouped": nn.Conv2d(8, 12, 3, groups=2, padding=1),
}


def network(layer: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), copy.deepcopy(layer), nn.BatchNorm2d(12), nn.ReLU(),
        nn.Conv2d(12, 6, 1),
    )  # fmt: skip
    net[2].reset_parameters()  # by the seed, whatever was made before
    dbq.calibrate(net, [images(64)], statistics="estimate")
    net.eval()
    return net


PLAN = dbq.Plan(name="all", default=dbq.LayerPlan.of("2T", "8b"))


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_fitted_as_plain_ones_are(layer: nn.Module) -> None:
    """Nearer to the float network than `prepare` is; the errors are those of the layer's outputs."""
    float_net, net, prepared = (network(layer) for _ in range(3))
    dbq.prepare(prepared, PLAN, images(1))
    dbq.calibrate(prepared, [images(60)])
    summary = dbq.quantize(net, PLAN, images(60))
    (row,) = [row for row in summary.layers if row.name == "2"]
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    x = images(60)[order[: summary.images]]
    with torch.no_grad():
        wanted, quantized = float_net[:3](x), net[2]
        assert isinstance(quantized, QuantLayer)
        counts = counts_of(float_net[2](quantized.quantized_input(net[:2](x))), wanted)
        places, together = importance_of(float_net, "2", x)
        share = output_error(net[:3](x), wanted, counts * places, together)
        unseen = images(40, seed=7)
        fitted, before = (
            agreement([float_net(unseen)], [each.eval()(unseen)]).distance
            for each in (net, prepared)
        )
    assert row.error == pytest.approx(share, rel=0.02)
    assert row.error_before is not None
    assert row.error < 0.95 * row.error_before
    assert fitted < 0.8 * before


def test_a_class_that_changes_its_output_stays_as_prepared() -> None:
    float_net = network(Activated(8, 12, 1))
    student = copy.deepcopy(float_net)
    dbq.prepare(student, PLAN, images(1))
    dbq.calibrate(student, [images(20)], statistics="keep")
    before = copy.deepcopy(student[2].state_dict())
    assert [row.name for row in fit_layers(float_net, student, images(20))] == ["0", "5"]
    assert all(torch.equal(value, before[key]) for key, value in student[2].state_dict().items())
