"""The images a network is quantized with: gathered from tensors or batches, and checked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dbq.errors import DataError

FEWEST = 8  # images: some to fit to and some to judge by


def gather_images(images: Any, most: int) -> Tensor:
    """At most this many images in one tensor, from a tensor or from batches.

    Of a batch that is a tuple or list the first element counts: the rest, labels for example, is
    ignored.

    >>> batches = [(torch.rand(6, 3, 4, 4), torch.zeros(6)) for _ in range(2)]
    >>> gather_images(batches, most=10).shape
    torch.Size([10, 3, 4, 4])
    """
    if isinstance(images, Tensor):
        return _checked(images[:most])
    if isinstance(images, str | Path):
        raise DataError(f"images: {images} is a path; give dbq.read_images({str(images)!r}, side)")
    if not isinstance(images, Iterable) or isinstance(images, bytes | dict):
        raise DataError(
            f"images: found a {type(images).__name__}, expected a tensor [N, C, H, W] or batches of them"
        )
    parts: list[Tensor] = []
    for batch in images:
        part = batch[0] if isinstance(batch, tuple | list) and len(batch) else batch
        if not isinstance(part, Tensor):
            raise DataError(
                f"images: a batch holds a {type(part).__name__}, expected a tensor of images first"
            )
        if parts and part.shape[1:] != parts[0].shape[1:]:
            raise DataError(
                f"images: batches of {list(parts[0].shape[1:])} and of {list(part.shape[1:])}: "
                "expected one size"
            )
        parts.append(part)
        if sum(map(len, parts)) >= most:
            break
    if not parts:
        raise DataError("images: there are no batches; give at least one")
    return _checked(torch.cat(parts)[:most])


def _checked(images: Tensor) -> Tensor:
    if images.ndim < 2:
        raise DataError(
            f"images have the shape {list(images.shape)}, expected [N, C, H, W]: are these labels?"
        )
    if not images.is_floating_point():
        raise DataError(
            f"images are {str(images.dtype).removeprefix('torch.')}, expected the normalised floats "
            "that the network was trained on"
        )
    if len(images) < FEWEST:
        raise DataError(f"{len(images)} images are too few, expected at least {FEWEST}")
    bad = (~torch.isfinite(images)).flatten(1).any(1)
    if bad.any():
        raise DataError(f"image {int(bad.nonzero()[0])} is not finite (NaN or infinite)")
    if images.detach().amin() == images.detach().amax():
        raise DataError(
            "all pixels of all images have the same value: nothing can be fitted to them"
        )
    return images.detach()
