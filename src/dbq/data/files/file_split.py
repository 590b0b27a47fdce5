"""FileSplit: image files, decoded by worker processes while the network computes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

from dbq.data.options import DataOptions
from dbq.data.reading import Sample, WorkerSplit
from dbq.data.views import centre_view, random_view, resize_length
from dbq.deploy.pictures.images import UnreadableImageError, require_pillow


class FileSplit(WorkerSplit):
    """Labelled image files under a directory."""

    def __init__(
        self,
        root: Path,
        names: Sequence[str],
        labels: Sequence[int],
        *,
        name: str,
        classes: tuple[str, ...],
        side: int,
        options: DataOptions,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(name, classes, side, options, device)
        require_pillow()
        self.root, self.resize_length = root, resize_length(side)
        # One block of bytes: a million str would be copied into every worker, because reading a str
        # writes its reference count.
        self.names = np.array([os.fsencode(n) for n in names], dtype=np.bytes_)
        self.labels = torch.tensor(labels)

    def __len__(self) -> int:
        return len(self.names)

    def place(self, index: int) -> str:
        """The path of a file."""
        return os.path.join(self.root, os.fsdecode(self.names[index]))

    def reader(self, draw: int | None) -> Dataset[Sample | str]:
        return _Reader(self, None if self.augment == "none" else draw)


class _Reader(Dataset["Sample | str"]):
    def __init__(self, split: FileSplit, draw: int | None) -> None:
        self.root, self.names = os.fspath(split.root), split.names
        self.labels, self.side = split.labels.numpy(), split.side
        self.draw, self.flip = draw, split.augment == "full"

    def __getitem__(self, index: int) -> Sample | str:
        path = os.path.join(self.root, os.fsdecode(self.names[index]))
        try:
            if self.draw is None:
                pixels = centre_view(path, self.side)
            else:
                rng = np.random.default_rng([self.draw, index])
                pixels = random_view(path, self.side, rng, self.flip)
        except UnreadableImageError as error:
            return str(error)
        return Sample(pixels, int(self.labels[index]))
