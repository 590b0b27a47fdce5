"""CIFAR-10 in either form of its archive.

The binary form has records of a label byte and 3,072 pixel bytes (planes red, green, blue); the python
form is read into the same records by python_form.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dbq.data.cifar10 import python_form
from dbq.data.options import DataOptions
from dbq.data.split import Split, TensorSplit
from dbq.errors import DataError

RECORD = 1 + 3 * 32 * 32
PER_FILE = 10_000
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # over the training set
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FILES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
FOLDERS = {"cifar-10-batches-bin": ".bin", "cifar-10-batches-py": ""}  # and their files' suffix
LAYOUT = "DIR/cifar-10-batches-bin/ or DIR/cifar-10-batches-py/, as in the official archives"


def load(
    options: DataOptions,
    device: torch.device,
    classes: tuple[str, ...] = CLASSES,
    relabel: Callable[[Tensor], Tensor] = lambda labels: labels,
) -> tuple[Split, Split]:
    """Train (pad 4, crop, flip) and test; `relabel` turns CIFAR-10's labels into those of `classes`."""
    mean, std = options.statistics

    def split(name: str) -> Split:
        images, labels = load_cifar10(options.directory, name)
        return TensorSplit(
            images, relabel(labels), name=name, classes=classes,
            mean=mean or MEAN, std=std or STD, pad=0 if options.augment == "none" else 4,
            flip=options.augment == "full", device=device,
        )  # fmt: skip

    return split("train"), split("test")


def load_cifar10(directory: Path | str, split: str) -> tuple[Tensor, Tensor]:
    """All images of a split as uint8 [N, 3, 32, 32], and their labels.

    `directory` holds an archive's folder (the binary one is preferred), or the files themselves.
    """
    found = find(Path(directory))
    if found is None:
        raise DataError(
            f"no CIFAR-10 in {directory}: expected {' or '.join(FOLDERS)} there; "
            f"run dbq data prepare cifar10 {directory}"
        )
    folder, suffix = found
    read = _read_binary if suffix else python_form.read
    records = np.concatenate([read(folder / (name + suffix)) for name in FILES[split]])
    images = torch.from_numpy(records[:, 1:].copy()).view(-1, 3, 32, 32)
    return images, torch.from_numpy(records[:, 0].astype(np.int64))


def find(directory: Path) -> tuple[Path, str] | None:
    """The folder with the files, and the suffix of their names."""
    for inner, suffix in FOLDERS.items():
        if (directory / inner).is_dir():
            return directory / inner, suffix
    names = [name for names in FILES.values() for name in names]
    for suffix in FOLDERS.values():
        if any((directory / (name + suffix)).is_file() for name in names):
            return directory, suffix
    return None


def _read_binary(path: Path) -> NDArray[np.uint8]:
    try:
        raw = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        expected = "expected CIFAR-10's binary version there"
        raise DataError(f"cannot read {path}: {error.strerror}; {expected}") from None
    size = PER_FILE * RECORD
    if raw.size != size:
        raise DataError(f"{path} has {raw.size} bytes, expected {size}: fetch it again")
    records = raw.reshape(PER_FILE, RECORD)
    if (largest := records[:, 0].max()) > 9:
        raise DataError(f"{path} has a label {largest}, expected 0 to 9: fetch it again")
    return records
