"""Least squares of weights on a few binary codes, for all kernels of a layer at once.

The scales v that minimise |w - sum_j v_j b_j|^2 solve B equations, (b_i . b_j) v = (b_i . w). They
are solved by elimination: B is at most 3 (8 for activations), and a library call for each kernel
would cost more than the sums. Codes may depend on each other, two of them be equal, say.
Elimination shows it: the squared distance of a code from those before it, its pivot, is then 0.
Such a code keeps the scale it had. The result is still an optimum, only not the sole one.

For codes in {-1, 1} and B <= 3 a pivot is 0 or at least 1: the codes before cut the weights into at
most two groups that they cannot tell apart, and k ones among m entries are 4 k (m - k) / m >= 2
away from all constants; alone, a code is its own length, m >= 1. So 1/2 separates the two cases,
whatever the rounding. Other codes may have smaller pivots; they too keep their scale then. The
error never rises by it: the rest is fitted around them.
"""

from __future__ import annotations

import torch
from torch import Tensor

SMALLEST_PIVOT = 0.5


def normal_equations(codes: Tensor, rows: Tensor) -> Tensor:
    """K x B x (B+1): products b_i . b_j, and b_i . w, of codes [B, K, D] and rows [K, D].

    They are sums over weights: those of parts add up to those of the whole.
    """
    of_kernel = codes.transpose(0, 1)  # K x B x D
    return of_kernel @ torch.cat([of_kernel, rows.unsqueeze(1)], 1).mT


def solve(equations: Tensor, start: Tensor) -> Tensor:
    """The K x B scales; `start` gives those that the equations leave open.

    >>> two_equal_codes = torch.tensor([[[4.0, 4.0, 8.0], [4.0, 4.0, 8.0]]])
    >>> solve(two_equal_codes, torch.zeros(1, 2)), solve(two_equal_codes, torch.ones(1, 2))
    (tensor([[2., 0.]]), tensor([[1., 1.]]))
    """
    B = start.shape[1]
    left = equations.clone()
    left[:, :, B:] -= left[:, :, :B] @ start.unsqueeze(2)  # for the difference from the start
    for j in range(B):
        pivot = left[:, j, j : j + 1]
        row = torch.where(pivot > SMALLEST_PIVOT, left[:, j] / pivot, 0.0)
        left = left - left[:, :, j : j + 1] * row.unsqueeze(1)
        left[:, j] = row
    return start + left[:, :, B]
