"""DataOptions: the [data] section of a recipe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dbq.data.views import MEAN, STD
from dbq.errors import DataError, closest
from dbq.plans.plan import Option

Statistics = tuple[tuple[float, ...], tuple[float, ...]]

NORMALISATIONS: dict[str, Statistics] = {
    "imagenet": (MEAN, STD),
    "tf": ((0.5,) * 3, (0.5,) * 3),  # pixels from -1 to 1
    "none": ((0.0,) * 3, (1.0,) * 3),  # pixels from 0 to 1
}


@dataclass(frozen=True)
class DataOptions:
    """Which data set, where its files are, and how it is read."""

    name: str  # of a data set, or "package.module:function" that returns two torch Datasets
    directory: str = ""  # where the files are; data sets that ship with us need none
    mean: tuple[float, ...] = ()  # per channel, of pixels in [0, 1]; empty: the data set's own
    std: tuple[float, ...] = ()
    image_size: int = 0  # side that the network sees; 0: the data set's own
    workers: int = 2  # processes that decode images; data sets held in memory use none
    skip_unreadable: bool = False  # leave out damaged images and report them, instead of stopping
    # Instead of mean and std: "imagenet", "tf", "none", or [mean, std] with a number or three for each
    normalise: Any = ""
    augment: Literal["full", "crop", "none"] = "full"  # crop: random crops that are never mirrored
    split: float = 0.0  # of one folder: the share of each class's images that is for testing
    # The share of the training images to test on in place of the test set: to choose settings by.
    held_out: float = 0.0
    split_seed: int = 0  # of split and of held_out
    options: Mapping[str, Option] = field(default_factory=dict)  # of a function of the user's

    def __post_init__(self) -> None:
        object.__setattr__(self, "normalise", _normalise(self.normalise))
        if self.normalise and (self.mean or self.std):
            raise DataError("normalise stands for mean and std: give one or the other")

    @property
    def statistics(self) -> Statistics:
        """Mean and standard deviation that were asked for; empty where the data set's own apply."""
        if isinstance(self.normalise, tuple):
            return self.normalise
        return NORMALISATIONS.get(self.normalise, (self.mean, self.std))


def _normalise(value: object) -> str | Statistics:
    """The value of `normalise`, checked: a known name, or three means and three deviations.

    >>> _normalise([0.5, [0.2, 0.2, 0.3]])
    ((0.5, 0.5, 0.5), (0.2, 0.2, 0.3))
    """
    if isinstance(value, str):
        if value and value not in NORMALISATIONS:
            near = closest(value, NORMALISATIONS)
            raise DataError(f"normalise = {value!r}; {near}; or [mean, std]")
        return value
    if isinstance(value, list | tuple) and len(value) == 2:
        mean, std = map(_three, value)
        if mean and std and min(std) > 0:
            return mean, std
    known = ", ".join(NORMALISATIONS)
    raise DataError(
        f"normalise = {value!r}; expected {known} or [mean, std], a number or three each, std over 0"
    )


def _three(value: object) -> tuple[float, ...]:
    """A number for each channel; none if that is not what `value` is."""
    values: list[Any] = list(value) if isinstance(value, list | tuple) else [value] * 3
    numbers = all(type(v) in (int, float) and math.isfinite(v) for v in values)
    return tuple(map(float, values)) if numbers and len(values) == 3 else ()
