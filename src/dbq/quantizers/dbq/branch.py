"""DBQ: the differentiable branch quantizer, w_q = sum_j alpha_j w_j with w_j in {-1, 0, 1}.

One quantizer per output kernel w in R^D, with N = 3^B levels v_1 <= ... <= v_N. Each level is a
combination v_i = sum_j e_ij alpha_j of the branch scales (eq. 3), and the quantizer is a staircase
that climbs from level to level at learned thresholds (eq. 4):

    Q(w) = gamma_2 [ sum_i f(gamma_1 w - t_i) sum_j b_ij alpha_j  -  sum_j alpha_j ]

with b_ij = e_{i+1,j} - e_ij. In train() f is the sigmoid of temperature T, so every parameter has an
ordinary gradient (eqs. 8 to 12); in eval() f is the unit step and the output is exactly a sum of
scaled ternary codes.

Order. The formula is a quantizer only while thresholds and levels ascend, and nothing in gradient
descent keeps them so. We do not project after the step, nor clamp: Q is *defined* on the sorted
thresholds, on |alpha| in descending order, and on the levels sorted by value. Inside the region
alpha_1 >= alpha_2 >= alpha_1/2 that the paper assumes for B = 2 this is its expanded equation, b_ij
included (a test compares them); at the border of the region two levels meet and exchange places, the
value of Q does not jump, and gradients keep flowing to whichever scale a level is now made of.
Codes are therefore in {-1, 0, 1} and alphas >= 0 whatever the optimizer did, and there is no hook to
forget. A layer sorts K x N numbers, not K x D.

With `whole_ratios` the scales of a kernel are whole multiples of one step, such as 3 : 2, in eval() and
in the forward of train(): the network is then trained as it will be lowered (quantizers/ratios.py).
"""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor, nn

from dbq.errors import PlanError, closest
from dbq.plans.precision import Precision
from dbq.quantizers.contract import WeightQuantizer
from dbq.quantizers.dbq.initial import INITIALISATIONS, initial_parameters
from dbq.quantizers.dbq.output_fit import fit_branches
from dbq.quantizers.dbq.staircase import DEFAULT_TEMPERATURE, soft_staircase
from dbq.quantizers.fitting.output_error import in_turn
from dbq.quantizers.frozen import Branches
from dbq.quantizers.ratios import whole_ratios
from dbq.quantizers.tensors import (
    keep_nan,
    midpoints,
    per_kernel,
    sorted_levels,
    straight_through,
    sum_branches,
    working_type,
)

# The ratio alpha_j / alpha_{j+1} that fixes the order in which levels are listed. Any value in the
# paper's region (1, 2) gives its order for B = 2; 1.5 is where trained networks end up.
USUAL_RATIO = 1.5


class BranchQuantizer(WeightQuantizer):
    """B ternary branches per output kernel; parameters alpha, gamma_1, gamma_2 and t.

    >>> quantizer = BranchQuantizer(Precision("ternary", 2), kernels=4)
    >>> weight = torch.linspace(-1, 1, 36).reshape(4, 9)
    >>> quantizer.initialise(weight)
    >>> torch.equal(quantizer.eval()(weight), quantizer.freeze(weight).weight)
    True
    """

    temperature: Tensor
    level_codes: Tensor

    def __init__(
        self,
        precision: Precision,
        kernels: int,
        init: str = "alternate",
        learn_thresholds: bool = True,
        whole_ratios: bool = False,
    ) -> None:
        super().__init__(precision, kernels)
        self.whole_ratios = whole_ratios and precision.size > 1
        branches, levels = precision.size, 3**precision.size
        if init not in INITIALISATIONS:
            raise PlanError(
                f"no initialisation {init!r} of branches; {closest(init, INITIALISATIONS)}"
            )
        self.init = init
        self.alpha = nn.Parameter(torch.empty(kernels, branches))
        self.gamma_1 = nn.Parameter(torch.ones(kernels, 1))
        self.gamma_2 = nn.Parameter(torch.ones(kernels, 1))
        self.t = nn.Parameter(torch.empty(kernels, levels - 1), requires_grad=learn_thresholds)
        self.register_buffer("temperature", torch.tensor(DEFAULT_TEMPERATURE))
        self.register_buffer("level_codes", level_codes(branches), persistent=False)

    @torch.no_grad()
    def initialise(self, weight: Tensor) -> None:
        super().initialise(weight)
        fitted = initial_parameters(weight, self.level_codes, self.init)
        for name, value in fitted._asdict().items():
            getattr(self, name).copy_(value)

    @torch.no_grad()
    def fit(self, target: Tensor, moments: Tensor, together: Tensor | None = None) -> Tensor:
        """Codes and scales in turn, by output error; from the scales that fit the target itself."""
        super().initialise(target)
        rows, moments = per_kernel(target.detach()).double(), moments.double()
        weight = torch.empty_like(rows)

        def fit_some(chosen: Tensor, wanted: Tensor) -> Tensor:
            first = initial_parameters(wanted, self.level_codes, self.init)
            for name, value in first._asdict().items():
                parameter = getattr(self, name)
                parameter[chosen] = value.to(parameter)
            start = self._scales(target)[chosen].double()
            scales, weight[chosen], quantized = fit_branches(
                wanted, moments, start, self.level_codes.double()
            )
            # As after `initialise`: the largest |w| has size 1 for thresholds and temperature.
            self.alpha[chosen] = (scales / self.gamma_2[chosen]).to(self.alpha)
            return quantized

        if together is None or len(moments) > 1:
            fit_some(torch.arange(len(rows), device=rows.device), rows)
        else:
            in_turn(rows, together, fit_some)
        levels = sum_branches(
            self._ordered_level_codes().double().unbind(0), ordered(self.alpha).double()
        )
        self.t.copy_(midpoints(levels))
        return weight.reshape(target.shape).to(target.dtype)

    def forward(self, weight: Tensor) -> Tensor:
        if not self.training:
            return keep_nan(weight, self._hard(weight).reshape(weight.shape))
        alpha = self._whole_alpha(weight) if self.whole_ratios else self.alpha
        parameters = alpha, self.gamma_1, self.gamma_2, self.t
        return soft_staircase(weight, *parameters, self.temperature, self.level_codes)

    def _whole_alpha(self, weight: Tensor) -> Tensor:
        """Scales in whole ratios, as in eval(); the gradient is that of the scales themselves."""
        scales = self.freeze(weight).scales
        whole = scales / self.gamma_2.detach().abs().clamp(min=torch.finfo(scales.dtype).tiny)
        return straight_through(ordered(self.alpha), whole.to(self.alpha))

    def _hard(self, weight: Tensor) -> Tensor:
        """The frozen weight, K x D, from its levels: a third of the time it takes from all codes."""
        if self.whole_ratios:
            return self.freeze(weight).weight
        scales = self._scales(weight)
        levels = sum_branches(self._ordered_level_codes().to(scales).unbind(0), scales)  # K x N
        return levels.gather(1, self._level_index(weight))

    def freeze(self, weight: Tensor) -> Branches:
        index, of_level = self._level_index(weight), self._ordered_level_codes()
        codes = of_level.gather(2, index.expand(len(of_level), *index.shape))
        free = Branches(codes.reshape(-1, *weight.shape), self._scales(weight))
        if not self.whole_ratios:
            return free
        return Branches(free.codes, whole_ratios(free).scales.to(free.scales))

    def borders(self) -> Tensor:
        return (self.t / self.gamma_1).sort(dim=1).values

    def _scales(self, weight: Tensor) -> Tensor:
        """The scale of each branch, |gamma_2 alpha_j|, K x B, largest first."""
        dtype = working_type(weight)
        return ordered(self.alpha).to(dtype) * self.gamma_2.abs().to(dtype)

    @torch.no_grad()
    def _level_index(self, weight: Tensor) -> Tensor:
        """Which of the N levels each weight takes: the number of thresholds below it."""
        dtype = working_type(weight)
        u = self.gamma_1.to(dtype) * per_kernel(weight).to(dtype)
        index = torch.zeros_like(u, dtype=torch.int8)  # N <= 27 fits int8
        for t in self.t.unsqueeze(2).unbind(1):  # K x 1 each
            index += u > t
        return index.long()

    @torch.no_grad()
    def _ordered_level_codes(self) -> Tensor:
        """B x K x N int8 codes of the levels in ascending order, signed so that scales are >= 0."""
        _, order = sorted_levels(ordered(self.alpha), self.level_codes)
        codes = self.level_codes.T[:, order]
        return torch.where(self.gamma_2 < 0, -codes, codes)


def level_codes(branches: int) -> Tensor:
    """N x B codes e_ij, in the order of the levels at alpha_j / alpha_{j+1} = 1.5.

    >>> level_codes(2).tolist()[:5]
    [[-1, -1], [-1, 0], [0, -1], [-1, 1], [0, 0]]
    """
    scales = [USUAL_RATIO**-j for j in range(branches)]
    codes = product((-1, 0, 1), repeat=branches)
    rank = sorted(codes, key=lambda code: sum(e * a for e, a in zip(code, scales, strict=True)))
    return torch.tensor(rank, dtype=torch.int8)


def ordered(alpha: Tensor) -> Tensor:
    """|alpha| in descending order: the level set does not depend on signs or on branch order."""
    return alpha.abs().sort(dim=1, descending=True).values
