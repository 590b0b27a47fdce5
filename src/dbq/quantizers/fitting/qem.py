"""QEM: the basis v whose levels sum_j v_j b_j lie nearest to given numbers, all kernels at once.

Quantization error minimization (Zhang et al. 2018, LQ-Nets, see lqnet.py) alternates between

    codes       b = those of the level nearest to each number, under v
    basis       v = least squares of the numbers on these codes

Neither half can raise the squared error. The release of the authors starts from v_j = 2^j base,

    base = Phi^-1(3/4) sigma / 2^(B-1)          codes in {-1, 1}^B, numbers ~ N(0, sigma^2)
    base = 2 Phi^-1(3/4) sigma / (2^B - 1)      codes in {0, 1}^B, the same after a ReLU

and so do we, with the sigma of the given numbers (from their mean square) in place of an assumed one.
"""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor

from dbq.quantizers.fitting.least_squares import normal_equations, solve
from dbq.quantizers.tensors import nearest, over_processes, sorted_levels

QUARTILE = 0.6745  # Phi^-1(3/4): half of a normal distribution lies within +- QUARTILE sigma
ROUNDS = 50  # Kernels of normal weights converge within 30 for B <= 3; 8 bits keep improving.


def patterns(branches: int, signed: bool) -> Tensor:
    """2^B x B: the codes of all levels.

    >>> patterns(2, signed=False).tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    codes = product((-1, 1) if signed else (0, 1), repeat=branches)
    return torch.tensor([code[::-1] for code in codes], dtype=torch.int8)


def nearest_codes(rows: Tensor, basis: Tensor, codes: Tensor) -> Tensor:
    """B x K x D: out of `codes`, all patterns, those whose level is nearest to K x D numbers."""
    levels, order = sorted_levels(basis, codes)
    place = nearest(rows, levels)
    of_level = codes.T[:, order].to(rows.dtype)  # B x K x N
    return of_level.gather(2, place.expand(len(of_level), *place.shape))


def qem(rows: Tensor, basis: Tensor, codes: Tensor, shared: bool = False) -> tuple[Tensor, Tensor]:
    """One step: the nearest of `codes` [B, K, D] under `basis` [K, B], and the best basis for them.

    `shared` rows are one part of those that all processes have.

    >>> qem(torch.tensor([[-1.0, 2.0, 3.0]]), torch.tensor([[1.0]]), patterns(1, signed=True))
    (tensor([[[-1.,  1.,  1.]]]), tensor([[2.]]))
    """
    chosen = nearest_codes(rows, basis, codes)
    equations = normal_equations(chosen, rows)
    return chosen, solve(over_processes(equations) if shared else equations, basis)


def fit(rows: Tensor, codes: Tensor, shared: bool = False) -> Tensor:
    """The K x B basis that ROUNDS steps reach from the start above."""
    sums = torch.stack([rows.square().sum(1), torch.full_like(rows[:, 0], rows.shape[1])])
    squares, count = over_processes(sums) if shared else sums
    sigma = (squares / count).sqrt().unsqueeze(1)
    B = codes.shape[1]
    signed = bool(codes.amin() < 0)
    # A ReLU halves the mean square.
    base: Tensor = sigma / 2 ** (B - 1) if signed else 2 * math.sqrt(2) * sigma / (2**B - 1)
    basis = QUARTILE * base * torch.arange(B, device=rows.device, dtype=rows.dtype).exp2()
    for _ in range(ROUNDS):
        basis = qem(rows, basis, codes, shared)[1]
    return basis
