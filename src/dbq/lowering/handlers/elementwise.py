"""Operations on elements by themselves: activations, additions, and those that do nothing."""

from __future__ import annotations

import math
import operator
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from dbq.deploy.operations.add import Add
from dbq.errors import LoweringError
from dbq.lowering.handlers.weighted import scale_and_shift
from dbq.lowering.operands import Site
from dbq.lowering.values import Affine, Clamp, Sums, Value
from dbq.model.graph import RELU, RELU6, Op


def clamp(limits: Clamp, site: Site, *args: Any, **_: Any) -> Value:
    return site.resolve(_operand(args)).clamped(limits, site.name)


def unchanged(site: Site, *args: Any, **_: Any) -> Any:
    """Dropout and the like, which do nothing in eval()."""
    return _operand(args)


def _operand(args: tuple[Any, ...]) -> Any:
    """What a module, which comes first, or a function is applied to."""
    return args[1] if isinstance(args[0], nn.Module) else args[0]


def add(site: Site, a: Any, b: Any, **kwargs: Any) -> Affine:
    if kwargs:
        raise LoweringError(f"{site.name}: addition with {', '.join(kwargs)} cannot be lowered")
    for number, operand in ((a, b), (b, a)):
        if isinstance(number, int | float):
            value = site.resolve(operand)
            ones = np.ones(value.shape.channels)
            return scale_and_shift(site, value, ones, ones * number, math.inf)
    reads = [site.wide(a), site.wide(b)]
    shape, other = (reading.value.shape for reading in reads)
    if shape != other:
        raise LoweringError(
            f"{site.name} adds {list(shape)} and {list(other)}; "
            "expected two layers' outputs of one shape"
        )
    ones = np.ones((shape.channels, 2))
    sums = Sums(site.name, site.now(), shape, reads, Add, factors=((0,), (1,)))
    return Affine(sums, ones, np.zeros(shape.channels), sum(r.value.bound for r in reads))


HANDLERS: dict[Op, Any] = {
    **dict.fromkeys(RELU, partial(clamp, Clamp(low=0.0))),
    **dict.fromkeys(RELU6, partial(clamp, Clamp(0.0, 6.0))),
    **dict.fromkeys((nn.Identity, nn.Dropout, nn.Dropout2d, F.dropout, F.dropout2d, torch.clone,
                     "contiguous", "clone", "detach"), unchanged),
    **dict.fromkeys((operator.add, operator.iadd, torch.add, "add", "add_"), add),
}  # fmt: skip
