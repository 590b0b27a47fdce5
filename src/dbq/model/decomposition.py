"""branches: the ternary codes and scales of a quantized model."""

from __future__ import annotations

import torch
from torch import nn

from dbq.model.layers import quantized_weights
from dbq.quantizers.frozen import Branches


@torch.no_grad()
def branches(model: nn.Module) -> dict[str, Branches]:
    """Codes and scales of every layer with branched weights, by layer name.

    >>> from dbq.model.preparation import prepare
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 2, 1))
    >>> _ = prepare(net, "dbq-2t-1", torch.zeros(1, 3, 8, 8))
    >>> layer = branches(net)["1"]
    >>> torch.equal(layer.weight, net.eval()[1].quantized_weight())
    True
    """
    layers = {name: q.freeze(weight) for name, (q, weight) in quantized_weights(model).items()}
    return {name: layer for name, layer in layers.items() if isinstance(layer, Branches)}
