"""Initial scales and thresholds of the branch quantizer, for all kernels of a layer at once.

Both methods take u (K x D, each kernel normalised to a peak of 1) and the N x B codes of the levels,
and return alpha (K x B) and thresholds t (K x (N-1)).

`kmeans` is the paper's: optimal 1-D k-means, thresholds halfway between centroids, one least-squares
fit of alpha. Its weakness is that centroids are free but levels are not (9 levels, 2 scales), so the
thresholds do not suit the levels that alpha can make.

`alternate`, the default, fits what will be used: thresholds halfway between the levels that alpha
makes, least squares for alpha given the codes, and again, from several starts. It is Lloyd's
algorithm under the constraint v = E alpha; the error never rises.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dbq.quantizers.fitting.kmeans1d import kmeans1d
from dbq.quantizers.tensors import midpoints, nearest, per_kernel

SMALLEST_PEAK = 1e-30  # a kernel whose largest |w| is below this counts as zeros

# Starting points of `alternate`: where the largest level lies (peak = 1) and the ratio of scales.
TOPS = (0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95)
RATIOS = (1.2, 1.35, 1.5, 1.75, 2.2)
ROUNDS_PER_START, FINAL_ROUNDS = 8, 40


class Parameters(NamedTuple):
    """P_Q of the paper, for K kernels: K x B, K x 1, K x 1, K x (N-1)."""

    alpha: Tensor
    gamma_1: Tensor
    gamma_2: Tensor
    t: Tensor


def initial_parameters(weight: Tensor, codes: Tensor, init: str) -> Parameters:
    """alpha, gamma_1, gamma_2, t fitted to each kernel of `weight`; `codes` are those of the levels.

    A kernel of zeros (or of numbers so small that T / peak overflows float32) gets gamma_1 = gamma_2
    = 1, arbitrary levels, and quantizes to zeros.
    """
    w = per_kernel(weight.detach()).cpu().double()  # not every device has doubles
    peak = w.abs().amax(dim=1, keepdim=True)
    gamma_2 = torch.where(peak >= SMALLEST_PEAK, peak, 1.0)
    alpha, t = INITIALISATIONS[init](w / gamma_2, codes.cpu().double())
    return Parameters(alpha, 1 / gamma_2, gamma_2, t)


def kmeans_initial(u: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """The paper's three steps, after normalisation: k-means, midpoints, one least squares.

    A kernel with fewer distinct values than levels has no N clusters; it is fitted by `alternate`.
    """
    few = 1 + (u.sort(dim=1).values.diff(dim=1) > 0).sum(1) < len(codes)
    levels, branches = codes.shape
    alpha, t = u.new_empty(len(u), branches), u.new_empty(len(u), levels - 1)
    for rows, fit in ((few, alternating_initial), (~few, _from_clusters)):
        if rows.any():
            alpha[rows], t[rows] = fit(u[rows], codes)
    return alpha, t


def _from_clusters(u: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    centroids = kmeans1d(u, len(codes))
    taken = codes[nearest(u, centroids)]  # K x D x B; no cluster is empty: independent columns
    return torch.linalg.lstsq(taken, u.unsqueeze(2)).solution.squeeze(2), midpoints(centroids)


def alternating_initial(u: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Alternate levels and least squares from several starts; each kernel keeps its best.

    The level set is symmetric, so |u| and the non-negative levels say it all. With |u| sorted and
    its prefix sums known, a round needs only the cell borders, not the D weights.
    """
    magnitudes = u.abs().sort(dim=1).values
    sums = F.pad(magnitudes.cumsum(1), (1, 0))  # K x (D+1)
    alpha = _starts(magnitudes, codes.shape[1])  # K x S x B
    for _ in range(ROUNDS_PER_START):
        alpha, error = improve(alpha, magnitudes, sums, codes)
    alpha = alpha[torch.arange(len(u)), error.argmin(dim=1)].unsqueeze(1)  # K x 1 x B
    for _ in range(FINAL_ROUNDS):
        alpha, _ = improve(alpha, magnitudes, sums, codes)
    alpha = alpha.squeeze(1)
    return alpha, midpoints((alpha @ codes.T).sort(dim=1).values)


def _starts(magnitudes: Tensor, branches: int) -> Tensor:
    """K x S x B first guesses. One branch has a known optimum: the mean of the m largest weights
    for the m that maximises sum^2 / m."""
    if branches == 1:
        largest = magnitudes.flip(1).cumsum(1)
        count = torch.arange(1, magnitudes.shape[1] + 1).to(magnitudes)
        best = (largest.square() / count).argmax(dim=1, keepdim=True)
        return (largest.gather(1, best) / (best + 1)).unsqueeze(2)
    guesses = []
    for top, ratio in product(TOPS, RATIOS):
        scales = [ratio**-j for j in range(branches)]
        guesses.append([top * scale / sum(scales) for scale in scales])
    return torch.tensor(guesses).to(magnitudes).expand(len(magnitudes), -1, -1)


def improve(
    alpha: Tensor, magnitudes: Tensor, sums: Tensor, codes: Tensor
) -> tuple[Tensor, Tensor]:
    """One round for every kernel and start: (better alpha, K x S errors up to a constant)."""
    alpha = alpha.abs().sort(dim=-1, descending=True).values
    values = alpha @ codes.T  # K x S x N, symmetric about 0
    middle = codes.shape[0] // 2
    levels, order = values.sort(dim=-1, stable=True)
    levels, cell_codes = levels[..., middle:], codes[order[..., middle:]]  # K x S x M (x B)

    borders = midpoints(levels)  # K x S x (M-1)
    place = torch.searchsorted(magnitudes, borders.flatten(1).contiguous()).view(borders.shape)
    place = F.pad(F.pad(place, (1, 0)), (0, 1), value=magnitudes.shape[1])
    counts = place.diff(dim=-1).to(levels)  # weights in each cell
    totals = sums.gather(1, place.flatten(1)).view(place.shape).diff(dim=-1)  # and their sum

    gram = torch.einsum("ksm,ksmi,ksmj->ksij", counts, cell_codes, cell_codes)
    right = torch.einsum("ksm,ksmi->ksi", totals, cell_codes)
    alpha = least_squares(alpha, gram, right)
    error = torch.einsum("ksi,ksij,ksj->ks", alpha, gram, alpha) - 2 * (alpha * right).sum(-1)
    return alpha, error


def least_squares(alpha: Tensor, gram: Tensor, right: Tensor, sweeps: int = 3) -> Tensor:
    """Minimise a'Ga - 2a'r by coordinate descent from `alpha`.

    It never raises the error and needs no inverse, so kernels with too few distinct values to
    determine every scale (singular G) keep the undetermined ones as they are.
    """
    columns = list(alpha.unbind(-1))
    for _ in range(sweeps):
        for j in range(len(columns)):
            others = sum(gram[..., j, i] * c for i, c in enumerate(columns) if i != j)
            diagonal = gram[..., j, j]
            used = diagonal > 0
            fitted = (right[..., j] - others) / torch.where(used, diagonal, 1.0)
            columns[j] = torch.where(used, fitted, columns[j])
    return torch.stack(columns, dim=-1)


INITIALISATIONS: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "alternate": alternating_initial,
    "kmeans": kmeans_initial,
}
