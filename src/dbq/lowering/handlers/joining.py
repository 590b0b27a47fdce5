"""Operations without weights that join or change values: additions, concatenations, padding, ReLU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import nn

from dbq.deploy.operations.add import Add
from dbq.deploy.operations.channels import ZEROS
from dbq.errors import LoweringError
from dbq.lowering.handlers.moving import clamped, concatenate, pick
from dbq.lowering.handlers.weighted import scale_and_shift
from dbq.lowering.site import Site
from dbq.lowering.values import Affine, Anything, Image, Padded, Sums, Value, bound_of


def rectify(site: Site, *things: Any, **_: Any) -> Value:
    """ReLU, as a module (which comes first) or a function."""
    return clamped(site.settle(_tensor(things)), 0.0, math.inf, site.name)


def rectify6(site: Site, *things: Any, **_: Any) -> Value:
    return clamped(site.settle(_tensor(things)), 0.0, 6.0, site.name)


def unchanged(site: Site, *things: Any, **_: Any) -> Any:
    """Dropout and the like: nothing in eval()."""
    return _tensor(things)


def _tensor(things: Sequence[Any]) -> Any:
    return things[1] if isinstance(things[0], nn.Module) else things[0]


def add(site: Site, a: Any, b: Any, **kwargs: Any) -> Affine:
    if kwargs:
        raise LoweringError(f"{site.name}: addition with {', '.join(kwargs)} cannot be lowered")
    for number, thing in ((a, b), (b, a)):
        if isinstance(number, int | float):
            value = site.settle(thing)
            ones = np.ones(value.shape.channels)
            return scale_and_shift(site, value, ones, ones * number, math.inf)
    reads = [site.wide(a), site.wide(b)]
    shape, other = (reading.value.shape for reading in reads)
    if shape != other or any(isinstance(reading.value, Image) for reading in reads):
        raise LoweringError(
            f"{site.name} adds {list(shape)} and {list(other)}; "
            "expected two layers' outputs of one shape"
        )
    name, ones = site.name, np.ones((shape.channels, 2))
    sums = Sums(name, site.now(), shape, reads, lambda results, r: Add(name, results, r[0], r[1]))
    return Affine(sums, ones, np.zeros(shape.channels), sum(bound_of(r.value) for r in reads))


def concat(site: Site, things: Sequence[Anything], dim: int = 0, **kwargs: int) -> Value:
    if kwargs.get("axis", dim) not in (1, -3):
        raise LoweringError(
            f"{site.name} concatenates along dimension {dim}, expected channels (1)"
        )
    return concatenate([site.settle(thing) for thing in things], site.name, site.now())


def pad(
    site: Site,
    thing: Anything,
    pads: Sequence[int],
    mode: str = "constant",
    value: float | None = 0,
) -> Any:
    if mode != "constant" or value or min(pads) < 0:
        raise LoweringError(
            f"{site.name}: padding of mode {mode} by {list(pads)} with {value}; expected zeros"
        )
    left, right, top, bottom, front, back = (*pads, *[0] * (6 - len(pads)))
    base = site.settle(thing)
    if front or back:
        zeros = (ZEROS, 0)
        own = [(0, channel) for channel in range(base.shape.channels)]
        base = pick([base], [zeros] * front + own + [zeros] * back, site.name, site.now())
    return Padded(base, top, left, bottom, right) if any((left, right, top, bottom)) else base


def zero_pad(site: Site, module: nn.ZeroPad2d, thing: Anything) -> Any:
    return pad(site, thing, module.padding)
