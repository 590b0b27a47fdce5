"""How many bits fixed-point weights take in a program, and which codes it refuses."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import dbq
from dbq.deploy.operations.convolution import Convolution
from dbq.errors import LoweringError
from dbq.plans.precision import Precision
from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.frozen import FixedPoint

IMAGE = torch.rand(2, 3, 2, 2, generator=torch.Generator().manual_seed(1))


class Chosen(WeightQuantizer):
    """A method whose codes are what the weights are."""

    def forward(self, weight: Tensor) -> Tensor:
        return self.freeze(weight).weight

    def freeze(self, weight: Tensor) -> FixedPoint:
        return FixedPoint(weight.detach().to(torch.int8), torch.full((len(weight),), 0.01))


def network(codes: list[int]) -> nn.Sequential:
    net = nn.Sequential(nn.Conv2d(3, 1, 1), nn.Conv2d(1, 1, 1))
    dbq.prepare(net, dbq.Plan("all", default=dbq.LayerPlan.of("2b", 8)), IMAGE)
    net[0].weight.data = torch.tensor(codes).float().reshape(1, 3, 1, 1)
    net[0].weight_quantizer = Chosen(Precision.parse("2b"), 1)
    dbq.calibrate(net, [IMAGE])
    return net


@pytest.mark.parametrize(("codes", "bits"), [([-1, 0, 1], 2), ([-2, 0, 1], 3), ([-127, 3, 5], 8)])
def test_codes_are_held_symmetrically(codes: list[int], bits: int) -> None:
    program = dbq.lower(network(codes), IMAGE, report=None)
    assert next(op.bits for op in program.operations if isinstance(op, Convolution)) == bits


def test_the_code_that_has_no_opposite_is_refused() -> None:
    with pytest.raises(LoweringError, match=r"^0.*-128"):
        dbq.lower(network([-128, 3, 0]), IMAGE, report=None)
