"""DataOptions: the [data] section of a recipe."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DataOptions:
    """Which data set, where its files are, and how it is read."""

    name: str
    directory: str = ""  # where the files are; data sets that ship with us need none
    mean: tuple[float, ...] = ()  # per channel, of pixels in [0, 1]; empty: the data set's own
    std: tuple[float, ...] = ()
    image_size: int = 0  # side that the network sees; 0: the data set's own
    workers: int = 2  # processes that decode images; data sets held in memory use none
    skip_unreadable: bool = False  # leave out damaged images and report them, instead of stopping
