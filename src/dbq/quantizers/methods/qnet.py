"""Quantization Networks: a sum of sigmoids that becomes a sum of steps.

Yang et al. 2019, "Quantization Networks" (CVPR), eq. 7 in train(), eq. 12 in eval():

    Q(w) = alpha (sum_i s_i A(beta w - b_i) - o),    s_i = 1,  o = B

with n = 2B thresholds and the levels -B..B times alpha: {-1, 0, 1} for 1T, {-2, ..., 2} for 2T. A is
the sigmoid of temperature T while training and the unit step after. alpha and beta, one each a layer,
are learned with the ordinary gradients of the soft function (eqs. 8 to 10). T grows during
training. This is DBQ's staircase with one scale for all steps, so `soft_staircase` computes it.

Initialisation, as published: beta = 5 p / (4 q) with p = B and q = max|w|, alpha = 1 / beta, and b_i in
the middle between the k-means centres i and i+1 of beta w.

2T is written as two branches of equal scales: c_1 is the sign of the level, c_2 that of a level of 2.

Where we differ:
- The thresholds stay where clustering put them. The publication lists them among what is trained.
- The publication puts the two thresholds around zero at -0.05 and 0.05, for 1T without clustering.
  We take all thresholds from the clusters.
- Large layers are clustered by an evenly spaced part of their sorted weights.
- A layer of fewer values than levels has no clusters; its thresholds are midway between the levels.
- Only alpha's size counts; a negative one would turn the network's sign.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dbq.plans.precision import Precision
from dbq.quantizers.contract import WeightQuantizer, require_size
from dbq.quantizers.dbq.initial import SMALLEST_PEAK
from dbq.quantizers.dbq.staircase import DEFAULT_TEMPERATURE, soft_staircase
from dbq.quantizers.fitting.kmeans1d import kmeans1d
from dbq.quantizers.frozen import Branches
from dbq.quantizers.tensors import keep_nan, midpoints, working_type

MOST_CLUSTERED = 1 << 14  # weights; the centres of more would hardly differ


class QNetQuantizer(WeightQuantizer):
    """2B + 1 evenly spaced levels behind fixed thresholds; alpha and beta learned.

    >>> quantizer = QNetQuantizer(Precision("ternary", 1), kernels=1)
    >>> weight = torch.tensor([[-1.0, -0.9, 0.0, 0.1, 0.9, 1.0]])
    >>> quantizer.initialise(weight)
    >>> quantizer.eval()(weight).detach()
    tensor([[-0.8000, -0.8000,  0.0000,  0.0000,  0.8000,  0.8000]])
    """

    temperature: Tensor
    thresholds: Tensor
    level_codes: Tensor

    def __init__(self, precision: Precision, kernels: int) -> None:
        super().__init__(precision, kernels)
        require_size("qnet", precision, 1, 2)
        self.alpha = nn.Parameter(torch.ones(1))
        self.beta = nn.Parameter(torch.ones(1))
        self.register_buffer("thresholds", midway(precision.size).float())
        self.register_buffer("temperature", torch.tensor(DEFAULT_TEMPERATURE))
        levels = torch.arange(-precision.size, precision.size + 1, dtype=torch.int8)
        self.register_buffer("level_codes", levels.unsqueeze(1), persistent=False)

    @torch.no_grad()
    def initialise(self, weight: Tensor) -> None:
        super().initialise(weight)
        w = weight.flatten().cpu().double()  # not every device has doubles
        peak = float(w.abs().max())
        beta = 5 * self.precision.size / (4 * peak) if peak >= SMALLEST_PEAK else 1.0
        self.beta.fill_(beta)
        self.alpha.fill_(1 / beta)
        self.thresholds.copy_(clustered(beta * w, self.precision.size))

    def forward(self, weight: Tensor) -> Tensor:
        if not self.training:
            return keep_nan(weight, self.freeze(weight).weight)
        parameters = self.alpha, self.beta, torch.ones_like(self.beta), self.thresholds
        return soft_staircase(weight, *parameters, self.temperature, self.level_codes)

    def freeze(self, weight: Tensor) -> Branches:
        dtype, branches = working_type(weight), self.precision.size
        u = (self.beta.to(dtype) * weight.to(dtype)).detach()
        level = torch.bucketize(u, self.thresholds.to(dtype), out_int32=True) - branches
        codes = torch.stack([level.sign() * (level.abs() > j) for j in range(branches)])
        scales = self.alpha.abs().to(dtype).expand(self.kernels, branches)
        return Branches(codes.to(torch.int8), scales)


def clustered(u: Tensor, branches: int) -> Tensor:
    """Thresholds between the centres of 2B + 1 clusters of `u`."""
    u = u.sort().values[:: -(-len(u) // MOST_CLUSTERED)]
    centres = kmeans1d(u.unsqueeze(0), 2 * branches + 1)[0]
    return midpoints(centres) if (centres.diff() > 0).all() else midway(branches).to(u)


def midway(branches: int) -> Tensor:
    """Thresholds halfway between the levels -B..B.

    >>> midway(2).tolist()
    [-1.5, -0.5, 0.5, 1.5]
    """
    return torch.arange(-branches, branches) + 0.5
