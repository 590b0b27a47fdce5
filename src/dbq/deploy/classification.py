"""Image files classified by a .dbq file, and its accuracy on folders of images, one for each class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dbq.deploy.engine import Net, load
from dbq.deploy.images import images_in, read_image
from dbq.errors import DataError, EngineError, closest
from dbq.support.facts import fact, fact_list, wrong_fact


def class_names(net: Net, file: Path) -> list[str]:
    """What `net`, loaded from `file`, calls its classes; none if it does not say."""
    if len(net.outputs) > 1:
        listed = ", ".join(map(repr, net.outputs))
        raise EngineError(f"{file} has {len(net.outputs)} outputs ({listed}), not one for classes")
    classes, *pixels = net.output_shape
    if pixels != [1, 1]:
        raise EngineError(f"{file} has an output for each pixel, not for each image")
    return fact_list(net.facts, "classes", str, classes)


def classify(net: Net, paths: Sequence[Path]) -> Iterator[npt.NDArray[np.float32]]:
    """The logits of each image file; they need not fit into memory together."""
    length = _resize_length(net.facts, max(net.input_shape[:2]))
    for path in paths:
        yield net(read_image(path, net.input_shape, length))[0]


def evaluate_folder(file: Path, folder: Path, threads: int = 1) -> dict[str, Any]:
    """Top-1 and top-5 of a .dbq file on FOLDER/CLASS/*: a folder of image files for each class.

    Folders go by the names of the classes in the file. If it has none, they are the classes in the
    order of their names.
    """
    with load(file, threads) as net:
        names = class_names(net, file)
        labels = _labels(folder, names, net.output_shape[0])
        top1 = top5 = images = 0
        for place, label in labels.items():
            for logits in classify(net, images_in(place)):
                rank = np.argsort(-logits, kind="stable").tolist().index(label)
                top1, top5, images = top1 + (rank < 1), top5 + (rank < 5), images + 1
        return {
            "network": str(file),
            "recipe": net.name,
            "plan": fact(net.facts, "plan", str, ""),
            "epoch": None,
            "top1": 100 * top1 / images,
            "top5": 100 * top5 / images,
            "images": images,
            "data": str(folder),
            "split": f"{len(labels)} of {net.output_shape[0]} classes",
            "engine": f"libdbq, {net.isa}",
        }


def _labels(folder: Path, names: list[str], count: int) -> dict[Path, int]:
    """The number of the class of each folder."""
    try:
        places = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError as error:
        raise DataError(f"cannot read {folder}: {error.strerror}") from None
    if not places:
        raise DataError(f"{folder}: no folders in it; expected {folder}/CLASS/* for each class")
    if not names:
        if len(places) != count:
            raise DataError(
                f"{folder} has {len(places)} folders, the network {count} classes without names: "
                "expected a folder for each, or names by dbq.lower(..., classes=[...])"
            )
        return {place: number for number, place in enumerate(places)}
    for place in places:
        if place.name not in names:
            raise DataError(f"{place}: no class of the network; {closest(place.name, names)}")
    return {place: names.index(place.name) for place in places}


def _resize_length(facts: Mapping[str, Any], side: int) -> int:
    """The length that `read_image` takes, 0 if the file has none."""
    length = fact(facts, "resize_length", int, 0)
    if length and not side <= length <= 4 * side:
        raise wrong_fact(facts, "resize_length", f"{side} to {4 * side}")
    return length
