"""Which codes a tensor can hold, and which sums an operation can make: what exactness is proven for."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from dbq.deploy.csource.exact.lines import Longs
from dbq.deploy.operations.average_pool import AveragePool, MeanPool
from dbq.deploy.operations.convolution import Convolution
from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.operations.operation import Summing
from dbq.deploy.operations.requantize import Requantize
from dbq.deploy.program import Program
from dbq.deploy.tensors import DTYPES, Tensor


class Ranges(dict[int, tuple[int, int]]):
    """The smallest and the largest code of each tensor that is not f32; 0 is always among them."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        for op in program.operations:
            if isinstance(op, Lookup):
                codes = op.table.view(DTYPES[program.tensors[op.tensor].type])
                self[op.tensor] = self._with_zero(int(codes.min()), int(codes.max()))
            elif isinstance(op, Summing):
                for result in op.results:
                    self[result.tensor] = self._with_zero(
                        int(np.float32(result.low)), int(np.float32(result.high))
                    )
            else:
                lows, highs = zip(*(self[i] for i in op.reads), strict=True)
                self[op.writes[0]] = min(lows), max(highs)

    @staticmethod
    def _with_zero(low: int, high: int) -> tuple[int, int]:
        return min(low, 0), max(high, 0)  # padding


def sum_ranges(
    op: Summing, tensors: Sequence[Tensor], ranges: Ranges
) -> tuple[Longs, Longs] | None:
    """The smallest and the largest sum of each channel, if there is one sum and it is an integer."""
    kernels = tensors[op.writes[0]].shape.channels
    low, high = ranges[op.reads[0]]
    if isinstance(op, Convolution) and op.sum_count == 1:
        weights = op.integers[0].reshape(kernels, -1).astype(np.int64)
        up, down = np.maximum(weights, 0).sum(axis=1), np.maximum(-weights, 0).sum(axis=1)
        return low * up - high * down, high * up - low * down
    if isinstance(op, MeanPool):
        return None
    if isinstance(op, AveragePool | Requantize):
        many = prod(op.window.kernel) if isinstance(op, AveragePool) else 1
        each = np.ones(kernels, np.int64)
        return low * many * each, high * many * each
    return None
