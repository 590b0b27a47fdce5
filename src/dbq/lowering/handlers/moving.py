"""Operations that move elements without changing them: torch does them to a tensor of indices."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from dbq.deploy.operations.channels import ZEROS
from dbq.errors import LoweringError
from dbq.lowering.operands import Moved, Operand, Padded, Site
from dbq.lowering.values import Selection, pick
from dbq.model.graph import Op


def move(op: Op, site: Site, *args: Any, **kwargs: Any) -> Any:
    """Remember where torch moves the indices of all elements; a size or another number passes."""
    function: Any = op
    if isinstance(args[0], nn.Module):
        function, *args = args  # type: ignore[assignment]
    operand, *rest = args
    if isinstance(operand, Padded):
        operand = site.resolve(operand)
    if isinstance(operand, Moved):
        base, index = operand.base, torch.from_numpy(operand.index)
    else:
        base, index = operand, torch.arange(math.prod(operand.shape)).view(1, *operand.shape)
    if isinstance(op, str):
        function = getattr(torch.Tensor, op)
    moved = function(index, *rest, **kwargs)
    if isinstance(moved, torch.Tensor):
        return Moved(base, moved.numpy())
    if isinstance(moved, tuple | list) and all(isinstance(m, torch.Tensor) for m in moved):
        return tuple(Moved(base, m.numpy()) for m in moved)
    return moved


def concat(site: Site, operands: Sequence[Operand], dim: int = 0, **kwargs: int) -> Selection:
    if kwargs.get("axis", dim) not in (1, -3):
        raise LoweringError(
            f"{site.name} concatenates along dimension {dim}, expected channels (1)"
        )
    values = [site.resolve(operand) for operand in operands]
    sources = [(i, c) for i, value in enumerate(values) for c in range(value.shape.channels)]
    return pick(values, sources, site.name, site.now())


def pad(
    site: Site, operand: Operand, pads: Sequence[int], mode: str = "constant",
    value: float | None = 0,
) -> Operand:  # fmt: skip
    if mode != "constant" or value or min(pads) < 0:
        raise LoweringError(
            f"{site.name}: padding of mode {mode} by {list(pads)} with {value}; expected zeros"
        )
    left, right, top, bottom, front, back = (*pads, *[0] * (6 - len(pads)))
    base = site.resolve(operand)
    if front or back:
        own = [(0, channel) for channel in range(base.shape.channels)]
        sources = [(ZEROS, 0)] * front + own + [(ZEROS, 0)] * back
        base = pick([base], sources, site.name, site.now())
    return Padded(base, top, left, bottom, right) if any((left, right, top, bottom)) else base


def zero_pad(site: Site, module: nn.ZeroPad2d, operand: Operand) -> Operand:
    return pad(site, operand, module.padding)


def size(site: Site, operand: Operand, dim: int | None = None) -> Any:
    shape = operand.index.shape if isinstance(operand, Moved) else (1, *operand.shape)
    return torch.Size(shape) if dim is None else shape[dim]


def attribute(site: Site, operand: Operand, name: str) -> Any:
    if name != "shape":
        raise LoweringError(f"{site.name}: attribute {name!r} of a tensor; only shape is known")
    return size(site, operand)


MOVING: frozenset[Op] = frozenset(
    {nn.Flatten, nn.ChannelShuffle, F.channel_shuffle, operator.getitem, torch.flatten, torch.reshape,
     torch.permute, torch.transpose, torch.squeeze, torch.unsqueeze, torch.chunk, torch.split,
     "view", "reshape", "flatten", "permute", "transpose", "squeeze", "unsqueeze", "chunk", "split",
     "narrow", "unbind"}
)  # fmt: skip

HANDLERS: dict[Op, Any] = {
    **{op: partial(move, op) for op in MOVING},
    **dict.fromkeys((torch.cat, torch.concat), concat),
    F.pad: pad,
    nn.ZeroPad2d: zero_pad,
    "size": size,
    getattr: attribute,
}
