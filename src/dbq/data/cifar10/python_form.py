"""CIFAR-10's python form: pickles of a dict with `labels` and `data`.

A pickle is a program, and a downloaded file must not run one. Only the three names of numpy that the
official files use are resolved; every other one is refused.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbq.errors import DataError, first_line

SHAPE = (10_000, 3072)
ALLOWED: dict[tuple[str, str], Any] = {
    # numpy has moved this function; an array says where it is today.
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def read(path: Path) -> NDArray[np.uint8]:
    """Labels and pixels as the records of the binary form: [10000, 1 + 3072]."""
    try:
        with path.open("rb") as file:
            batch = _Unpickler(file, encoding="bytes").load()
        labels, pixels = batch[b"labels"], batch[b"data"]
    except OSError as error:
        expected = "expected CIFAR-10's python version there"
        raise DataError(f"cannot read {path}: {error.strerror}; {expected}") from None
    except Exception as error:  # damaged or hostile pickles raise nearly anything
        reason = first_line(error)
        raise DataError(f"{path} is not a CIFAR-10 batch ({reason}): fetch it again") from None
    is_pixels = isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8
    if not is_pixels or pixels.shape != SHAPE:
        raise DataError(f"{path}: `data` is not a uint8 array of shape {SHAPE}: fetch it again")
    is_labels = isinstance(labels, list) and len(labels) == SHAPE[0]
    if not is_labels or not all(type(n) is int and 0 <= n < 10 for n in labels):
        raise DataError(f"{path}: `labels` are not {SHAPE[0]} numbers from 0 to 9: fetch it again")
    return np.concatenate([np.array(labels, np.uint8)[:, None], pixels], axis=1)
