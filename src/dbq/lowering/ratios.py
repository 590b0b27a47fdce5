"""Branches as one small integer: scales alpha_1 : alpha_2 of a kernel rounded to whole numbers p : q.

alpha_1 w_1 + alpha_2 w_2 becomes step * (p w_1 + q w_2). The sum in brackets is an integer of a few
bits, so a processor multiplies once for all branches, and hardware needs one scale a kernel instead of
one a branch. Numbers up to 7 (15 for three branches) suffice: weights move by about one percent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import product
from math import gcd
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dbq.deploy.operations.convolution import LARGEST_FACTORS
from dbq.quantizers.contract import WeightQuantizer
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


@cache
def _candidates(branches: int) -> Tensor:
    """All ratios in lowest terms, the smallest numbers first."""
    largest = LARGEST_FACTORS[branches]
    numbers = product(range(largest + 1), repeat=branches)
    lowest = (n for n in numbers if sum(n) <= largest and gcd(*n) == 1)
    return torch.tensor(sorted(lowest, key=lambda n: (sum(n), -n[0])), dtype=torch.float64)


@contextmanager
def weights_with_whole_ratios(model: nn.Module, enabled: bool = True) -> Iterator[list[Tensor]]:
    """The model with rounded scales in eval(); yields how far the weights of each layer moved.

    That is a share of the norm of each kernel, [K], and known once the layer ran.
    """
    moved: dict[nn.Module, Tensor] = {}
    shares: list[Tensor] = []

    def replace(quantizer: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        assert isinstance(quantizer, WeightQuantizer)
        frozen = quantizer.freeze(args[0])
        if not can_be_whole(frozen):
            return None
        assert isinstance(frozen, Branches)
        scales = whole_ratios(frozen).scales.to(frozen.scales)
        rounded = Branches(frozen.codes, scales).weight.to(output)
        if quantizer not in moved:
            before, after = output.flatten(1).double(), rounded.flatten(1).double()
            norm = before.norm(dim=1).clamp_min(1e-30)
            moved[quantizer] = (after - before).norm(dim=1) / norm
            shares.append(moved[quantizer].cpu())
        return rounded

    with ExitStack() as hooks:
        for module in model.modules() if enabled else ():
            if isinstance(module, WeightQuantizer) and module.precision.is_branched:
                hooks.callback(module.register_forward_hook(replace).remove)
        yield shares
