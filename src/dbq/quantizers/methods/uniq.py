"""UNIQ: levels at equal probability, and noise instead of rounding while training.

Baskin et al. 2018, "UNIQ: Uniform Noise Injection for Non-Uniform Quantization of Neural Networks".
The weights of a layer are taken as normal, with the mean and deviation of the live weight. With F
their distribution function and k = 2^b bins of equal probability,

    code of w = floor(k F(w)),    level i = F^-1((i + 1/2) / k)

so a weight takes the median of its bin, which need not be the nearest level. In train(), the error of
that is imitated by uniform noise on the uniformised weight,

    q(w) = F^-1(F(w) + n),    n ~ U(-1/(2k), 1/(2k))

whose gradient autograd finds: dq/dw = f(w) / f(q(w)) with F's density f, mean and deviation being
constants. There are no parameters, no state and nothing to initialise.

Layers take turns, as `advance` tells them. Training is cut into equal parts, one for each block of
layers: blocks before the current one are frozen (hard weights, no gradient), the current one has noise,
those after it are float. If `advance` is never called, every layer has noise. The publication, too,
goes through blocks of layers from the input on; the option `blocks` is their number, 0 for one block
per layer.

Where we differ:
- The noisy value is clamped between 0.001 and 0.999 before F^-1, where its slope grows without bound.
  The outermost level of 8 bits, at 1/512, is inside.
- One pass through the layers and no training after it: the last block ends with noise.
- A layer of equal weights is its own level, and trains as float.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.special import ndtr, ndtri

from dbq.errors import PlanError
from dbq.plans.precision import Precision
from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.frozen import Levels
from dbq.quantizers.tensors import working_type

Stage = Literal["float", "noise", "frozen"]

EDGE = 1e-3  # of the probabilities that F^-1 is given


class UniqQuantizer(WeightQuantizer):
    """2^b quantile levels of a normal distribution.

    >>> quantizer = UniqQuantizer(Precision("fixed", 2), kernels=1).eval()
    >>> quantizer(torch.tensor([[-2.0, 0.0, 0.1, 2.0]])).round(decimals=2)
    tensor([[-1.6000, -0.4300,  0.4800,  1.6500]])
    """

    skips_gradients = True

    def __init__(self, precision: Precision, kernels: int, blocks: int = 0) -> None:
        super().__init__(precision, kernels)
        if blocks < 0:
            raise PlanError(f"option blocks = {blocks} of 'uniq': expected 0 or more")
        self.blocks = blocks
        self.bins = 2**precision.size
        self.stage: Stage = "noise"  # follows from the progress that `advance` is told

    def advance(self, progress: float, index: int, count: int) -> None:
        parts = min(self.blocks, count) or count
        block, current = index * parts // count, min(int(progress * parts), parts - 1)
        self.stage = "frozen" if block < current else "noise" if block == current else "float"

    def forward(self, weight: Tensor) -> Tensor:
        if self.training and self.stage != "frozen":
            return weight if self.stage == "float" else self._noisy(weight)
        return self.freeze(weight).weight.to(weight.dtype)

    def _noisy(self, weight: Tensor) -> Tensor:
        u, mean, deviation = _uniformised(weight)
        noise = (torch.rand_like(u) - 0.5) / self.bins
        noisy: Tensor = mean + deviation * ndtri((u + noise).clamp(EDGE, 1 - EDGE))
        return torch.where(deviation > 0, noisy.to(weight.dtype), weight)

    @torch.no_grad()
    def freeze(self, weight: Tensor) -> Levels:
        """The bin of each weight, and the medians of the bins."""
        u, mean, deviation = _uniformised(weight)
        codes = torch.nan_to_num((u * self.bins).floor().clamp(0, self.bins - 1)).to(torch.uint8)
        middles = torch.arange(self.bins, dtype=mean.dtype, device=mean.device) + 0.5
        levels: Tensor = mean + deviation * ndtri(middles / self.bins)
        return Levels(codes, levels.expand(self.kernels, self.bins))


def _uniformised(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """F(w), between 0 and 1; mean and standard deviation of the layer's weights, as constants."""
    w = weight.to(working_type(weight))
    deviation, mean = torch.std_mean(w.detach(), correction=0)
    return ndtr((w - mean) / torch.where(deviation > 0, deviation, 1.0)), mean, deviation
