"""Choosing codes by what they do to a layer's output.

A kernel w meets inputs x with second moments H = E[x x']. If the output it should give is that of the
target t, the error of a quantized kernel q is E[((q - t) x)^2] = (q - t)' H (q - t): errors of
correlated inputs cancel or add up, so rounding each weight to its nearest level is not the best choice.

`round_in_order` rounds one input after the other and lets the inputs to come make up for the error
(Hassibi and Stork 1993; Frantar et al., GPTQ, 2023); `descend` then moves single codes while that lowers
the error. Both take G groups of a grouped convolution at once: rows are G x K x D, moments G x D x D.

Kernels see the same inputs, and what follows may add up their outputs. `in_turn` lets kernels that are
not quantized yet make up for the errors of those that are, as inputs do within a kernel.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

PARTS = 8  # of a layer's kernels, fitted one part after the other

# Rounds G x K numbers, those of one input in every kernel, to levels of their kernels.
Rounding = Callable[[Tensor], Tensor]


def grouped(rows: Tensor, moments: Tensor) -> Tensor:
    """K x D rows as G x K/G x D, for moments G x D x D."""
    return rows.reshape(len(moments), -1, moments.shape[-1])


def output_error(quantized: Tensor, target: Tensor, moments: Tensor) -> Tensor:
    """(q - t)' H (q - t) of each kernel, G x K.

    >>> output_error(torch.ones(1, 1, 2), torch.zeros(1, 1, 2), torch.eye(2).unsqueeze(0))
    tensor([[2.]])
    """
    difference = quantized - target
    return ((difference @ moments) * difference).sum(-1)


def round_in_order(target: Tensor, moments: Tensor, rounding: Rounding) -> Tensor:
    """`target` rounded input by input, strongest first, each error handed to the inputs to come."""
    order = moments.diagonal(dim1=1, dim2=2).mean(0).argsort(descending=True, stable=True)
    factor = _inverse_factor(moments[:, order][:, :, order])
    if factor is None:
        return torch.stack([rounding(column) for column in target.unbind(-1)], -1)
    rest, rounded = target[..., order].clone(), torch.empty_like(target)
    for j in range(rest.shape[-1]):
        column = rest[..., j]
        chosen = rounding(column)
        rounded[..., order[j]] = chosen
        error = (column - chosen) / factor[:, j, j].unsqueeze(1)
        rest[..., j + 1 :] -= error.unsqueeze(2) * factor[:, None, j, j + 1 :]
    return rounded


def _inverse_factor(moments: Tensor) -> Tensor | None:
    """The upper Cholesky factor of the inverse; None if the moments are singular beyond rounding."""
    lower, info = torch.linalg.cholesky_ex(moments)
    if info.any():
        return None
    upper, info = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
    return None if info.any() else upper


def descend(
    quantized: Tensor, target: Tensor, moments: Tensor, rounding: Rounding, sweeps: int
) -> Tensor:
    """Sweep over the inputs, giving each weight its best level while the others stay.

    No step raises the error of a kernel. Stops early when a sweep changes nothing.
    """
    quantized = quantized.clone()
    pull = (quantized - target) @ moments  # half the gradient
    curvature = moments.diagonal(dim1=1, dim2=2)
    for _ in range(sweeps):
        moved = False
        for j in range(target.shape[-1]):
            now = quantized[..., j]
            slope, bend = pull[..., j], curvature[:, j].unsqueeze(1)
            best = rounding(now - slope / bend)
            step = best - now
            # Between levels at the same distance nothing is gained: stay, and end.
            gain = -step * (2 * slope + step * bend)
            step = torch.where(gain > 1e-9 * bend * now.square(), step, 0.0)
            if step.any():
                moved = True
                quantized[..., j] += step
                pull += step.unsqueeze(2) * moments[:, None, j]
        if not moved:
            break
    return quantized


# Quantizes some kernels, given by their places and their rows of the target: the quantized rows.
FitOfSome = Callable[[Tensor, Tensor], Tensor]


def in_turn(target: Tensor, together: Tensor, fit: FitOfSome, parts: int = PARTS) -> None:
    """Fit the kernels of a K x D target part by part, those whose errors count most first.

    The error of all kernels is tr(G E H E') with E = Q - T and a positive definite G. Once some rows e
    of E are known, the others are best at -G_oo^-1 G_oe e, whatever H is: their targets move by that.
    """
    together = together.to(target)
    rest, left = target.clone(), together.diagonal().argsort(descending=True, stable=True)
    for chosen in left.chunk(parts):
        error = fit(chosen, rest[chosen]) - rest[chosen]
        left = left[len(chosen) :]
        if len(left):
            pull = together[left][:, chosen] @ error
            rest[left] -= torch.linalg.solve(together[left][:, left], pull)
