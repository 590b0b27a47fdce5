"""CIFAR-10 in the binary form of its archive: records of a label byte and 3,072 pixel bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dbq.data.options import DataOptions
from dbq.data.split import Split, TensorSplit
from dbq.errors import DataError

RECORD = 1 + 3 * 32 * 32
PER_FILE = 10_000
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # over the training set
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FILES = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}


def load(options: DataOptions, device: torch.device) -> tuple[Split, Split]:
    """Train (pad 4, crop, flip) and test."""
    if not options.directory:
        raise DataError("cifar10: no directory given; --set data.directory=DIR, see dbq data list")
    mean, std = options.mean or MEAN, options.std or STD

    def split(name: str) -> Split:
        images, labels = load_cifar10(options.directory, name)
        return TensorSplit(
            images,
            labels,
            name=name,
            classes=CLASSES,
            mean=mean,
            std=std,
            pad=4,
            flip=True,
            device=device,
        )

    return split("train"), split("test")


def load_cifar10(directory: Path | str, split: str) -> tuple[Tensor, Tensor]:
    """All images of a split as uint8 [N, 3, 32, 32], and their labels.

    `directory` holds data_batch_1.bin ... test_batch.bin, or the archive's folder with them.
    """
    directory = Path(directory)
    inner = directory / "cifar-10-batches-bin"
    folder = inner if inner.is_dir() else directory
    records = np.concatenate([_read(folder / name) for name in FILES[split]])
    images = torch.from_numpy(records[:, 1:].copy()).view(-1, 3, 32, 32)
    return images, torch.from_numpy(records[:, 0].astype(np.int64))


def _read(path: Path) -> np.ndarray:
    try:
        raw = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror}; expected CIFAR-10's binary version there"
        ) from None
    if raw.size != PER_FILE * RECORD:
        raise DataError(
            f"{path} has {raw.size} bytes, expected {PER_FILE * RECORD}: fetch it again"
        )
    records = raw.reshape(PER_FILE, RECORD)
    if records[:, 0].max() > 9:
        raise DataError(
            f"{path} has a label {records[:, 0].max()}, expected 0 to 9: fetch it again"
        )
    return records
