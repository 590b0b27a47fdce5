"""Branches by output error: which codes and scales keep what a kernel's inputs make of it.

Codes and scales are improved in turn, and no turn raises a kernel's error

    (q - t)' H (q - t),    q = sum_j alpha_j e_j

the codes e by rounding in order and single moves, the scales by least squares in the norm of H.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dbq.quantizers.dbq.initial import least_squares
from dbq.quantizers.fitting.output_error import (
    Rounding,
    descend,
    grouped,
    output_error,
    round_in_order,
)
from dbq.quantizers.tensors import midpoints

ROUNDS = 4  # of rounding all codes in order, each from the scales of the round before
TURNS = 3  # of single moves and scales, after the best of them
SWEEPS = 3
KEEP_OFF = 0.1  # of a cell: how far from its borders a weight stays


def fit_branches(
    rows: Tensor, moments: Tensor, scales: Tensor, codes: Tensor
) -> tuple[Tensor, Tensor]:
    """Scales K x B, and K x D weights that lie in the cells of the chosen codes.

    `rows` are the targets K x D, `scales` a first guess, `codes` those of the N levels, N x B.
    """
    target = grouped(rows, moments)
    best_scales = scales.reshape(*target.shape[:2], -1)
    best, least = None, torch.full(target.shape[:2], torch.inf).to(target)
    alpha = best_scales
    for _ in range(ROUNDS):
        index = round_in_order_index(target, moments, alpha, codes)
        alpha = refit(alpha, index, target, moments, codes)
        error = output_error(values(alpha, index, codes), target, moments)
        better = error < least
        if best is None:
            best, best_scales, least = index, alpha, error
            continue
        best = torch.where(better.unsqueeze(2), index, best)
        best_scales = torch.where(better.unsqueeze(2), alpha, best_scales)
        least = torch.where(better, error, least)
        if not better.any():
            break
    assert best is not None
    for _ in range(TURNS):
        moved = descend(values(best_scales, best, codes), target, moments,
                        to_levels(best_scales, codes), SWEEPS)  # fmt: skip
        best = index_of(moved, best_scales, codes)
        best_scales = refit(best_scales, best, target, moments, codes)
    inside = _inside_cells(target, best_scales, best, codes)
    return best_scales.reshape(scales.shape), inside.reshape(rows.shape)


def sorted_values(alpha: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """The levels in ascending order, G x K x N, and the rows of `codes` they stand for."""
    return (alpha @ codes.T).sort(dim=-1, stable=True)


def values(alpha: Tensor, index: Tensor, codes: Tensor) -> Tensor:
    """The level of each weight; `index` are rows of `codes`."""
    return (alpha @ codes.T).gather(2, index)


def to_levels(alpha: Tensor, codes: Tensor) -> Rounding:
    levels, _ = sorted_values(alpha, codes)
    borders = midpoints(levels).contiguous()

    def rounding(column: Tensor) -> Tensor:
        return levels.gather(
            2, torch.searchsorted(borders, column.unsqueeze(2).contiguous())
        ).squeeze(2)

    return rounding


def index_of(quantized: Tensor, alpha: Tensor, codes: Tensor) -> Tensor:
    """Rows of `codes` whose levels are nearest to `quantized`."""
    levels, order = sorted_values(alpha, codes)
    return order.gather(2, torch.searchsorted(midpoints(levels).contiguous(), quantized))


def round_in_order_index(target: Tensor, moments: Tensor, alpha: Tensor, codes: Tensor) -> Tensor:
    rounded = round_in_order(target, moments, to_levels(alpha, codes))
    return index_of(rounded, alpha, codes)


def refit(alpha: Tensor, index: Tensor, target: Tensor, moments: Tensor, codes: Tensor) -> Tensor:
    """Scales by least squares in the norm of the moments, for codes that stay.

    A scale that comes out negative is one whose codes have the wrong sign: its modulus gives the same
    levels, and the codes follow in the next turn. Scales keep their order in `index`.
    """
    taken = codes[index].movedim(-1, 2)  # G x K x B x D
    weighted = taken @ moments.unsqueeze(1)
    gram = weighted @ taken.transpose(-1, -2)
    right = (weighted @ target.unsqueeze(-1)).squeeze(-1)
    return least_squares(alpha, gram, right)


def _inside_cells(target: Tensor, alpha: Tensor, index: Tensor, codes: Tensor) -> Tensor:
    """The target moved into the cell of each weight's code: near the border where it wanted across."""
    levels, order = sorted_values(alpha, codes)
    rank = order.argsort(dim=-1).gather(2, index)
    borders = midpoints(levels)
    ends = levels[..., -1:].abs()
    low = torch.cat([-4 * ends, borders], -1).gather(2, rank)
    high = torch.cat([borders, 4 * ends], -1).gather(2, rank)
    margin = KEEP_OFF * (high - low)
    return target.clamp(low + margin, high - margin)
