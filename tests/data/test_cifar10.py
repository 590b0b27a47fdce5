"""CIFAR-10's binary files: values in their places, and what is wrong with a damaged one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from dbq.data.cifar10 import PER_FILE, RECORD, load_cifar10
from dbq.data.split import normalise
from dbq.errors import DataError


def write(path: Path, records: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(records.tobytes())


@pytest.fixture
def records() -> np.ndarray:
    records = np.zeros((PER_FILE, RECORD), dtype=np.uint8)
    records[7, 0] = 9
    records[7, 1 + 2 * 1024 + 3 * 32 + 5] = 200  # blue plane, row 3, column 5
    return records


@pytest.mark.parametrize("folder", ["", "cifar-10-batches-bin"])
def test_values_and_labels(tmp_path: Path, records: np.ndarray, folder: str) -> None:
    write(tmp_path / folder / "test_batch.bin", records)
    images, labels = load_cifar10(tmp_path, "test")
    assert images.shape == (PER_FILE, 3, 32, 32)
    assert images.dtype == torch.uint8
    assert images.nonzero().tolist() == [[7, 2, 3, 5]]
    assert images[7, 2, 3, 5] == 200
    assert labels.nonzero().tolist() == [[7]]
    assert labels[7] == 9


def test_damaged_and_missing_files(tmp_path: Path, records: np.ndarray) -> None:
    with pytest.raises(DataError, match=r"test_batch\.bin: No such file.*binary version"):
        load_cifar10(tmp_path, "test")
    write(tmp_path / "test_batch.bin", records[:-1])
    with pytest.raises(DataError, match="has 30726927 bytes, expected 30730000"):
        load_cifar10(tmp_path, "test")
    records[3, 0] = 10
    write(tmp_path / "test_batch.bin", records)
    with pytest.raises(DataError, match="has a label 10, expected 0 to 9"):
        load_cifar10(tmp_path, "test")


def test_normalise() -> None:
    images = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(-1, 2, -1, -1)
    scaled = normalise(images, mean=(0.5, 0.25), std=(0.5, 0.25))
    assert scaled.flatten().tolist() == [-1, -1, 1, 3]
