"""Parameter groups: what weight decay leaves alone."""

from __future__ import annotations

import torch

import dbq
from tests.model.small import IMAGE, network


def test_quantizer_parameters_get_no_decay() -> None:
    net = network()
    dbq.prepare(net, "dbq-2t-4", IMAGE)
    decayed, free = dbq.param_groups(net, weight_decay=0.1)
    assert decayed["weight_decay"] == 0.1
    assert free["weight_decay"] == 0
    names = {id(p): name for name, p in net.named_parameters()}
    assert {names[id(p)] for p in free["params"]} == {
        f"{layer}.weight_quantizer.{p}"
        for layer in ("3", "6")
        for p in ("alpha", "gamma_1", "gamma_2", "t")
    }
    assert len(decayed["params"]) + len(free["params"]) == len(list(net.parameters()))
    # With a gradient of zero, SGD moves exactly what decays.
    optimizer = torch.optim.SGD([decayed, free], lr=1.0)
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    optimizer.step()
    moved = {n for n, p in net.named_parameters() if not torch.equal(p, before[n])}
    assert not any("quantizer" in name for name in moved)
    assert "3.weight" in moved
    assert len(dbq.param_groups(network(), 0.1)) == 1
