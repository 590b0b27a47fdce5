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

from collections.abc import Iterator
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

# How many sigmoids are computed in one call, at least a whole K x D at a time: 256 KB stay in cache.
GROUP_SIZE = 1 << 16


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
        result: Tensor = _SoftStaircase.apply(  # type: ignore[no-untyped-call]
            w, self.alpha, self.gamma_1, self.gamma_2, self.t, self.temperature, self.level_codes
        )
        return result

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
        _, order = sorted_levels(ordered(self.alpha), self.level_codes)
        codes = self.level_codes.T[:, order].to(self.alpha)
        return torch.where(self.gamma_2 < 0, -codes, codes)

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


def sorted_levels(alpha: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """The levels sum_j e_ij alpha_j of each kernel, ascending, and which rows of `codes` they are.

    The stable sort keeps the usual order where two levels are equal. Both are K x N.
    """
    per_branch = codes.T.to(alpha).unsqueeze(1)  # B x 1 x N
    return sum_branches(per_branch.unbind(0), alpha).sort(dim=1, stable=True)


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


def sigmoids(w: Tensor, slope: Tensor, offsets: Tensor) -> Iterator[tuple[Tensor, slice]]:
    """sigmoid(slope * w - offset_i) for m thresholds at a time: m x K x D, and which they are.

    A layer of many weights is taken threshold by threshold, which bounds the memory; one of few
    weights all at once, because there the number of calls is what costs. offsets: (N-1) x K x 1.
    """
    u = w * slope
    m = max(1, GROUP_SIZE // w.numel())
    for start in range(0, len(offsets), m):
        group = slice(start, start + m)
        yield (u - offsets[group]).sigmoid_(), group


def add_weighted(total: Tensor, parts: Tensor, weights: Tensor) -> None:
    """total += sum_i weights_i * parts_i, along the first dimension; `parts` is used up."""
    if len(parts) == 1:
        total.addcmul_(parts[0], weights[0])
    else:
        total += parts.mul_(weights).sum(0)


class _SoftStaircase(torch.autograd.Function):
    """z = Q_T(w), eq. 4 with sigmoids, and the five gradients of the paper.

    With g_ki = sigmoid(T (gamma_1 w_k - t_i)), h = g (1 - g), c_i = sum_j b_ij alpha_j, G = dL/dz:

        dL/dgamma_2 = sum_k G_k z_k / gamma_2                          (eq. 8)
        dL/dalpha_j = gamma_2 [sum_i b_ij sum_k G_k g_ki - sum_k G_k]  (eq. 9)
        dL/dt_i     = -gamma_2 T c_i sum_k G_k h_ki                    (eq. 10)
        dL/dw_k     = gamma_1 gamma_2 T G_k sum_i c_i h_ki             (eq. 11)
        dL/dgamma_1 = gamma_2 T sum_k G_k w_k sum_i c_i h_ki           (eq. 12)

    Only w and the parameters are kept for the backward pass, which computes the sigmoids again, so
    that no D x (N-1) tensor outlives either pass.
    """

    @staticmethod
    def forward(
        ctx: Any, w: Tensor, alpha: Tensor, gamma_1: Tensor, gamma_2: Tensor, t: Tensor,
        temperature: Tensor, level_codes: Tensor,
    ) -> Tensor:  # fmt: skip
        alphas, alpha_order = alpha.abs().sort(dim=1, descending=True)
        ts, t_order = t.sort(dim=1)
        levels, level_order = sorted_levels(alphas, level_codes)  # K x N
        slope = temperature * gamma_1
        offsets, weights = as_first(temperature * ts), as_first(gamma_2 * levels.diff(dim=1))

        z = (gamma_2 * levels[:, :1]).expand_as(w).clone()
        for g, group in sigmoids(w, slope, offsets):
            add_weighted(z, g, weights[group])
        ctx.save_for_backward(
            w, alpha, gamma_2, temperature, level_codes, slope, offsets,
            alpha_order, t_order, levels, level_order,
        )  # fmt: skip
        return z

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (G,) = gradients
        (
            w, alpha, gamma_2, temperature, level_codes, slope, offsets,
            alpha_order, t_order, levels, level_order,
        ) = ctx.saved_tensors  # fmt: skip
        steps = levels.diff(dim=1)  # K x (N-1), the c_i
        c = as_first(steps)
        sums_g, sums_h = [G.sum(1).unsqueeze(0)], []  # sum_k G, sum_k G g_i; sum_k G h_i
        q = torch.zeros_like(w)  # G_k sum_i c_i h_ki
        for g, group in sigmoids(w, slope, offsets):
            p = G * g
            sums_g.append(p.sum(2))
            p.addcmul_(p, g, value=-1)
            sums_h.append(p.sum(2))
            add_weighted(q, p, c[group])
        sum_g, sum_h = torch.cat(sums_g).T, torch.cat(sums_h).T  # K x N, K x (N-1)

        # z = gamma_2 (v_1 + sum_i c_i g_i): what v_1 and the c_i, e_1j and the b_ij, are made of
        # weigh the same sums.
        e = level_codes.T[:, level_order].to(alpha)  # B x K x N
        increments = torch.cat([e[:, :, :1], e.diff(dim=2)], 2)
        d_alphas = gamma_2 * (increments * sum_g).sum(2).T  # K x B, largest alpha first
        d_gamma_2 = (torch.cat([levels[:, :1], steps], 1) * sum_g).sum(1, keepdim=True)
        d_ts = steps * sum_h * (-temperature * gamma_2)
        d_gamma_1 = (q * w).sum(1, keepdim=True) * (temperature * gamma_2)
        d_w = q.mul_(slope * gamma_2)
        d_alpha = torch.empty_like(alpha).scatter_(1, alpha_order, d_alphas) * alpha.sign()
        d_t = torch.empty_like(d_ts).scatter_(1, t_order, d_ts)
        return d_w, d_alpha, d_gamma_1, d_gamma_2, d_t, None, None


def as_first(x: Tensor) -> Tensor:
    """K x n -> n x K x 1, to be broadcast against K x D."""
    return x.T.unsqueeze(2)
