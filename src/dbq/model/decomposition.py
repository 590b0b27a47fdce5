"""branches: the ternary codes and scales of a quantized model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dbq.model.layers import QuantLayer
from dbq.quantizers.dbq.branch import recompose


@dataclass(frozen=True)
class Branches:
    """The branches of one layer with K output kernels.

    `codes` is int8 [B, *weight.shape] in {-1, 0, 1}; `scales` is float [K, B], largest first.
    """

    codes: Tensor
    scales: Tensor

    @property
    def weight(self) -> Tensor:
        """sum_j scales_j * codes_j: the weight the layer uses in eval(), bit for bit."""
        return recompose(self.codes, self.scales)

    @property
    def sparsity(self) -> list[float]:
        """Share of zeros in each branch."""
        return [float((branch == 0).float().mean()) for branch in self.codes]

    @property
    def ratios(self) -> Tensor:
        """alpha_j / alpha_{j+1} of each kernel, [K, B-1]; infinite where the smaller one is 0."""
        return self.scales[:, :-1] / self.scales[:, 1:]


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
    found = {}
    for name, module in model.named_modules():
        if not isinstance(module, QuantLayer) or module.weight_quantizer is None:
            continue
        quantizer = module.weight_quantizer
        if quantizer.precision.is_branched:
            found[name] = Branches(quantizer.codes(module.weight), quantizer.scales(module.weight))
    return found
