"""Optimal k-means of numbers on a line, for many rows at once.

Sorted, the optimal clusters are intervals, so dynamic programming over their right ends finds the
global optimum. The best left end moves right with the right end, which lets each layer of the
programme be solved by divide and conquer: n log n candidates instead of n^2.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROWS_AT_ONCE = 1 << 18  # numbers solved together; bounds the memory of the candidate lists


def kmeans1d(rows: Tensor, k: int) -> Tensor:
    """The k optimal centroids of every row (K x D -> K x k), ascending.

    A row with fewer than k distinct values repeats some of them.

    >>> kmeans1d(torch.tensor([[0.0, 9.0, 1.0, 10.0, 30.0]]).double(), 3)
    tensor([[ 0.5000,  9.5000, 30.0000]], dtype=torch.float64)
    """
    step = max(1, ROWS_AT_ONCE // rows.shape[1])
    ordered = rows.double().sort(dim=1).values
    return torch.cat([_solve(part, k) for part in torch.split(ordered, step)]).to(rows.dtype)


def _solve(x: Tensor, k: int) -> Tensor:
    count, d = x.shape
    # Centred sums lose less to cancellation; the clusters do not depend on the centre.
    centre = x.mean(dim=1, keepdim=True)
    zero = x.new_zeros(count, 1)
    s1 = torch.cat([zero, (x - centre).cumsum(1)], dim=1)
    s2 = torch.cat([zero, (x - centre).square().cumsum(1)], dim=1)

    best = s2 - s1 * s1 / torch.arange(d + 1).clamp(min=1)  # one cluster for x[:right]
    lefts = []
    for _ in range(k - 1):
        best, left = _add_cluster(best, s1, s2)
        lefts.append(left)

    borders = [torch.full((count, 1), d)]
    for left in reversed(lefts):
        borders.append(left.gather(1, borders[-1]))
    border = torch.cat([torch.zeros(count, 1, dtype=torch.long), *borders[::-1]], dim=1)
    size = border.diff(dim=1)
    mean = s1.gather(1, border).diff(dim=1) / size.clamp(min=1) + centre
    # An empty cluster (fewer distinct values than k) stands where its right neighbour begins.
    beginning = x.gather(1, border[:, :-1].clamp(max=d - 1))
    return torch.where(size > 0, mean, beginning)


def _add_cluster(best: Tensor, s1: Tensor, s2: Tensor) -> tuple[Tensor, Tensor]:
    """One more cluster: new_best[r] = min over l <= r of best[l] + spread(l, r), and the l taken.

    spread(l, r) is the sum of squared distances of x[l:r] to their mean. Right ends are solved
    breadth first: those at odd multiples of a stride, between neighbours solved at larger strides
    whose left ends bound theirs.
    """
    count, n = best.shape
    new_best, new_left = torch.zeros_like(best), torch.zeros(count, n, dtype=torch.long)
    stride = 1 << (n.bit_length() - 1)
    while stride:
        place = torch.arange(stride, n + 1, 2 * stride)  # 1-based, so that 0 and n+1 are outside
        right = place - 1
        low = torch.where(place > stride, new_left[:, (right - stride).clamp(min=0)], 0)
        neighbour = new_left[:, (right + stride).clamp(max=n - 1)]
        high = torch.where(place + stride <= n, neighbour, right).minimum(right)
        value, left = _best_left(best, s1, s2, low, high, right)
        new_best[:, right], new_left[:, right] = value, left
        stride //= 2
    return new_best, new_left


def _best_left(
    best: Tensor, s1: Tensor, s2: Tensor, low: Tensor, high: Tensor, right: Tensor
) -> tuple[Tensor, Tensor]:
    """For each (row, right end): the minimum over low <= left <= high, and its leftmost place."""
    count, n = best.shape
    length = (high - low + 1).flatten()
    owner = torch.repeat_interleave(torch.arange(len(length)), length)
    before = length.cumsum(0) - length
    left = torch.arange(len(owner)) - (before - low.flatten())[owner]
    row_start = (torch.arange(count) * n).unsqueeze(1)
    at_left = (row_start.expand_as(low).flatten())[owner] + left
    at_right = (row_start + right).flatten()
    total = s1.take(at_right)[owner] - s1.take(at_left)
    squares = s2.take(at_right)[owner] - s2.take(at_left)
    size = right.expand_as(low).flatten()[owner] - left
    value = best.take(at_left) + (squares - total * total / size.clamp(min=1)).clamp(min=0)
    least = value.new_full(length.shape, torch.inf).scatter_reduce(0, owner, value, "amin")
    winner = torch.where(value == least[owner], left, n)
    where = torch.full_like(length, n).scatter_reduce(0, owner, winner, "amin")
    return least.view_as(low), where.view_as(low)
