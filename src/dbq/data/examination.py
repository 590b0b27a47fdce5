"""Examining every image of a data set: counts by class, damaged files, and one checksum.

The checksum covers names, labels and contents in order: equal checksums mean equal data. For a data
set in memory it covers labels and pixels, so CIFAR-10's two forms have the same one.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils.data import Dataset

from dbq.data.files import FileSplit, read_in_workers
from dbq.data.split import Split, TensorSplit
from dbq.deploy.images import UnreadableImageError, decode
from dbq.support.progress import Progress, silent
from dbq.support.regular import why_unreadable

CHUNK = 64  # files a worker examines between two reports


@dataclass(frozen=True)
class Damage:
    """An unreadable file and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class SplitReport:
    """What is in one split; counts include unreadable files."""

    name: str
    images: int
    per_class: dict[str, int]
    unreadable: tuple[Damage, ...]


@dataclass(frozen=True)
class Report:
    """What is in a data set."""

    splits: tuple[SplitReport, ...]
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


def examine(splits: Sequence[Split], progress: Progress = silent) -> Report:
    """Read everything."""
    digest = hashlib.sha256()
    reports = []
    for split in splits:
        digest.update(f"{split.name}\n".encode())
        if isinstance(split, FileSplit):
            damaged, labels = _examine_files(split, digest, progress), split.labels
        elif isinstance(split, TensorSplit):
            damaged, labels = [], split.labels.cpu()
            digest.update(labels.numpy().astype("<i8").tobytes())
            digest.update(split.images.cpu().contiguous().numpy().tobytes())
            progress(split.name, len(split), len(split))
        else:
            raise TypeError(f"cannot examine a {type(split).__name__}")
        counts = torch.bincount(labels, minlength=len(split.classes)).tolist()
        per_class = dict(zip(split.classes, counts, strict=True))
        reports.append(SplitReport(split.name, len(split), per_class, tuple(damaged)))
    return Report(tuple(reports), digest.hexdigest())


def _examine_files(split: FileSplit, digest: hashlib._Hash, progress: Progress) -> list[Damage]:
    chunks = read_in_workers(
        _Examiner(split), batch_size=CHUNK, num_workers=split.workers, collate_fn=list
    )
    damaged, done = [], 0
    for chunk in chunks:
        for contents, reason in chunk:
            name, label = os.fsdecode(split.names[done]), int(split.labels[done])
            digest.update(f"{name} {label} {contents}\n".encode(errors="surrogateescape"))
            if reason:
                damaged.append(Damage(split.path(done), reason))
            done += 1
        progress(split.name, done, len(split))
    return damaged


class _Examiner(Dataset[tuple[str, str]]):
    """Index to the sha256 of a file and the reason, if any, why it cannot be decoded."""

    def __init__(self, split: FileSplit) -> None:
        self.root, self.names = os.fspath(split.root), split.names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[str, str]:
        path = os.path.join(self.root, os.fsdecode(self.names[index]))
        if reason := why_unreadable(path):
            return "", reason
        try:
            with open(path, "rb") as file:
                contents = file.read()
        except OSError as error:
            return "", error.strerror or str(error)
        digest = hashlib.sha256(contents).hexdigest()
        try:
            decode(io.BytesIO(contents))
        except UnreadableImageError as error:
            return digest, str(error)
        return digest, ""
