"""Relaxed Quantization: a weight with noise falls on a grid point at random, softly.

Louizos et al. 2019, "Relaxed Quantization for Discretized Neural Networks" (ICLR). The grid is
alpha k for integers |k| <= Q. Logistic noise of scale sigma puts weight w on point k with probability

    pi_k = S((alpha k + alpha/2 - w) / sigma) - S((alpha k - alpha/2 - w) / sigma)         (eq. 3)

S the sigmoid, renormalised to the grid (eq. 4). train() draws from the concrete relaxation, eq. 5:

    z = softmax((log pi + u) / tau),   u ~ Gumbel(0, 1),    q(w) = alpha sum_k z_k k

and all of w, alpha, sigma have its ordinary gradients. eval() takes the nearest point (Algorithm 2).

Since S(b) - S(a) = S(b) S(-a) (1 - exp(a - b)), and b - a = alpha / sigma is the same for all points,
log pi_k is log S(b_k) + log S(-a_k) up to a constant that the softmax removes. So nothing is divided
by what may vanish far from the grid, and the publication's fuzz parameter is not needed.

alpha and sigma, one each a layer, are positive as exponentials of the parameters `log_alpha` and
`log_sigma`. They start at alpha = max|w| / Q and sigma = alpha / 3.

Where we differ:
- Q = 2^(b-1) - 1: the grid is symmetric, as the engine's codes are; eq. 1 has one more point below.
- The local grid (section 2.2) holds the points within a multiple of sigma of the nearest one. Ours has a
  fixed number: two on each side, five in all, or the whole grid of 2 bits. That covers 3 sigma
  until sigma exceeds two thirds of alpha. At the ends of the grid the five points are its last five.
- tau = 0.66, and the initial alpha, are our choice. Samples stay soft (the publication's RQ, not RQ ST).
- sigma counts as at least alpha / 1000.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dbq.errors import PlanError
from dbq.plans.precision import Precision
from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.frozen import FixedPoint
from dbq.quantizers.tensors import keep_nan, working_type

NEIGHBOURS = 2  # points of the local grid on each side of its centre
SMALLEST_NOISE = 1e-3  # sigma / alpha
LARGEST_LOG = 27.0  # alpha stays within e^-27 and e^27, 2e-12 and 5e11
SMALLEST_PEAK = 1e-10  # of weights that have a range


class RelaxedQuantizer(WeightQuantizer):
    """Fixed-point weights with a learned step, trained by noise.

    >>> quantizer = RelaxedQuantizer(Precision("fixed", 3), kernels=1)
    >>> weight = torch.tensor([[-3.0, 0.4, 0.6, 3.0]])
    >>> quantizer.initialise(weight)
    >>> quantizer.eval()(weight).round(decimals=4).tolist()
    [[-3.0, 0.0, 1.0, 3.0]]
    """

    def __init__(self, precision: Precision, kernels: int, tau: float = 0.66) -> None:
        super().__init__(precision, kernels)
        if not tau > 0:
            raise PlanError(f"option tau = {tau} of 'rq': expected a number above 0")
        self.tau = tau
        self.largest_code = precision.largest_code
        self.log_alpha = nn.Parameter(torch.zeros(1))
        self.log_sigma = nn.Parameter(torch.zeros(1))

    @torch.no_grad()
    def initialise(self, weight: Tensor) -> None:
        super().initialise(weight)
        alpha = weight.abs().max().float() / self.largest_code
        alpha = torch.where(alpha > SMALLEST_PEAK, alpha, 1.0)  # zeros: any grid will do
        self.log_alpha.copy_(alpha.log())
        self.log_sigma.copy_(alpha.log() - math.log(3))

    def forward(self, weight: Tensor) -> Tensor:
        if not self.training:
            return keep_nan(weight, self.freeze(weight).weight)
        alpha = self._alpha(weight)
        return (self._sample(weight.to(alpha.dtype) / alpha) * alpha).to(weight.dtype)

    def freeze(self, weight: Tensor) -> FixedPoint:
        alpha = self._alpha(weight)
        u = (weight.to(alpha.dtype) / alpha).detach()
        codes = u.round().clamp(-self.largest_code, self.largest_code).to(torch.int8)
        return FixedPoint(codes, alpha.expand(self.kernels))

    def _alpha(self, weight: Tensor) -> Tensor:
        """A tensor of one number, in the type weights are quantized in."""
        return self.log_alpha.clamp(-LARGEST_LOG, LARGEST_LOG).exp().to(working_type(weight))

    def _sample(self, u: Tensor) -> Tensor:
        """sum_k z_k k: concrete samples of the local grid, in units of alpha."""
        points = self._local_grid(u)
        noise = (self.log_sigma - self.log_alpha).exp().clamp(min=SMALLEST_NOISE).to(u.dtype)
        beyond = (points - u) / noise
        half = 0.5 / noise
        log_pi = F.logsigmoid(half + beyond) + F.logsigmoid(half - beyond)
        gumbel = -torch.empty_like(log_pi).exponential_().log()
        z = ((log_pi + gumbel) / self.tau).softmax(dim=0)
        return (z * points).sum(dim=0)

    def _local_grid(self, u: Tensor) -> Tensor:
        """The codes around each weight, [points, *u.shape]."""
        reach = min(NEIGHBOURS, self.largest_code)
        last = self.largest_code - reach
        centre = u.detach().round().clamp(-last, last)
        offsets = torch.arange(-reach, reach + 1, dtype=u.dtype, device=u.device)
        return centre + offsets.reshape(-1, *[1] * u.ndim)
