"""Branches merged into one 8-bit convolution: integer weights and one step per kernel. Pure numpy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dbq.deploy.tensors import Doubles

# Processors without VNNI multiply pairs of u8 and s8 and add the two products in 16 bits, saturating.
# 255 * (64 + 64) = 32640 < 2^15: with weights up to 64, every runtime is exact on every processor.
LARGEST = 64


class Merged(NamedTuple):
    """steps[k] * codes[k] is the weight of kernel k."""

    codes: npt.NDArray[np.int8]  # [K, C / groups, rows, columns]
    steps: npt.NDArray[np.float32]  # [K]


def merge(codes: npt.NDArray[np.int8], scales: Doubles, largest: int = LARGEST) -> Merged:
    """sum_j scales[k, j] * codes[j, k] on integers of at most `largest`.

    Exact for one ternary branch, and for fixed-point codes of at most `largest`. Several branches share
    a step for which all their scales are close to integers. The integers are as large as allowed and the
    steps therefore small, because the bias of an 8-bit convolution is a multiple of the step as well.

    >>> merged = merge(np.array([[[[[1, 0, -1]]]], [[[[1, 1, 0]]]]], np.int8), np.array([[0.3, 0.1]]))
    >>> merged.codes.ravel().tolist(), merged.steps.tolist() == [np.float32(0.1 / 16)]
    ([64, 16, -48], True)
    """
    if len(codes) == 1:
        top = np.maximum(np.abs(codes[0].astype(np.int16)).max(axis=(1, 2, 3)), 1)
        # Codes that are too large are scaled down and rounded; small ones get a whole multiple.
        factors = np.where(top > largest, largest / top, largest // top)[:, None]
        steps = np.abs(scales[:, 0]) / factors[:, 0]
        factors = factors * np.sign(scales)
    else:
        factors, steps = common_step(scales, largest)
    total = np.rint(np.einsum("jkcyx,kj->kcyx", codes.astype(np.float64), factors))
    # A kernel of zeros has no step of its own, but its bias needs a fine one.
    living = steps > 0
    finest = steps[living].min() if living.any() else 1e-6
    return Merged(total.astype(np.int8), np.where(living, steps, finest).astype(np.float32))


def with_exact_bias(merged: Merged, bias: Doubles, resolution: float) -> Merged:
    """Where a step exceeds `resolution`, change it so that `bias` [K] is a multiple of it.

    The bias of an 8-bit convolution is counted in steps. They are coarse where batch norm amplifies an
    almost constant channel, whose value is then mostly bias.

    >>> dead = Merged(np.full((1, 1, 1, 1), 100, np.int8), np.ones(1, np.float32))
    >>> exact = with_exact_bias(dead, np.array([12.5]), resolution=0.1)
    >>> float(12.5 / exact.steps[0]), exact.codes.ravel().tolist()
    (12.0, [96])
    """
    counts = np.floor(np.abs(bias) / merged.steps)
    coarse = (merged.steps > resolution) & (counts >= 1)
    steps = np.where(coarse, np.abs(bias) / np.maximum(counts, 1), merged.steps)
    factors = (merged.steps / steps)[:, None, None, None]  # at most 1: codes only get smaller
    return Merged(np.rint(merged.codes * factors).astype(np.int8), steps.astype(np.float32))


def halved(codes: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Split codes of up to 127 into two of at most 64 each, for an input that is given twice. Exact.

    >>> halved(np.array([[[[100]], [[-7]]]], np.int8)).ravel().tolist()
    [64, -7, 36, 0]
    """
    first = np.clip(codes, -LARGEST, LARGEST)
    return np.concatenate([first, codes - first], axis=1)


def common_step(scales: Doubles, largest: int) -> tuple[Doubles, Doubles]:
    """Integers [K, J] and steps [K] with steps * integers close to `scales`; rows sum to <= largest.

    Tries every step that makes the largest scale an integer and keeps the best, as for the best rational
    approximation p/q: the error falls with the square of `largest`, and that of a fixed step linearly.
    """
    sizes = np.abs(scales)
    top = np.maximum(sizes.max(axis=1), np.finfo(np.float64).tiny)
    best = np.full(len(scales), np.inf)
    integers = np.zeros(scales.shape)
    for count in range(1, largest + 1):
        candidate = np.rint(sizes / top[:, None] * count)  # [K, J]
        error = np.abs(sizes / top[:, None] - candidate / count).max(axis=1)
        better = (error <= best) & (candidate.sum(axis=1) <= largest)
        best = np.where(better, error, best)
        integers = np.where(better[:, None], candidate, integers)
    # Least squares for the step, given the integers.
    steps = (sizes * integers).sum(axis=1) / np.maximum((integers**2).sum(axis=1), 1)
    return np.sign(scales) * integers, steps
