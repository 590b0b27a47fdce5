"""Data of the user's own, made by a function: "package.module:function" as data.name.

The function is called with data.options, and with `directory` if data.directory is given. It returns two
torch Datasets, to train and to test on, with `len` and items (image, label). The names of the classes
are the attribute `classes` of one of them (or of what it is a Subset of), as in torchvision's.

An image is a PIL image or a uint8 tensor [C, H, W], which dbq resizes, crops, augments and normalises;
or a float tensor [3, side, side] as the network shall see it, and nothing more is done to it.
data.normalise then says how it was made from pixels, because the exported file has to do the same; the
side is data.image_size. A label is a whole number from 0 to the number of classes - 1.

An item may be read any number of times, by several processes, in any order. Random numbers that it draws
from torch, numpy or random are seeded for each item and epoch, so that runs can be resumed. An exception
is reported as an unreadable image.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from dbq.data.options import DataOptions
from dbq.data.reading import Sample, WorkerSplit
from dbq.data.split import Split
from dbq.data.views import centre_view, random_view, resize_length
from dbq.deploy.pictures.images import UnreadableImageError, require_pillow, upright_rgb
from dbq.errors import DataError, UserCodeError
from dbq.support.imports import blame, call, import_function

SIDE = 224


def load(options: DataOptions, device: torch.device) -> tuple[Split, Split]:
    """Train and test."""
    require_pillow()
    name, arguments = options.name, dict(options.options)
    if options.directory:
        if "directory" in arguments:
            raise DataError("data.options.directory: it is data.directory")
        arguments["directory"] = options.directory
    made = call(import_function(name), arguments, name, "data.options")
    if not (isinstance(made, tuple | list) and len(made) == 2):
        raise UserCodeError(f"{name} returned {_kind(made)}; expected two Datasets, train and test")
    for dataset in made:
        if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            raise UserCodeError(
                f"{name} returned {_kind(dataset)} among its Datasets; expected len() and indexing"
            )
    classes = _classes(made, name)
    train, test = (
        DatasetSplit(dataset, part, classes, options, device)
        for part, dataset in zip(("train", "test"), made, strict=True)
    )
    return train, test


class DatasetSplit(WorkerSplit):
    """A torch Dataset of the user's."""

    def __init__(
        self, dataset: Any, name: str, classes: tuple[str, ...], options: DataOptions,
        device: torch.device | str = "cpu",
    ) -> None:  # fmt: skip
        super().__init__(name, classes, options.image_size or SIDE, options, device)
        self.dataset, self.source = dataset, options.name
        if not len(dataset):
            raise UserCodeError(f"{options.name}: its {name} Dataset is empty")
        try:
            with _seeded(0, 0):
                image = _pair(dataset[0])[0]
        except Exception as error:
            raise UserCodeError(f"{self.place(0)} cannot be read: {blame(error)}") from error
        self.normalised = isinstance(image, Tensor) and image.is_floating_point()
        if self.normalised and not all(options.statistics):
            raise DataError(
                f"{options.name} gives float tensors: say by data.normalise (imagenet, tf, none, or "
                "[mean, std]) how they were made from pixels"
            )
        self.resize_length = 0 if self.normalised else resize_length(self.side)

    def __len__(self) -> int:
        return len(self.dataset)

    def place(self, index: int) -> str:
        """The name of an item."""
        return f"item {index} of {self.source}'s {self.name} Dataset"

    def reader(self, draw: int | None) -> Dataset[Sample | str]:
        return _Reader(self, draw)


class _Reader(Dataset["Sample | str"]):
    def __init__(self, split: DatasetSplit, draw: int | None) -> None:
        self.dataset, self.side, self.draw = split.dataset, split.side, draw
        self.normalised, self.classes = split.normalised, len(split.classes)
        self.augment = split.augment

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Sample | str:
        try:
            with _seeded(self.draw or 0, index):
                image, label = _pair(self.dataset[index])
            return Sample(self._image(image, index), self._label(label))
        except UnreadableImageError as error:
            return str(error)
        except Exception as error:
            return blame(error)

    def _label(self, label: Any) -> int:
        try:
            number = int(label)
        except (TypeError, ValueError):
            number = -1
        if not 0 <= number < self.classes or number != label:
            raise UnreadableImageError(f"label {label!r}, expected 0 to {self.classes - 1}")
        return number

    def _image(self, image: Any, index: int) -> Any:
        from PIL.Image import Image

        if isinstance(image, Tensor) and image.is_floating_point():
            shape, expected = list(image.shape), [3, self.side, self.side]
            if not self.normalised:
                raise UnreadableImageError("a float tensor, where item 0 holds pixels")
            if shape != expected:
                raise UnreadableImageError(
                    f"a tensor {shape}, expected {expected}; the side is data.image_size"
                )
            return image
        if self.normalised:
            raise UnreadableImageError("no float tensor, where item 0 is one")
        if isinstance(image, Tensor):
            image = _picture(image)
        if not isinstance(image, Image):
            raise UnreadableImageError(f"{_kind(image)}, expected a PIL image or a tensor")
        rgb = upright_rgb(image)
        if self.draw is None or self.augment == "none":
            return centre_view(rgb, self.side)
        rng = np.random.default_rng([self.draw, index])
        return random_view(rgb, self.side, rng, self.augment == "full")


def _picture(pixels: Tensor) -> Any:
    """A uint8 tensor [C, H, W] as a PIL image."""
    from PIL import Image

    if pixels.dtype != torch.uint8 or pixels.ndim != 3 or len(pixels) not in (1, 3):
        form = f"{pixels.dtype} {list(pixels.shape)}".removeprefix("torch.")
        raise UnreadableImageError(f"a tensor {form}, expected uint8 [1 or 3, H, W]")
    array = pixels.permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(array if len(pixels) == 3 else array[:, :, 0])


def _pair(item: Any) -> tuple[Any, Any]:
    if not (isinstance(item, tuple | list) and len(item) == 2):
        raise UnreadableImageError(f"{_kind(item)}, expected a pair (image, label)")
    return item[0], item[1]


@contextmanager
def _seeded(draw: int, index: int) -> Iterator[None]:
    """Random numbers that depend on (draw, index) alone inside, and are untouched outside."""
    seed = int(np.random.SeedSequence([draw, index]).generate_state(1, np.uint64)[0])
    python, array = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(array)  # noqa: NPY002


def _classes(datasets: tuple[Any, ...] | list[Any], name: str) -> tuple[str, ...]:
    for dataset in datasets:
        inner = dataset
        while inner is not None:
            if (found := getattr(inner, "classes", None)) is not None:
                return _names(found, name)
            inner = getattr(inner, "dataset", None)
    raise UserCodeError(
        f"{name}: its Datasets have no attribute `classes`, the names of the classes"
    )


def _names(classes: Any, name: str) -> tuple[str, ...]:
    names = tuple(classes) if isinstance(classes, list | tuple) else ()
    if len(set(names)) < 2 or not all(isinstance(each, str) for each in names):
        raise UserCodeError(f"{name}: `classes` is {classes!r:.80}; expected names of two or more")
    if twice := [each for each in names if names.count(each) > 1]:
        raise UserCodeError(f"{name}: `classes` has {twice[0]!r} more than once")
    return names


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
