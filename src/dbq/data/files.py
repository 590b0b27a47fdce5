"""FileSplit: image files, decoded by worker processes while the network computes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dbq.data.options import DataOptions
from dbq.data.split import Batch, Split
from dbq.data.views import MEAN, STD, centre_view, random_view
from dbq.deploy.images import Pixels, UnreadableImageError, require_pillow
from dbq.errors import DataError
from dbq.model.pixels import normalise
from dbq.support.workers import dead_worker

REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class FileSplit(Split):
    """Labelled image files under a directory.

    Workers send bytes, a quarter of the size of floats, which are normalised here on the device. Errors
    travel as data, so that they arrive as one line and not as a worker's traceback.
    """

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
        require_pillow()
        self.root, self.name, self.classes, self.side = root, name, classes, side
        # One block of bytes: a million str would be copied into every worker, because reading a str
        # writes its reference count.
        self.names = np.array([os.fsencode(n) for n in names], dtype=np.bytes_)
        self.labels = torch.tensor(labels)
        self.mean, self.std = options.mean or MEAN, options.std or STD
        self.workers, self.skip_unreadable = options.workers, options.skip_unreadable
        self.device = torch.device(device)

    def __len__(self) -> int:
        return len(self.names)

    def path(self, index: int) -> str:
        return os.path.join(self.root, os.fsdecode(self.names[index]))

    def batches(
        self, groups: Sequence[Tensor], draw: int | None = None, *, raw: bool = False
    ) -> Iterator[Batch]:
        read = read_in_workers(
            _Reader(self, draw),
            batch_sampler=[group.tolist() for group in groups],
            num_workers=min(self.workers, len(groups)),
            collate_fn=partial(_stack, self.side),
            pin_memory=self.device.type == "cuda",
        )
        try:
            for group in groups:
                yield self._batch(group, self._next(read), raw)
        finally:
            del read  # ends the workers even if a traceback keeps this frame alive

    def _next(self, read: Iterator[_Read]) -> _Read:
        try:
            return next(read)
        except (RuntimeError, OSError, EOFError) as error:  # what a dead worker causes
            if not self.workers:
                raise
            raise dead_worker(error, self.name) from None

    def _batch(self, group: Tensor, found: _Read, raw: bool) -> Batch:
        bad = [(self.path(int(group[at])), reason) for at, reason in found.unreadable]
        first = "{}: {}".format(*bad[0]) if bad else ""
        if bad and not self.skip_unreadable:
            advice = "replace or remove it, or set data.skip_unreadable = true"
            raise DataError(f"cannot read {first}; {advice}")
        if bad and not found.kept:
            count = f"none of the {len(group)} images of a batch is readable"
            raise DataError(f"{count}; the first is {first}")
        images = found.images.to(self.device, non_blocking=True)
        readable = group[torch.tensor(found.kept, dtype=torch.long)]
        labels = self.labels[readable].to(self.device, non_blocking=True)
        pixels = images if raw else normalise(images, self.mean, self.std)
        return Batch(pixels, labels, tuple(path for path, _ in bad))


class _Read(NamedTuple):
    """A worker's result for a group: the pixels at places `kept`, and why the others have none."""

    images: Tensor
    kept: list[int]
    unreadable: list[tuple[int, str]]


class _Reader(Dataset["Pixels | str"]):
    """Index to pixels, or to the reason why there are none. Workers are sent nothing else."""

    def __init__(self, split: FileSplit, draw: int | None) -> None:
        self.root, self.names = os.fspath(split.root), split.names
        self.side, self.draw = split.side, draw

    def __getitem__(self, index: int) -> Pixels | str:
        path = os.path.join(self.root, os.fsdecode(self.names[index]))
        try:
            if self.draw is None:
                return centre_view(path, self.side)
            return random_view(path, self.side, np.random.default_rng([self.draw, index]))
        except UnreadableImageError as error:
            return str(error)


def _stack(side: int, samples: list[Pixels | str]) -> _Read:
    kept = {at: pixels for at, pixels in enumerate(samples) if not isinstance(pixels, str)}
    reasons = [(at, reason) for at, reason in enumerate(samples) if isinstance(reason, str)]
    images = np.empty((len(kept), side, side, 3), np.uint8)
    for place, pixels in enumerate(kept.values()):
        images[place] = pixels
    planes = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    return _Read(planes, list(kept), reasons)


def read_in_workers(dataset: Dataset[Any], **how: Any) -> Iterator[Any]:
    """Iterate a DataLoader whose workers leave signals to the main process.

    Workers start with the signals blocked, so that none dies before it can ignore them.
    """
    generator = torch.Generator()  # the loader would draw from the global one
    loader = DataLoader(dataset, worker_init_fn=_ignore_requests, generator=generator, **how)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
    try:
        return iter(loader)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ignore_requests(worker: int) -> None:
    """Ctrl-C and a scheduler's SIGTERM reach every process of a group, but only the main one acts on
    them. Workers end when it does."""
    for number in REQUESTS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, REQUESTS)
