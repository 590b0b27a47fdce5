"""Split: one half of a data set (train or test), and how it becomes batches.

What a sample looks like in an epoch depends on (draw, sample) and on nothing else: not on the batch it
is in, the number of worker processes, the number of machines, or where training was resumed. So a run
can be stopped, resumed and spread without its images changing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dbq.model.pixels import normalise


class Batch(NamedTuple):
    """Images [N, C, H, W], labels [N], and the files left out as unreadable.

    Images are normalised floats, or the uint8 pixels themselves if the batch was asked for `raw`.
    """

    images: Tensor
    labels: Tensor
    skipped: tuple[str, ...] = ()


class Split(ABC):
    """A sequence of labelled images that is read in batches."""

    name: str  # which images these are, e.g. "test" or "minival (official ids)"; goes into results
    classes: tuple[str, ...]
    # Length of a test image's shorter side before its centre is cropped; 0: images are not resized.
    resize_length: int = 0

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batches(
        self, groups: Sequence[Tensor], draw: int | None = None, *, raw: bool = False
    ) -> Iterator[Batch]:
        """One batch for each tensor of indices in `groups`, in that order.

        `draw` seeds the random augmentation of training; None gives images as a test sees them.
        """


class TensorSplit(Split):
    """Images in memory: uint8 [N, C, H, W]; augmented in batches, by shifting and flipping.

    Shifts are those of a crop after padding `pad` black pixels on each side; `flip` mirrors half of
    the images. Training and test differ only in whether `batches` gets a `draw`.

    >>> split = TensorSplit(torch.zeros(9, 3, 8, 8, dtype=torch.uint8), torch.zeros(9).long(),
    ...                     name="train", classes=("zero",), mean=(0.5,) * 3, std=(0.5,) * 3, pad=1)
    >>> [tuple(batch.images.shape) for batch in split.batches(torch.arange(9).split(6), draw=1)]
    [(6, 3, 8, 8), (3, 3, 8, 8)]
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        name: str,
        classes: tuple[str, ...],
        mean: Sequence[float],
        std: Sequence[float],
        pad: int = 0,
        flip: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        self.name, self.classes, self.pad, self.flip = name, classes, pad, flip
        self.images, self.labels = images.to(device), labels.to(device)
        self.side = images.shape[-1]
        self.padded = torch.nn.functional.pad(self.images, (pad,) * 4) if pad else self.images
        self.mean, self.std = mean, std

    def __len__(self) -> int:
        return len(self.labels)

    def batches(
        self, groups: Sequence[Tensor], draw: int | None = None, *, raw: bool = False
    ) -> Iterator[Batch]:
        crops = None if draw is None else self._draw(draw)
        for indices in groups:
            group = indices.to(self.images.device)
            images = self.images[group] if crops is None else self._crop(group, *crops)
            pixels = images if raw else normalise(images, self.mean, self.std)
            yield Batch(pixels, self.labels[group])

    def _draw(self, draw: int) -> tuple[Tensor, Tensor]:
        """Rows and columns to read for every image of the split, each [N, side]."""
        generator = torch.Generator().manual_seed(draw)  # on the CPU: the same on every device
        count, line = len(self), torch.arange(self.side)
        top, left = torch.randint(2 * self.pad + 1, (2, count, 1), generator=generator)
        mirrored = torch.rand(count, 1, generator=generator) < (0.5 if self.flip else 0.0)
        columns = torch.where(mirrored, line.flip(0), line) + left
        device = self.images.device
        return (line + top).to(device), columns.to(device)

    def _crop(self, group: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        channels = torch.arange(self.images.shape[1], device=self.images.device)[:, None, None]
        row, column = rows[group][:, None, :, None], columns[group][:, None, None, :]
        return self.padded[group[:, None, None, None], channels, row, column]
