"""Examining every image of a data set: counts, sizes, damaged files, mean and deviation, one checksum.

The checksum covers names, labels and contents in order: equal checksums mean equal data. For a data
set in memory it covers labels and pixels, so CIFAR-10's two forms have the same one.

Mean and standard deviation are those of the training images, by channel, of pixels in [0, 1]; every
image has the same weight, whatever its size, because a network sees it at one size.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from dbq.data.files.file_split import FileSplit
from dbq.data.options import Statistics
from dbq.data.reading import WorkerSplit, read_in_workers
from dbq.data.split import Split, TensorSplit
from dbq.deploy.pictures.images import UnreadableImageError, decode
from dbq.support.progress import Progress, silent
from dbq.support.regular import why_unreadable

CHUNK = 64  # images a worker examines between two reports


@dataclass(frozen=True)
class Damage:
    """An unreadable file and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Sizes:
    """Width and height of the images: of the smallest, of one in the middle, and of the largest."""

    smallest: tuple[int, int]
    median: tuple[int, int]
    largest: tuple[int, int]

    @classmethod
    def of(cls, sizes: list[tuple[int, int]]) -> Sizes | None:
        """In the order of their areas; None of no images."""
        ranked = sorted(sizes, key=lambda size: (size[0] * size[1], size))
        return cls(ranked[0], ranked[len(ranked) // 2], ranked[-1]) if ranked else None


@dataclass(frozen=True)
class SplitReport:
    """What is in one split; counts include unreadable files."""

    name: str
    images: int
    per_class: dict[str, int]
    sizes: Sizes | None  # None: no image can be read
    unreadable: tuple[Damage, ...]


@dataclass(frozen=True)
class Report:
    """What is in a data set."""

    splits: tuple[SplitReport, ...]
    mean: tuple[float, ...]  # of the training images
    std: tuple[float, ...]
    sha256: str

    @property
    def problems(self) -> list[str]:
        """One line per problem."""
        damaged = [f"{bad.path}: {bad.reason}" for part in self.splits for bad in part.unreadable]
        empty = [
            f"{part.name}: no image of class {name}"
            for part in self.splits
            for name, count in part.per_class.items()
            if not count
        ]
        return damaged + empty

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "problems": self.problems}


class _Seen(NamedTuple):
    """One image: what identifies it, its label, or why it cannot be read; its size; for each channel the
    means of the pixels and of their squares."""

    identity: str
    label: int
    reason: str = ""
    size: tuple[int, int] = (0, 0)
    moments: tuple[float, ...] = ()


def examine(splits: Sequence[Split], progress: Progress = silent) -> Report:
    """Read everything."""
    digest = hashlib.sha256()
    reports: list[SplitReport] = []
    statistics: Statistics = ((), ())
    for split in splits:
        digest.update(f"{split.name}\n".encode())
        damaged, sizes, moments, labels = [], [], [], []
        for done, seen in enumerate(_all(split, digest), 1):
            labels.append(seen.label)
            if seen.reason:
                damaged.append(Damage(_place(split, done - 1), seen.reason))
            else:
                sizes.append(seen.size)
                moments.append(seen.moments)
            if done % CHUNK == 0 or done == len(split):
                progress(split.name, done, len(split))
        known = torch.tensor([label for label in labels if label >= 0], dtype=torch.long)
        counts = torch.bincount(known, minlength=len(split.classes)).tolist()
        per_class = dict(zip(split.classes, counts, strict=True))
        reports.append(
            SplitReport(split.name, len(split), per_class, Sizes.of(sizes), tuple(damaged))
        )
        statistics = statistics if any(statistics) else _statistics(moments)
    return Report(tuple(reports), *statistics, digest.hexdigest())


def _all(split: Split, digest: hashlib._Hash) -> Iterator[_Seen]:
    if isinstance(split, TensorSplit):
        labels, images = split.labels.cpu(), split.images.cpu().contiguous()
        digest.update(labels.numpy().astype("<i8").tobytes())
        digest.update(images.numpy().tobytes())
        for label, image in zip(labels.tolist(), images.numpy(), strict=True):
            moments = [np.bincount(plane.ravel(), minlength=256) for plane in image]
            yield _Seen("", label, "", image.shape[:0:-1], _moments(moments))
    elif isinstance(split, WorkerSplit):
        examiner = _FileExaminer(split) if isinstance(split, FileSplit) else _ItemExaminer(split)
        workers = split.workers
        for chunk in read_in_workers(
            examiner, batch_size=CHUNK, num_workers=workers, collate_fn=list
        ):
            for seen in chunk:
                digest.update(f"{seen.identity}\n".encode(errors="surrogateescape"))
                yield seen
    else:
        raise TypeError(f"cannot examine a {type(split).__name__}")


def _place(split: Split, index: int) -> str:
    return split.place(index) if isinstance(split, WorkerSplit) else f"image {index}"


def _moments(histograms: Sequence[npt.ArrayLike]) -> tuple[float, ...]:
    """Means and mean squares from the counts of the 256 values in each channel."""
    counts = np.asarray(histograms, np.float64)
    shares, values = counts / counts.sum(1, keepdims=True), np.arange(256) / 255
    return (*(shares @ values).tolist(), *(shares @ values**2).tolist())


def _statistics(moments: list[tuple[float, ...]]) -> Statistics:
    if not moments:
        return (), ()
    mean, square = np.mean(moments, 0).reshape(2, -1)
    return tuple(mean.tolist()), tuple(np.sqrt(np.maximum(square - mean**2, 0)).tolist())


class _FileExaminer(Dataset[_Seen]):
    """Index to what is in a file."""

    def __init__(self, split: FileSplit) -> None:
        self.root, self.names = os.fspath(split.root), split.names
        self.labels = split.labels.numpy()

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> _Seen:
        name, label = os.fsdecode(self.names[index]), int(self.labels[index])
        path = os.path.join(self.root, name)
        if reason := why_unreadable(path):
            return _Seen(f"{name} {label} ", label, reason)
        try:
            with open(path, "rb") as file:
                contents = file.read()
        except OSError as error:
            return _Seen(f"{name} {label} ", label, error.strerror or str(error))
        identity = f"{name} {label} {hashlib.sha256(contents).hexdigest()}"
        try:
            image = decode(io.BytesIO(contents))
        except UnreadableImageError as error:
            return _Seen(identity, label, str(error))
        return _Seen(identity, label, "", image.size, _moments(_channels(image.histogram())))


def _channels(histogram: list[int]) -> list[list[int]]:
    return [histogram[start : start + 256] for start in range(0, len(histogram), 256)]


class _ItemExaminer(Dataset[_Seen]):
    """Index to an item of a Dataset as a network sees it in a test."""

    def __init__(self, split: WorkerSplit) -> None:
        self.split, self.count = split, len(split)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> _Seen:
        seen = self.split.reader(None)[index]
        if isinstance(seen, str):
            return _Seen(seen, -1, seen)
        planes = self.split.pixels(seen.image)
        label = seen.label
        identity = f"{label} {hashlib.sha256(planes.tobytes()).hexdigest()}"
        histograms = [np.bincount(plane.ravel(), minlength=256) for plane in planes]
        return _Seen(identity, label, "", planes.shape[:0:-1], _moments(histograms))
