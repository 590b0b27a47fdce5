"""param_groups: which parameters weight decay acts on."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer

from dbq.errors import DbqError
from dbq.quantizers.contract import InputQuantizer, WeightQuantizer


def param_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups for any torch optimizer: network parameters, and quantizer parameters undecayed.

    Decay pulls weights towards zero; thresholds and scales have no reason to go there. Input
    quantizers may ask for decay (PACT does, for its clip).

    >>> from dbq.model.preparation import prepare
    >>> import torch
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 2, 1))
    >>> _ = prepare(net, "dbq-2t-1", torch.zeros(1, 3, 8, 8))
    >>> [(len(group["params"]), group["weight_decay"]) for group in param_groups(net, 4e-5)]
    [(6, 4e-05), (4, 0.0)]
    """
    of_quantizers = _undecayed(model)
    network = [p for p in model.parameters() if id(p) not in of_quantizers]
    quantizers = [p for p in model.parameters() if id(p) in of_quantizers]
    groups = [{"params": network, "weight_decay": weight_decay}]
    if quantizers:
        groups.append({"params": quantizers, "weight_decay": 0.0})
    return groups


def refuse_decay(model: nn.Module, optimizer: Optimizer) -> None:
    """Raise DbqError if weight decay acts on a quantizer of `model`; it names the parameter.

    >>> from dbq.model.preparation import prepare
    >>> import torch
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 2, 1))
    >>> _ = prepare(net, "dbq-2t-1", torch.zeros(1, 3, 8, 8))
    >>> refuse_decay(net, torch.optim.SGD(param_groups(net, 4e-5), lr=0.1))
    >>> refuse_decay(net, torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=4e-5))
    Traceback (most recent call last):
    ...
    dbq.errors.DbqError: weight decay acts on 1.weight_quantizer.alpha: give the optimizer \
dbq.param_groups(model, weight_decay)
    """
    of_quantizers = _undecayed(model)
    for group in optimizer.param_groups:
        for parameter in group["params"] if group.get("weight_decay") else ():
            if id(parameter) in of_quantizers:
                names = (name for name, p in model.named_parameters() if p is parameter)
                raise DbqError(
                    f"weight decay acts on {next(names)}: give the optimizer "
                    "dbq.param_groups(model, weight_decay)"
                )


def _undecayed(model: nn.Module) -> set[int]:
    """The identities of the quantizers' parameters."""
    return {
        id(parameter)
        for module in model.modules()
        if isinstance(module, WeightQuantizer)
        or (isinstance(module, InputQuantizer) and not module.decays)
        for parameter in module.parameters()
    }
