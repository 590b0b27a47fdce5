"""The data sets that recipes and the command line can name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dbq.data import digits, own, views
from dbq.data.cifar10 import archive as cifar10_archive
from dbq.data.cifar10 import files as cifar10
from dbq.data.cifar10 import vehicles as cifar10_vehicles
from dbq.data.coco import wake_words
from dbq.data.examination import Report, examine
from dbq.data.files import folder
from dbq.data.held_out import hold_out
from dbq.data.imagenet import folders as imagenet
from dbq.data.imagenet import tiny as tiny_imagenet
from dbq.data.options import DataOptions
from dbq.data.split import Split
from dbq.errors import DataError, closest
from dbq.support import toml
from dbq.support.imports import is_function_name
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
    "folder": DataSet(
        "your own images, a folder for each class",
        folder.SIDE, views.MEAN, views.STD,
        folder.load, folder.prepare, folder.LAYOUT, any_size=True,
        resize_length=views.resize_length,
    ),
    "imagenet": DataSet(
        "ILSVRC2012: 1,281,167 photographs and 50,000 to test, 1,000 classes",
        imagenet.SIDE, views.MEAN, views.STD,
        imagenet.load, imagenet.prepare, imagenet.LAYOUT, any_size=True,
        resize_length=views.resize_length,
    ),
    "tiny_imagenet": DataSet(
        "200 of ImageNet's classes, 110,000 photographs scaled to 64x64",
        tiny_imagenet.SIDE, views.MEAN, views.STD,
        tiny_imagenet.load, tiny_imagenet.prepare, tiny_imagenet.LAYOUT,
    ),
    "visual_wake_words": DataSet(
        "COCO's 123,287 photographs, with a person or without",
        wake_words.SIDE, views.MEAN, views.STD,
        wake_words.load, wake_words.prepare, wake_words.LAYOUT, any_size=True,
        resize_length=views.resize_length,
    ),
}  # fmt: skip


def _prepare_own(directory: Path, progress: Progress) -> str:
    raise DataError("data of your own comes from a function, which nothing is downloaded for")


OWN = DataSet(
    "made by a function of the user's", own.SIDE, views.MEAN, views.STD, own.load, _prepare_own,
    any_size=True,
)  # fmt: skip


def load_data(options: DataOptions, device: torch.device | str = "cpu") -> tuple[Split, Split]:
    """The train and test splits of a data set.

    >>> train, test = load_data(DataOptions("digits"))
    >>> len(train), len(test), test.classes[:3]
    (1437, 360, ('0', '1', '2'))
    """
    known = _with_files(options.name, options.directory)
    if options.image_size not in (0, known.size) and not known.any_size:
        raise DataError(
            f"{options.name} has images of side {known.size}: data.image_size is {options.image_size}"
        )
    if options.image_size < 0 or options.workers < 0:
        raise DataError("data.image_size and data.workers must be 0 or more")
    if options.split and options.name != "folder":
        raise DataError(f"data.split is for folders of images; {options.name} is divided already")
    if options.options and known is not OWN:
        raise DataError(f"data.options are for a function of your own; {options.name} takes none")
    for what, values in (("mean", options.mean), ("std", options.std)):
        if len(values) not in (0, 3):
            raise DataError(f"data.{what} has {len(values)} values, expected red, green and blue")
    if any(value <= 0 for value in options.std):
        raise DataError(f"data.std is {options.std}, expected numbers over 0")
    train, test = known.load(options, torch.device(device))
    if options.held_out:
        return hold_out(train, options.held_out, options.split_seed)
    return train, test


def normalisation(options: DataOptions) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation by which images are normalised: given, or the data set's own.

    >>> normalisation(DataOptions("digits"))
    ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    """
    known, (mean, std) = _find(options.name), options.statistics
    return mean or known.mean, std or known.std


def image_side(options: DataOptions) -> int:
    """The side of the images that a network sees.

    >>> image_side(DataOptions("digits")), image_side(DataOptions("folder", image_size=96))
    (8, 96)
    """
    return options.image_size or _find(options.name).size


def resize_length(options: DataOptions) -> int:
    """Length of a test image's shorter side before its centre is cropped; 0: it is not resized, or only
    the data itself can tell."""
    rule = _find(options.name).resize_length
    return rule(image_side(options)) if rule else 0


def prepare_data(name: str, directory: Path | str = "", progress: Progress = silent) -> str:
    """Get the files of a data set into `directory`, or say what to download by hand."""
    return _with_files(name, directory).prepare(Path(directory), progress)


def check_data(
    name: str,
    directory: Path | str = "",
    progress: Progress = silent,
    workers: int = 2,
    settings: Mapping[str, Any] | None = None,
) -> Report:
    """Examine every image of a data set; `settings` are other keys of a recipe's [data] section.

    >>> [part.images for part in check_data("digits").splits]
    [1437, 360]
    """
    fixed = {"name": name, "directory": str(directory), "workers": workers, "skip_unreadable": True}
    table = {**(settings or {}), **fixed}
    options = toml.build(DataOptions, table, "the settings of the data", DataError)
    if options.held_out:
        raise DataError("every image is examined, in whichever part it is: leave out held_out")
    return examine(load_data(options), progress)


def _find(name: str) -> DataSet:
    if is_function_name(name):
        return OWN
    if name not in DATASETS:
        raise DataError(
            f"no data set {name!r}; {closest(name, DATASETS)}; or package.module:function"
        )
    return DATASETS[name]


def _with_files(name: str, directory: Path | str) -> DataSet:
    known = _find(name)
    if known.layout and not str(directory):
        raise DataError(f"{name}: no directory given; give DIR, or data.directory in a recipe")
    return known
