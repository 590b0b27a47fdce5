"""Branches by output error: which codes and scales keep what a kernel's inputs make of it.

The error of a kernel is (q - t)' H (q - t) with q = sum_j alpha_j e_j. Codes are first rounded in order,
once for each of several starting scales, because which errors can cancel depends on where the levels
are; each kernel keeps its best start. Then single codes and scales move in turn, and no turn raises
the error. Two scales have whole ratios throughout, such as 3 : 2, as they will when the network is
lowered: errors of inputs were made to cancel, and scales rounded afterwards would undo that. Three
scales stay free: a whole ratio costs them more than rounding does later.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

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
from dbq.quantizers.ratios import lowest_terms
from dbq.quantizers.tensors import midpoints

# Where to start: ratios of the scales, and how large they are beside those that fit the weights best.
RATIOS: dict[int, tuple[tuple[int, ...], ...]] = {1: ((1,),), 2: ((3, 2), (3, 1), (5, 2), (2, 1))}
SIZES = (0.75, 0.85, 0.95, 1.05)
ROUNDS = 2  # of rounding once more, from the best scales so far
TURNS = 4  # of single moves and scales, after the best start
SWEEPS = 3
KEEP_OFF = 0.1  # of a cell: how far from its borders a weight stays


def fit_branches(
    rows: Tensor, moments: Tensor, scales: Tensor, codes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Scales K x B, K x D weights that lie in the cells of the chosen codes, and what these stand for.

    `rows` are the targets K x D, `scales` a first guess, `codes` those of the N levels, N x B.
    """
    target = grouped(rows, moments)
    index, alpha = _best_start(target, moments, scales.reshape(*target.shape[:2], -1), codes)
    for _ in range(TURNS):
        moved = descend(
            values(alpha, index, codes), target, moments, to_levels(alpha, codes), SWEEPS
        )
        index = index_of(moved, alpha, codes)
        alpha = refit(alpha, index, target, moments, codes)
    inside = _inside_cells(target, alpha, index, codes)
    quantized = values(alpha, index, codes)
    return alpha.reshape(scales.shape), inside.reshape(rows.shape), quantized.reshape(rows.shape)


def _best_start(
    target: Tensor, moments: Tensor, scales: Tensor, codes: Tensor
) -> tuple[Tensor, Tensor]:
    """Codes rounded in order, and their scales: of all starts the one with the least error."""
    best, best_scales = torch.zeros_like(target, dtype=torch.long), scales
    least = torch.full(target.shape[:2], torch.inf).to(target)

    def attempt(start: Tensor) -> None:
        nonlocal best, best_scales, least
        index = index_of(round_in_order(target, moments, to_levels(start, codes)), start, codes)
        alpha = refit(start, index, target, moments, codes)
        error = output_error(values(alpha, index, codes), target, moments)
        better = error < least
        best = torch.where(better.unsqueeze(2), index, best)
        best_scales = torch.where(better.unsqueeze(2), alpha, best_scales)
        least = torch.where(better, error, least)

    for start in _starts(scales):
        attempt(start)
    for _ in range(ROUNDS):
        attempt(best_scales)
    return best, best_scales


def _starts(scales: Tensor) -> Iterator[Tensor]:
    ratios = RATIOS.get(scales.shape[-1])
    for size in SIZES:
        if ratios is None:
            yield size * scales
            continue
        for ratio in ratios:
            share = torch.tensor(ratio).to(scales) / sum(ratio)
            yield size * scales.sum(-1, keepdim=True) * share


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


def refit(alpha: Tensor, index: Tensor, target: Tensor, moments: Tensor, codes: Tensor) -> Tensor:
    """The scales with the least error for codes that stay, in whole ratios if there are one or two.

    A scale that comes out negative is one whose codes have the wrong sign: its modulus gives the same
    levels, and the codes follow in the next turn. Scales keep their order in `index`.
    """
    equations = _normal_equations(index, target, moments, codes)
    return (
        _whole(alpha, *equations) if alpha.shape[-1] in RATIOS else least_squares(alpha, *equations)
    )


def _whole(alpha: Tensor, gram: Tensor, right: Tensor) -> Tensor:
    """The best scales in whole ratios. A kernel that no positive scale would help keeps its own."""
    factors = _ratios(alpha.shape[-1]).to(alpha)  # N x B
    along = right @ factors.T  # G x K x N
    square = torch.einsum("ni,gkij,nj->gkn", factors, gram, factors)
    usable = (square > 0) & (along > 0)
    gain = torch.where(usable, along.square() / square, 0.0)
    most, place = gain.max(-1, keepdim=True)
    step = along.gather(-1, place) / square.gather(-1, place)
    return torch.where(most > 0, factors[place.squeeze(-1)] * step, alpha)


@cache
def _ratios(branches: int) -> Tensor:
    """The ratios to choose from, N x B: every branch takes part."""
    return torch.tensor(lowest_terms(branches, least=1))


def _normal_equations(
    index: Tensor, target: Tensor, moments: Tensor, codes: Tensor
) -> tuple[Tensor, Tensor]:
    taken = codes[index].movedim(-1, 2)  # G x K x B x D
    weighted = taken @ moments.unsqueeze(1)
    gram = weighted @ taken.transpose(-1, -2)
    return gram, (weighted @ target.unsqueeze(-1)).squeeze(-1)


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
