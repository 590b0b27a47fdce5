"""Decomposition: codes and scales of a network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dbq
from dbq.model.layers import QuantConv2d
from tests.model.small import IMAGE, network


def test_branches_report_codes_scales_sparsity_and_ratios() -> None:
    net = network()
    dbq.prepare(net, "dbq-2t-1", IMAGE)
    found = dbq.branches(net)
    assert list(found) == ["3", "6"]
    net.eval()
    for name, layer in found.items():
        module = net.get_submodule(name)
        assert isinstance(module, QuantConv2d)
        assert torch.equal(layer.weight, module.quantized_weight())
        assert layer.codes.shape == (2, *module.weight.shape)
        zeros = [(code == 0).sum().item() / code.numel() for code in layer.codes]
        assert layer.sparsity == pytest.approx(zeros, abs=1e-6)
        assert (layer.ratios >= 1).all()
    assert dbq.branches(nn.Linear(2, 2)) == {}
