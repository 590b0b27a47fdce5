"""How far each pixel can be trusted to say what a layer should do.

Some networks have a few pixels, often in a corner, whose activations are many times the usual ones.
Where those are clipped, the quantized network differs there and the difference hardly matters: later
layers ignore such pixels. In a mean square they would count for more than all others, and a fit
would spoil every pixel to make up for a few. So a pixel counts less, the more it differs:

    weight = d^2 / (d^2 + r^2)

r is its difference, over all channels, each relative to its spread; d is some times the median of
r. Most pixels then count almost in full, and none counts for more than a multiple of a usual one,
however far off it is. Where most pixels are background, with hardly a difference, the median says
nothing about the others: d is never less than what nine of ten pixels stay below.
"""

from __future__ import annotations

import torch
from torch import Tensor

USUAL = 3.0  # times the median difference: a pixel that differs so much counts half
OFTEN = 0.9  # of all pixels are no outliers, however they differ


def trust(got: Tensor, wanted: Tensor, channels: int = 1) -> Tensor:
    """A weight for each place of two tensors, all dimensions but `channels`; 1 where they are equal.

    >>> got = torch.zeros(5, 1, 1, 2)
    >>> wanted = torch.tensor([1.0, 1, 1, 1, 1, 1, 1, 1, 1, 100]).reshape(5, 1, 1, 2)
    >>> [round(float(w), 4) for w in trust(got, wanted).flatten()[-2:]]
    [0.9, 0.0009]
    """
    others = [d for d in range(wanted.ndim) if d != channels % wanted.ndim]
    spread = wanted.float().var(others, correction=0, keepdim=True)
    used = spread > 0
    squares = torch.where(used, (got - wanted).float().square() / spread.where(used, 1.0), 0.0)
    rr = squares.mean(channels)
    dd = torch.maximum(USUAL**2 * rr.median(), _quantile(rr.flatten(), OFTEN))
    return torch.where(rr > 0, dd / (dd + rr).clamp(min=torch.finfo(rr.dtype).tiny), 1.0)


def _quantile(x: Tensor, share: float) -> Tensor:
    """Without interpolation; torch.quantile takes 16 million numbers at most."""
    return x.kthvalue(max(1, round(share * x.numel()))).values
