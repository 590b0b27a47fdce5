"""CIFAR-10's python form: pickles of a dict with `labels` and `data`.

A pickle is a program, and a file from the network must not run one. So the three names that the official
files mention stand for two classes of our own, which only note what they are given; every other name
is refused. numpy sees nothing but the bytes, after their number has been checked.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbq.errors import DataError, first_line

SHAPE = (10_000, 3072)
LARGEST = 40_000_000  # bytes; the official files have 31 million


def read(path: Path) -> NDArray[np.uint8]:
    """Labels and pixels as the records of the binary form: [10000, 1 + 3072]."""
    try:
        if path.stat().st_size > LARGEST:
            raise DataError(f"{path} has over {LARGEST} bytes, expected a CIFAR-10 batch")
        with path.open("rb") as file:
            batch = _Unpickler(file, encoding="bytes").load()
    except DataError:
        raise
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror}; expected CIFAR-10's python version there"
        ) from None
    except Exception as error:  # bytes that are no pickle can raise nearly anything
        raise DataError(
            f"{path} is no CIFAR-10 batch ({first_line(error)}): fetch it again"
        ) from None
    labels = batch.get(b"labels") if isinstance(batch, dict) else None
    pixels = batch.get(b"data") if isinstance(batch, dict) else None
    if not isinstance(labels, list) or not isinstance(pixels, _Array):
        raise DataError(f"{path} has no list `labels` and array `data`: fetch it again")
    if len(labels) != SHAPE[0] or not all(type(n) is int and 0 <= n < 10 for n in labels):
        raise DataError(f"{path}: expected {SHAPE[0]} labels from 0 to 9: fetch it again")
    return np.concatenate([np.array(labels, np.uint8)[:, None], pixels.values(path)], axis=1)


class _Type:
    """Stands for numpy.dtype: notes its name."""

    def __init__(self, name: object = None, *_: object) -> None:
        self.name = name

    def __setstate__(self, state: object) -> None:
        """Byte order and the like; one byte has none."""


class _Array:
    """Stands for numpy.ndarray and the function that makes an empty one: notes the array's state."""

    def __init__(self, *_: object) -> None:
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state

    def values(self, path: Path) -> NDArray[np.uint8]:
        match self.state:
            case (int(), shape, _Type(name=b"u1"), int(columns_first), bytes(raw)):
                if shape == SHAPE and len(raw) == SHAPE[0] * SHAPE[1]:
                    return np.frombuffer(raw, np.uint8).reshape(
                        SHAPE, order="F" if columns_first else "C"
                    )
        raise DataError(f"{path}: `data` is no uint8 array of shape {SHAPE}: fetch it again")


STAND_INS = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None
