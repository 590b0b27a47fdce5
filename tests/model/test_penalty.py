"""The size penalty against its formula."""

from __future__ import annotations

import math

from torch import nn

from dbq.model.layers import quantize_layer
from dbq.model.penalty import size_penalty
from dbq.plans.precision import Precision
from dbq.quantizers.fixed import FixedPointQuantizer
from dbq.quantizers.methods.mixed import MixedQuantizer


def network() -> nn.Sequential:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 5), nn.Linear(5, 2))
    for layer, bits in ((net[0], 4), (net[2], 6)):
        weight = layer.get_parameter("weight").detach()
        quantizer = MixedQuantizer(Precision("fixed", 8), len(weight), initial=bits)
        quantizer.initialise(weight)
        quantize_layer(layer, quantizer, None)
    quantize_layer(net[3], FixedPointQuantizer(Precision("fixed", 8), 2), None)  # does not count
    return net


def test_size_penalty() -> None:
    assert size_penalty(nn.Linear(3, 2), 4.0) is None
    net = network()
    mean = (108 * 4 + 80 * 6) / (108 + 80)
    for budget in (2.0, 4.5):
        assert math.isclose(size_penalty(net, budget).item(), (mean - budget) ** 2, rel_tol=1e-5)
    assert size_penalty(net, 5.0).item() == 0
    size_penalty(net, 3.0).backward()
    for layer in (net[0], net[2]):
        assert layer.weight_quantizer.d.grad < 0, "a larger step costs less"
        assert layer.weight_quantizer.q_max.grad > 0, "so does a smaller range"
