"""Images changed a little: mirrored, shifted, cut.

A float network is sure of the images it was trained on, and says more about changed ones: they teach a
quantized network more, and judge it better.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

LARGEST_SHIFT = 8  # an image is shifted by at most this fraction of its sides
# Images of so many pixels a side are cut to a part of it, in whole steps: half the work.
LARGE, PART, STEP = 128, 0.72, 32


def changed_batches(images: Tensor, batch: int, seed: int, part: float) -> Iterator[Tensor]:
    """Random batches without end, each image once before any comes again; changed."""
    generator = torch.Generator().manual_seed(seed)
    size = min(batch, len(images))
    while True:
        order = torch.randperm(len(images), generator=generator)
        for chosen in torch.split(order, size):
            if len(chosen) == size:
                x = images[chosen.to(images.device)]
                yield changed(x, generator, part)


def changed_copies(images: Tensor, batch: int, seed: int) -> Tensor:
    """All images changed, batch by batch."""
    generator = torch.Generator().manual_seed(seed)
    return torch.cat([changed(x, generator) for x in torch.split(images, batch)])


def changed(x: Tensor, generator: torch.Generator, part: float = 1.0) -> Tensor:
    """Half of the images mirrored; all cut to a part of their sides, or shifted if that is all.

    What is no batch of images stays as it is.
    """
    if x.ndim != 4:
        return x
    mirrored = torch.rand(len(x), generator=generator) < 0.5
    layout = torch.channels_last if x.stride(1) == 1 else torch.contiguous_format
    x = torch.where(mirrored.to(x.device).reshape(-1, 1, 1, 1), x.flip(3), x)
    height, width = (_cut(side, part) for side in x.shape[2:])
    if part == 1:
        down, right = height // LARGEST_SHIFT, width // LARGEST_SHIFT
        x = nn.functional.pad(x, (right, right, down, down), mode="replicate")
    top = int(torch.randint(x.shape[2] - height + 1, (), generator=generator))
    left = int(torch.randint(x.shape[3] - width + 1, (), generator=generator))
    return x[:, :, top : top + height, left : left + width].contiguous(memory_format=layout)


def _cut(side: int, part: float) -> int:
    """Whole multiples of the steps that networks of large images take."""
    return side if part == 1 else round(side * part / STEP) * STEP


def usable_part(teacher: nn.Module, images: Tensor) -> float:
    """How much of each side is used: all of small images, and where the network takes one size only."""
    if images.ndim != 4 or min(images.shape[2:]) < LARGE:
        return 1.0
    height, width = (_cut(side, PART) for side in images.shape[2:])
    try:
        with torch.no_grad():
            teacher(images[:1, :, :height, :width])
    except RuntimeError:
        return 1.0
    return PART
