"""The data sets that recipes and the command line can name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from dbq.data import digits, views
from dbq.data.cifar10 import archive as cifar10_archive
from dbq.data.cifar10 import files as cifar10
from dbq.data.cifar10 import vehicles as cifar10_vehicles
from dbq.data.coco import wake_words
from dbq.data.examination import Report, examine
from dbq.data.imagenet import folders as imagenet
from dbq.data.options import DataOptions
from dbq.data.split import Split
from dbq.errors import DataError, closest
from dbq.support.progress import Progress, silent


@dataclass(frozen=True)
class DataSet:
    """`load(options, device)` returns the train and test splits. `prepare(directory, progress)` gets the
    files and returns a line about them, or raises an error that says what to download by hand."""

    about: str
    size: int  # side of the images a network sees
    mean: tuple[float, ...]  # per channel, of pixels in [0, 1]
    std: tuple[float, ...]
    load: Callable[[DataOptions, torch.device], tuple[Split, Split]]
    prepare: Callable[[Path, Progress], str]
    layout: str = ""  # which files are expected where; empty: it needs no directory
    any_size: bool = False  # whether data.image_size may be another than `size`
    # Length of a test image's shorter side before its centre is cropped, by the crop's side.
    resize_length: Callable[[int], int] | None = None


DATASETS: dict[str, DataSet] = {
    "cifar10": DataSet(
        "60,000 colour photographs, 32x32, 10 classes",
        32, cifar10.MEAN, cifar10.STD, cifar10.load, cifar10_archive.prepare, cifar10.LAYOUT,
    ),
    "cifar10-vehicles": DataSet(
        "CIFAR-10's photographs, animals against vehicles",
        32, cifar10.MEAN, cifar10.STD,
        cifar10_vehicles.load, cifar10_archive.prepare, cifar10.LAYOUT,
    ),
    "digits": DataSet(
        "1,797 handwritten digits, 8x8, inside scikit-learn",
        8, digits.MEAN, digits.STD, digits.load, digits.prepare,
    ),
    "imagenet": DataSet(
        "ILSVRC2012: 1,281,167 photographs and 50,000 to test, 1,000 classes",
        imagenet.SIDE, views.MEAN, views.STD,
        imagenet.load, imagenet.prepare, imagenet.LAYOUT, any_size=True,
        resize_length=views.resize_length,
    ),
    "visual_wake_words": DataSet(
        "COCO's 123,287 photographs, with a person or without",
        wake_words.SIDE, views.MEAN, views.STD,
        wake_words.load, wake_words.prepare, wake_words.LAYOUT, any_size=True,
        resize_length=views.resize_length,
    ),
}  # fmt: skip


def load_data(options: DataOptions, device: torch.device | str = "cpu") -> tuple[Split, Split]:
    """The train and test splits of a data set.

    >>> train, test = load_data(DataOptions("digits"))
    >>> len(train), len(test), test.classes[:3]
    (1437, 360, ('0', '1', '2'))
    """
    known = _find(options.name, options.directory)
    if options.image_size not in (0, known.size) and not known.any_size:
        raise DataError(
            f"{options.name} has images of side {known.size}: data.image_size is {options.image_size}"
        )
    if options.image_size < 0 or options.workers < 0:
        raise DataError("data.image_size and data.workers must be 0 or more")
    for what, values in (("mean", options.mean), ("std", options.std)):
        if len(values) not in (0, 3):
            raise DataError(f"data.{what} has {len(values)} values, expected red, green and blue")
    if any(value <= 0 for value in options.std):
        raise DataError(f"data.std is {options.std}, expected numbers over 0")
    return known.load(options, torch.device(device))


def normalisation(options: DataOptions) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation by which images are normalised: given, or the data set's own.

    >>> normalisation(DataOptions("digits"))
    ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    """
    known = DATASETS[options.name]
    return options.mean or known.mean, options.std or known.std


def prepare_data(name: str, directory: Path | str = "", progress: Progress = silent) -> str:
    """Get the files of a data set into `directory`, or say what to download by hand."""
    return _find(name, directory).prepare(Path(directory), progress)


def check_data(
    name: str, directory: Path | str = "", progress: Progress = silent, workers: int = 2
) -> Report:
    """Examine every image of a data set.

    >>> [part.images for part in check_data("digits").splits]
    [1437, 360]
    """
    options = DataOptions(name, str(directory), workers=workers, skip_unreadable=True)
    return examine(load_data(options), progress)


def _find(name: str, directory: Path | str) -> DataSet:
    if name not in DATASETS:
        raise DataError(f"no data set {name!r}; {closest(name, DATASETS)}")
    known = DATASETS[name]
    if known.layout and not str(directory):
        raise DataError(f"{name}: no directory given; give DIR, or data.directory in a recipe")
    return known
