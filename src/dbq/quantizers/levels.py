"""Weights that are entries of a table of levels: neither branches nor fixed point."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from dbq.errors import LoweringError
from dbq.quantizers.contract import WeightQuantizer, per_kernel


class LevelQuantizer(WeightQuantizer):
    """Codes say which level a weight takes: eval() is exactly `look_up(codes, levels)`.

    The levels are no multiples of a step, so there are no scales and the engine, which adds and
    subtracts, has no kernel for them; costs count the bits of the code.
    """

    @abstractmethod
    def levels(self, weight: Tensor) -> Tensor:
        """[kernels, N] levels in ascending order, N <= 2^bits."""

    def codes(self, weight: Tensor) -> Tensor:
        """The nearest level of each weight, int8 [1, *weight.shape]; 128 below its place."""
        return nearest(per_kernel(weight.detach()), self.levels(weight)).reshape(1, *weight.shape)

    def scales(self, weight: Tensor) -> Tensor:
        raise LoweringError(
            f"{type(self).__name__} makes weights that are levels of a table, not sums of scaled "
            "codes: they can be trained, tested and counted, not deployed"
        )


OFFSET = 128  # of 256 levels, so that their places fit int8


def nearest(rows: Tensor, levels: Tensor) -> Tensor:
    """Codes [K, D] of the level nearest to each of `rows` [K, D]; `levels` is [K, N], ascending.

    >>> nearest(torch.tensor([[0.1, 0.9]]), torch.tensor([[0.0, 1.0]])).int() + OFFSET
    tensor([[0, 1]], dtype=torch.int32)
    """
    middles = ((levels[:, 1:] + levels[:, :-1]) / 2).contiguous()
    places = torch.searchsorted(middles, rows.contiguous())
    return (places - OFFSET).to(torch.int8)


def look_up(codes: Tensor, levels: Tensor) -> Tensor:
    """The weight that `codes` [1, K, ...] of `levels` [K, N] stand for.

    >>> look_up(torch.tensor([[[1, 0]]]) - OFFSET, torch.tensor([[3.0, 5.0]]))
    tensor([[5., 3.]])
    """
    places = per_kernel(codes[0]).long() + OFFSET
    return levels.gather(1, places).reshape(codes.shape[1:])
