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
value of Q does not jump, and gradients go on flowing to whichever scale a level is now made of.
Codes therefore are in {-1, 0, 1} and alphas >= 0 whatever the optimizer did, and there is no hook to
forget. Sorting costs K x N numbers a layer, not K x D.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from dbq.errors import PlanError, closest
from dbq.precision import Precision
from dbq.quantizers.branch_init import INITIALISATIONS, Parameters
from dbq.quantizers.weights import WeightQuantizer, check_finite, columns, per_kernel

# The ratio alpha_j / alpha_{j+1} that fixes the order in which levels are listed. Any value in the
# paper's region (1, 2) gives its order for B = 2; 1.5 is where trained networks end up.
USUAL_RATIO = 1.5

DEFAULT_TEMPERATURE = 50.0


class BranchQuantizer(WeightQuantizer):
    """B ternary branches per output kernel; parameters alpha, gamma_1, gamma_2 and t.

    >>> quantizer = BranchQuantizer(Precision("ternary", 2), kernels=4)
    >>> weight = torch.linspace(-1, 1, 36).reshape(4, 9)
    >>> quantizer.initialise(weight)
    >>> hard = quantizer.eval()(weight)
    >>> codes, scales = quantizer.codes(weight), quantizer.scales(weight)
    >>> torch.equal(hard, recompose(codes, scales))
    True
    """

    temperature: Tensor
    level_codes: Tensor

    def __init__(self, precision: Precision, kernels: int, init: str = "alternate") -> None:
        super().__init__(precision)
        branches, levels = precision.size, 3**precision.size
        if init not in INITIALISATIONS:
            raise PlanError(
                f"no initialisation {init!r} of branches; {closest(init, INITIALISATIONS)}"
            )
        self.init = init
        self.alpha = nn.Parameter(torch.empty(kernels, branches))
        self.gamma_1 = nn.Parameter(torch.ones(kernels, 1))
        self.gamma_2 = nn.Parameter(torch.ones(kernels, 1))
        self.t = nn.Parameter(torch.empty(kernels, levels - 1))
        self.register_buffer("temperature", torch.tensor(DEFAULT_TEMPERATURE))
        self.register_buffer("level_codes", level_codes(branches), persistent=False)

    @torch.no_grad()
    def initialise(self, weight: Tensor) -> None:
        """Fit all parameters to `weight`, by the initialisation named when this was made."""
        check_finite(weight)
        fitted = initial_parameters(weight, self.precision.size, self.init)
        for name, value in fitted._asdict().items():
            getattr(self, name).copy_(value)

    def forward(self, weight: Tensor) -> Tensor:
        # Autocast would run the small products below in half precision; levels need all their bits.
        with torch.autocast(weight.device.type, enabled=False):
            w = per_kernel(weight).float() if weight.dtype.itemsize < 4 else per_kernel(weight)
            z = self._soft(w) if self.training else self._hard(w)
        return z.reshape(weight.shape).to(weight.dtype)

    def _soft(self, w: Tensor) -> Tensor:
        levels = self._level_values().sort(dim=1, stable=True).values * self.gamma_2  # K x N
        steps = levels.diff(dim=1)
        slope = self.temperature * self.gamma_1
        offsets = self.temperature * self.t.sort(dim=1).values
        return sum_of_sigmoids(w, slope, offsets, steps, levels[:, :1])

    def _hard(self, w: Tensor) -> Tensor:
        levels = sum_branches(self._level_codes().unbind(0), self.scales())  # K x N
        return levels.gather(1, self._level_index(w))

    def _level_index(self, w: Tensor) -> Tensor:
        """Which of the N levels each weight takes: the number of thresholds below it."""
        u = self.gamma_1 * w
        index = torch.zeros_like(u, dtype=torch.int8)  # N <= 27 fits int8
        for t in columns(self.t.sort(dim=1).values):
            index += u > t
        return index.long()

    def _level_codes(self) -> Tensor:
        """B x K x N codes e_ij of the levels in ascending order, signed so that scales are >= 0."""
        order = self._level_values().argsort(dim=1, stable=True)
        flip = torch.where(self.gamma_2 < 0, -1.0, 1.0).to(self.alpha)
        return self.level_codes.T[:, order] * flip

    def _level_values(self) -> Tensor:
        """K x N values sum_j e_ij alpha_j in the usual order, which is not always ascending.

        The stable sort of them keeps that order where two levels are equal.
        """
        alpha = ordered(self.alpha)
        return sum_branches(self.level_codes.T.unsqueeze(1).to(alpha).unbind(0), alpha)

    @torch.no_grad()
    def codes(self, weight: Tensor) -> Tensor:
        """int8 codes in {-1, 0, 1}, shape [B, *weight.shape]."""
        index = self._level_index(per_kernel(weight))
        codes = self._level_codes()
        taken = codes.gather(2, index.expand(len(codes), *index.shape))
        return taken.to(torch.int8).reshape(-1, *weight.shape)

    def scales(self, weight: Tensor | None = None) -> Tensor:
        """The scale of each branch, |gamma_2 alpha_j|, shape [K, B], largest first."""
        return ordered(self.alpha) * self.gamma_2.abs()


def initial_parameters(weight: Tensor, branches: int, init: str = "alternate") -> Parameters:
    """alpha, gamma_1, gamma_2, t fitted to each kernel of `weight`.

    A kernel of zeros gets gamma_1 = gamma_2 = 1, the default levels, and so quantizes to zeros.
    """
    w = per_kernel(weight).double()
    peak = w.abs().amax(dim=1, keepdim=True)
    gamma_2 = torch.where(peak > 0, peak, 1.0)
    alpha, t = INITIALISATIONS[init](w / gamma_2, level_codes(branches).double())
    return Parameters(alpha, 1 / gamma_2, gamma_2, t)


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


def sum_branches(codes: tuple[Tensor, ...], scales: Tensor) -> Tensor:
    """sum_j scales[:, j] * codes[j], added in the order of j so that equal codes give equal bits."""
    total = codes[0] * scales[:, :1]
    for code, scale in zip(codes[1:], columns(scales)[1:], strict=True):
        total = total + code * scale
    return total


def recompose(codes: Tensor, scales: Tensor) -> Tensor:
    """The weight that `codes` [B, K, ...] and `scales` [K, B] stand for, bit for bit as in eval().

    >>> recompose(torch.tensor([[[1, 0, -1]], [[1, 1, 0]]]), torch.tensor([[3.0, 2.0]]))
    tensor([[ 5.,  2., -3.]])
    """
    flat = codes.reshape(*codes.shape[:2], -1).to(scales)
    return sum_branches(flat.unbind(0), scales).reshape(codes.shape[1:])


def sum_of_sigmoids(
    w: Tensor, slope: Tensor, offsets: Tensor, steps: Tensor, base: Tensor
) -> Tensor:
    """base + sum_i steps_i * sigmoid(slope * w - offsets_i), row by row.

    w is K x D; slope and base K x 1; offsets and steps K x (N-1). Only w and the small tensors are
    kept for the backward pass, which computes the sigmoids again.
    """
    result: Tensor = _SumOfSigmoids.apply(w, slope, offsets, steps, base)  # type: ignore[no-untyped-call]
    return result


class _SumOfSigmoids(torch.autograd.Function):
    """With g_i = sigmoid(slope w - offset_i), h_i = g_i (1 - g_i) and G the incoming gradient:

        dL/dw        = slope G S          S = sum_i steps_i h_i     (eq. 11)
        dL/dslope    = sum_k G w S                                  (eq. 12)
        dL/doffset_i = -steps_i sum_k G h_i                         (eq. 10)
        dL/dstep_i   = sum_k G g_i                                  (eq. 9)
        dL/dbase     = sum_k G                                      (eq. 9, the -1)

    Autograd carries these through slope = T gamma_1, offset = T t, step = gamma_2 sum_j b_ij alpha_j
    (K x N numbers), which gives eqs. 8 to 12 as printed. One pass per threshold over buffers that
    are used again keeps the working set at a few K x D tensors whatever N is.
    """

    @staticmethod
    def forward(
        ctx: Any, w: Tensor, slope: Tensor, offsets: Tensor, steps: Tensor, base: Tensor
    ) -> Tensor:
        ctx.save_for_backward(w, slope, offsets, steps)
        z = base.expand_as(w).clone()
        u, g = w * slope, torch.empty_like(w)
        for offset, step in zip(columns(offsets), columns(steps), strict=True):
            torch.sub(u, offset, out=g).sigmoid_()
            z.addcmul_(g, step)
        return z

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        (grad,) = gradients
        w, slope, offsets, steps = ctx.saved_tensors
        u, g, p = w * slope, torch.empty_like(w), torch.empty_like(w)
        grad_s = torch.zeros_like(w)  # G S
        d_offsets, d_steps = [], []
        for offset, step in zip(columns(offsets), columns(steps), strict=True):
            torch.sub(u, offset, out=g).sigmoid_()
            torch.mul(grad, g, out=p)  # G g_i
            d_steps.append(p.sum(1, keepdim=True))
            p.addcmul_(p, g, value=-1)  # G h_i
            d_offsets.append(p.sum(1, keepdim=True) * -step)
            grad_s.addcmul_(p, step)
        d_slope = (grad_s * w).sum(1, keepdim=True)
        d_base = grad.sum(1, keepdim=True)
        return grad_s * slope, d_slope, torch.cat(d_offsets, 1), torch.cat(d_steps, 1), d_base
