"""WorkerSplit: images that are read one by one, by worker processes, while the network computes."""

from __future__ import annotations

import signal
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dbq.data.options import DataOptions
from dbq.data.split import Batch, Split
from dbq.data.views import MEAN, STD
from dbq.deploy.pictures.images import Pixels
from dbq.errors import DataError
from dbq.model.pixels import denormalise, normalise
from dbq.support.workers import dead_worker

REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Sample(NamedTuple):
    """An image, [H, W, C] pixels or a normalised tensor [C, H, W], and its label."""

    image: Pixels | Tensor
    label: int


class WorkerSplit(Split):
    """Labelled images that a reader in a worker process turns into samples.

    Workers send bytes, a quarter of the size of floats, which are normalised here on the device. Errors
    travel as data, so that they arrive as one line and not as a worker's traceback.
    """

    normalised = False  # whether samples come as normalised tensors instead of pixels

    def __init__(
        self, name: str, classes: tuple[str, ...], side: int, options: DataOptions,
        device: torch.device | str = "cpu",
    ) -> None:  # fmt: skip
        self.name, self.classes, self.side, self.augment = name, classes, side, options.augment
        mean, std = options.statistics
        self.mean, self.std = mean or MEAN, std or STD
        self.workers, self.skip_unreadable = options.workers, options.skip_unreadable
        self.device = torch.device(device)

    @abstractmethod
    def reader(self, draw: int | None) -> Dataset[Sample | str]:
        """Index to sample, or to the reason why there is none. Workers are sent nothing else."""

    @abstractmethod
    def place(self, index: int) -> str:
        """What an image is called in messages."""

    def batches(
        self, groups: Sequence[Tensor], draw: int | None = None, *, raw: bool = False
    ) -> Iterator[Batch]:
        read = read_in_workers(
            self.reader(draw),
            batch_sampler=[group.tolist() for group in groups],
            num_workers=min(self.workers, len(groups)),
            collate_fn=partial(_stack, self.side, self.normalised),
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
        bad = [(self.place(int(group[at])), reason) for at, reason in found.unreadable]
        first = "{}: {}".format(*bad[0]) if bad else ""
        if bad and not self.skip_unreadable:
            advice = "replace or remove it, or set data.skip_unreadable = true"
            raise DataError(f"cannot read {first}; {advice}")
        if bad and not len(found.labels):
            count = f"none of the {len(group)} images of a batch is readable"
            raise DataError(f"{count}; the first is {first}")
        images = self._as_asked(found.images.to(self.device, non_blocking=True), raw)
        labels = found.labels.to(self.device, non_blocking=True)
        return Batch(images, labels, tuple(place for place, _ in bad))

    def pixels(self, image: Pixels | Tensor) -> Pixels:
        """The image of a sample as uint8 planes [C, H, W]."""
        pixels = (
            denormalise(image[None], self.mean, self.std)[0] if isinstance(image, Tensor) else image
        )
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))

    def _as_asked(self, images: Tensor, raw: bool) -> Tensor:
        if not self.normalised:
            return images if raw else normalise(images, self.mean, self.std)
        if not raw:
            return images
        return torch.from_numpy(denormalise(images, self.mean, self.std)).permute(0, 3, 1, 2)


class _Read(NamedTuple):
    """A worker's result for a group: images and labels of those that are readable, in order, and at
    which places the others are and why."""

    images: Tensor
    labels: Tensor
    unreadable: list[tuple[int, str]]


def _stack(side: int, normalised: bool, samples: list[Sample | str]) -> _Read:
    kept = [sample for sample in samples if not isinstance(sample, str)]
    reasons = [(at, reason) for at, reason in enumerate(samples) if isinstance(reason, str)]
    labels = torch.tensor([sample.label for sample in kept], dtype=torch.long)
    if normalised:
        planes = torch.empty(len(kept), 3, side, side)
        for place, sample in enumerate(kept):
            planes[place] = torch.as_tensor(sample.image)
        return _Read(planes, labels, reasons)
    images = np.empty((len(kept), side, side, 3), np.uint8)
    for place, sample in enumerate(kept):
        images[place] = sample.image
    return _Read(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), labels, reasons)


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
