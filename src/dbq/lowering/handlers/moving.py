"""Functions that move elements without changing them: torch does them to a tensor of indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from dbq.deploy.operations.bilinear import Bilinear
from dbq.deploy.operations.channels import ZEROS
from dbq.deploy.tensors import Shape
from dbq.lowering.operands import Moved, Operand, Padded, Quantized, Site
from dbq.lowering.values import Affine, Selection, Sums, Value, pick
from dbq.model.reading.recording import Constant
from dbq.model.reading.sources import MOVING


def move(site: Site, operand: Operand, *args: Any, **kwargs: Any) -> Any:
    """Remember where torch moves the indices of all elements."""
    if isinstance(operand, Quantized):
        moved = move(site, operand.operand, *args, **kwargs)
        return Quantized(moved, operand.grid) if isinstance(moved, Moved) else moved
    base, index = _indices(site, operand)
    # Nearest neighbours are found for floats only; a double holds every index.
    moved = site.call.function(index, *(_shaped_like(site, arg) for arg in args), **kwargs)
    if isinstance(moved, torch.Tensor):
        return Moved(base, moved.long().numpy())
    return tuple(Moved(base, part.long().numpy()) for part in moved)


def _indices(site: Site, operand: Value | Padded | Moved) -> tuple[Value, torch.Tensor]:
    """The base of an operand, and for each of its elements the place in it."""
    if isinstance(operand, Moved):
        # Contiguous, because torch had a view of it where it was viewed.
        return operand.base, torch.from_numpy(operand.index).double().contiguous()
    base = site.resolve(operand)
    shape = (site.images, *base.shape)
    return base, torch.arange(math.prod(shape), dtype=torch.float64).view(shape)


def _shaped_like(site: Site, argument: Any) -> Any:
    """An argument of a function; another tensor, as of view_as, stands for its shape."""
    if isinstance(argument, Moved):
        return torch.empty(argument.index.shape)
    if isinstance(argument, Operand):
        return torch.empty(site.images, *site.resolve(argument).shape)
    return argument


def concat(
    site: Site, operands: Sequence[Operand | Constant], dim: int = 0, **kwargs: int
) -> Selection:
    """Channels side by side; constants among them must be zeros."""
    dim = kwargs.get("axis", dim)
    values: list[Value] = []
    sources: list[tuple[int, int]] = []
    for operand in operands:
        if isinstance(operand, Constant) and not operand.tensor.any():
            dimensions, own = operand.tensor.ndim, [(ZEROS, 0)] * operand.tensor.shape[1]
        else:
            dimensions = operand.index.ndim if isinstance(operand, Moved) else 4
            values.append(site.resolve(operand))  # type: ignore[arg-type]
            own = [(len(values) - 1, channel) for channel in range(values[-1].shape.channels)]
        if dim % dimensions != 1:
            site.refuse(f"concatenates along dimension {dim}, expected channels (1)")
        sources += own
    return pick(values, sources, site.name, site.now())


def pad(
    site: Site, operand: Operand, pad: Sequence[int], mode: str = "constant",
    value: float | None = None,
) -> Operand:  # fmt: skip
    if isinstance(operand, Quantized):
        return Quantized(_padded(site, operand.operand, pad, mode, value), operand.grid)
    return _padded(site, operand, pad, mode, value)


def _padded(
    site: Site, operand: Value | Padded | Moved, pads: Sequence[int], mode: str,
    value: float | None,
) -> Value | Padded | Moved:  # fmt: skip
    left, right, top, bottom, front, back = (*pads, *[0] * (6 - len(pads)))
    if mode != "constant" or max(pads) <= 0:  # mirrored, repeated, or cropped: nothing new comes in
        base, index = _indices(site, operand)
        moved = F.pad(index, list(pads), mode=mode)
        return Moved(base, moved.long().numpy())
    if value or min(pads) < 0:
        site.refuse(f"pads by {list(pads)} with {value}; expected zeros")
    base = site.resolve(operand)
    if front or back:
        own = [(0, channel) for channel in range(base.shape.channels)]
        sources = [(ZEROS, 0)] * front + own + [(ZEROS, 0)] * back
        base = pick([base], sources, site.name, site.now())
    return Padded(base, top, left, bottom, right) if any((left, right, top, bottom)) else base


def interpolate(
    site: Site, operand: Operand, size: Any = None, scale_factor: Any = None,
    mode: str = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Any:  # fmt: skip
    options = {"size": size, "scale_factor": scale_factor, "mode": mode,
               "align_corners": align_corners,
               "recompute_scale_factor": recompute_scale_factor}  # fmt: skip
    if mode in ("nearest", "nearest-exact"):
        return move(site, operand, **options)
    if mode != "bilinear" or antialias:
        site.refuse(f"resizes by {mode}{' with antialias' if antialias else ''}; expected nearest or "
                    "bilinear")  # fmt: skip
    read = site.wide(operand)
    channels, height, width = read.value.shape
    # Resizing the numbers of rows and columns shows where torch looks for each.
    rows, columns = torch.meshgrid(
        torch.arange(height, dtype=torch.float64), torch.arange(width, dtype=torch.float64),
        indexing="ij",
    )  # fmt: skip
    places = F.interpolate(torch.stack([rows, columns])[None], **options)[0].numpy()
    shape = Shape(channels, *places.shape[1:])
    blends = _blends(places[0, :, 0], height), _blends(places[1, 0, :], width)
    make = partial(Bilinear, rows=blends[0], columns=blends[1])
    sums = Sums(site.name, site.now(), shape, [read], make)
    ones = np.ones((channels, 1))
    return Affine(sums, ones, np.zeros(channels), read.value.bound)


def _blends(places: Any, size: int) -> list[tuple[int, int, float]]:
    """For each place between two rows or columns: both, and the share of the second."""
    firsts = np.clip(np.floor(places), 0, size - 1).astype(int)
    shares = np.clip(places - firsts, 0, 1)
    return [
        (int(first), min(int(first) + 1, size - 1), float(np.float32(share)))
        for first, share in zip(firsts, shares, strict=True)
    ]


HANDLERS: dict[str, Any] = {
    **dict.fromkeys(MOVING | {"expand", "expand_as", "repeat", "tile", "repeat_interleave"}, move),
    "cat": concat,
    "pad": pad,
    "interpolate": interpolate,
}
