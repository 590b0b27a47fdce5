"""Branches as one small integer: scales alpha_1 : alpha_2 of a kernel rounded to whole numbers p : q.

alpha_1 w_1 + alpha_2 w_2 becomes step * (p w_1 + q w_2). The sum in brackets is an integer of a few
bits, so a processor multiplies once for all branches, and hardware needs one scale a kernel instead of
one a branch. Numbers up to 7 (15 for three branches) suffice: weights move by about one percent.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from math import gcd
from typing import NamedTuple

import torch
from torch import Tensor

from dbq.deploy.operations.convolution import LARGEST_FACTORS
from dbq.quantizers.frozen import Branches, Frozen


class Whole(NamedTuple):
    """Branches whose scales are step * factor: factors uint8 [K, J], steps float64 [K]."""

    factors: Tensor
    steps: Tensor

    @property
    def scales(self) -> Tensor:
        return self.factors.double() * self.steps.unsqueeze(1)


def can_be_whole(frozen: Frozen) -> bool:
    """Several branches; positive and negative planes with scales of their own are not branches."""
    return (
        isinstance(frozen, Branches) and frozen.planes == 1 and len(frozen.codes) in LARGEST_FACTORS
    )


def whole_ratios(frozen: Branches) -> Whole:
    """The factors and the step of each kernel that change its weights least, by least squares.

    >>> codes = torch.tensor([[[1, 0, -1]], [[1, 1, 0]]], dtype=torch.int8)
    >>> whole = whole_ratios(Branches(codes, torch.tensor([[3.1, 2.0]])))
    >>> whole.factors.tolist(), round(float(whole.steps[0]), 2)
    ([[3, 2]], 1.02)
    """
    rows = frozen.codes.flatten(2).transpose(0, 1).double()  # K x J x D
    gram = rows @ rows.transpose(1, 2)
    scales = frozen.scales.detach().double().cpu()
    candidates = _candidates(len(frozen.codes))  # N x J
    right = (gram.cpu() @ scales.unsqueeze(2)).squeeze(2) @ candidates.T  # K x N
    square = torch.einsum("ni,kij,nj->kn", candidates, gram.cpu(), candidates)
    used = square > 0
    gain = torch.where(used, right.square() / square.where(used, torch.ones_like(square)), 0.0)
    best = gain.argmax(dim=1, keepdim=True)  # the first of equals: of a kernel of zeros, 1 : 0
    chosen = torch.where(used, right / square.where(used, torch.ones_like(square)), 0.0)
    return Whole(candidates[best.squeeze(1)].to(torch.uint8), chosen.gather(1, best).squeeze(1))


def lowest_terms(branches: int, least: int = 0) -> list[tuple[int, ...]]:
    """All ratios in lowest terms of numbers that lowering can represent, each `least` or more.

    >>> lowest_terms(1, least=1), lowest_terms(2, least=3)
    ([(1,)], [(3, 4), (4, 3)])
    """
    largest = LARGEST_FACTORS.get(branches, 1)
    numbers = product(range(least, largest + 1), repeat=branches)
    return [n for n in numbers if sum(n) <= largest and gcd(*n) == 1]


@cache
def _candidates(branches: int) -> Tensor:
    """All ratios, the smallest numbers first."""
    ordered = sorted(lowest_terms(branches), key=lambda n: (sum(n), -n[0]))
    return torch.tensor(ordered, dtype=torch.float64)
