"""The soft staircase of the branch quantizer, eq. 4 with sigmoids, and its five gradients.

Two implementations of one function: torch calls, for any device and data type and for torch.compile,
and one call of the native kernel for float32 on a CPU (staircase_native.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dbq.quantizers.dbq.staircase_native import NativeStaircase
from dbq.quantizers.native import serves
from dbq.quantizers.tensors import per_kernel, sorted_levels, working_type

DEFAULT_TEMPERATURE = 50.0

# How many sigmoids are computed in one call, at least a whole K x D at a time: 256 KB stay in cache.
GROUP_SIZE = 1 << 16


def soft_staircase(
    weight: Tensor, alpha: Tensor, gamma_1: Tensor, gamma_2: Tensor, t: Tensor,
    temperature: Tensor, level_codes: Tensor,
) -> Tensor:  # fmt: skip
    """Q_T(w) of a weight of K kernels; alpha K x B, gammas K x 1, t K x (N-1), level codes N x B.

    Thresholds, |alpha| and levels are put in order first: see branch.py. A parameter of one row holds
    for all kernels.
    """
    dtype, K = working_type(weight), len(weight)
    w, alpha, gamma_1, gamma_2, t = (
        x.to(dtype).expand(K, -1) for x in (per_kernel(weight), alpha, gamma_1, gamma_2, t)
    )
    staircase = NativeStaircase if serves(w) else TorchStaircase
    T = temperature.to(dtype)
    z: Tensor = staircase.apply(w, alpha, gamma_1, gamma_2, t, T, level_codes)  # type: ignore[no-untyped-call]
    return z.reshape(weight.shape).to(weight.dtype)


def sigmoids(w: Tensor, slope: Tensor, offsets: Tensor) -> Iterator[tuple[Tensor, slice]]:
    """sigmoid(slope * w - offset_i) for m thresholds at a time: m x K x D, and which they are.

    A layer of many weights is taken threshold by threshold, which bounds the memory; one of few
    weights all at once, because there the number of calls is what costs. offsets: (N-1) x K x 1.
    """
    u = w * slope
    m = max(1, GROUP_SIZE // max(1, w.numel()))
    for start in range(0, len(offsets), m):
        group = slice(start, start + m)
        yield (u - offsets[group]).sigmoid_(), group


def add_weighted(total: Tensor, parts: Tensor, weights: Tensor) -> None:
    """total += sum_i weights_i * parts_i, along the first dimension; `parts` is used up."""
    if len(parts) == 1:
        total.addcmul_(parts[0], weights[0])
    else:
        total += parts.mul_(weights).sum(0)


class TorchStaircase(torch.autograd.Function):
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
            w, alpha, gamma_2, temperature.clone(), level_codes, slope, offsets,
            alpha_order, t_order, levels, level_order,
        )  # fmt: skip
        return z

    @staticmethod
    @once_differentiable
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
