"""CIFAR-10 in the binary form of its archive: records of a label byte and 3,072 pixel bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dbq.errors import DataError

RECORD = 1 + 3 * 32 * 32
PER_FILE = 10_000
FILES = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}


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


def normalise(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """uint8 images as float, per channel (x / 255 - mean) / std."""
    shift, scale = (torch.tensor(v).view(-1, 1, 1) for v in (mean, std))
    return (images.float() / 255 - shift) / scale
