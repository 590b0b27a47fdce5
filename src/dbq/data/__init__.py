"""Data sets, one a file: what `DATASETS` knows, recipes and the command line can use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from dbq.data import cifar10, digits
from dbq.data.options import DataOptions
from dbq.data.split import Batch, Split, TensorSplit, normalise
from dbq.errors import DataError, closest

__all__ = ["DATASETS", "Batch", "DataOptions", "Split", "TensorSplit", "load_data", "normalise"]


@dataclass(frozen=True)
class DataSet:
    """`load(options, device)` gives the train and test splits."""

    about: str
    size: int  # side of the images a network sees
    load: Callable[[DataOptions, torch.device], tuple[Split, Split]]


DATASETS: dict[str, DataSet] = {
    "cifar10": DataSet("60,000 colour photographs, 32x32, 10 classes", 32, cifar10.load),
    "digits": DataSet("1,797 handwritten digits, 8x8, inside scikit-learn", 8, digits.load),
}


def load_data(options: DataOptions, device: torch.device | str = "cpu") -> tuple[Split, Split]:
    """The train and test splits of a data set.

    >>> train, test = load_data(DataOptions("digits"))
    >>> len(train), len(test), test.classes[:3]
    (1437, 360, ('0', '1', '2'))
    """
    if options.name not in DATASETS:
        raise DataError(f"no data set {options.name!r}; {closest(options.name, DATASETS)}")
    return DATASETS[options.name].load(options, torch.device(device))
