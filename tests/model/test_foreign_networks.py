"""Networks from PyPI that were written without us in mind: prepare, train, evaluate, count, reload."""

from __future__ import annotations

import copy
from collections import Counter
from importlib import import_module

import pytest
import torch

import dbq

pytestmark = pytest.mark.slow

# module of pytorchcv.models, function, what is unusual about it, roles that must occur
NETWORKS = [
    (
        "mobilenetv3",
        "mobilenetv3_small_w1",
        "hard swish, squeeze-excite",
        {"depthwise", "pointwise"},
    ),
    (
        "efficientnet",
        "efficientnet_b0",
        "SiLU, squeeze-excite, residuals",
        {"depthwise", "pointwise"},
    ),
    ("densenet", "densenet121", "concatenations, batch norm before conv", {"conv", "pointwise"}),
    ("squeezenet", "squeezenet_v1_1", "no batch norm at all, conv head", {"conv", "pointwise"}),
    ("shufflenet", "shufflenet_g3_w1", "grouped 1x1, channel shuffle", {"depthwise", "pointwise"}),
    ("seresnet", "seresnet18", "residuals with squeeze-excite", {"conv", "pointwise"}),
    ("mobilenetv2", "mobilenetv2_wd4", "ReLU6, linear bottlenecks", {"depthwise", "pointwise"}),
]
IMAGE = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(("module", "name", "unusual", "roles"), NETWORKS)
def test_network(module: str, name: str, unusual: str, roles: set[str]) -> None:
    network = getattr(import_module(f"pytorchcv.models.{module}"), name)()
    model = copy.deepcopy(network)
    summary = dbq.prepare(model, "dbq-2t-4", IMAGE)
    assert summary.notes == (), unusual

    counts = Counter(row.role for row in summary.layers)
    assert counts["first"] == counts["last"] == 1
    assert roles <= set(counts)
    weight_layers = [
        m for m in network.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)
    ]
    assert len(summary.layers) == len(weight_layers)
    assert (Counter(row.weight for row in summary.layers)["2T"]) == counts["pointwise"]

    model.train()(IMAGE).float().logsumexp(1).sum().backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key

    assert set(network.state_dict()) <= set(model.state_dict())
    model.load_state_dict(network.state_dict())
    with torch.no_grad():
        assert torch.isfinite(model.eval()(IMAGE)).all()
    before, after = dbq.cost(network, IMAGE[:1]).total, dbq.cost(model, IMAGE[:1]).total
    assert after.C_S <= after.C_C < before.C_C / 3
    assert after.C_M < before.C_M / 3
    assert after.macs == before.macs
