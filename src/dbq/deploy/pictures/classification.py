"""Images classified by a .dbq file, and its accuracy on folders of images, one for each class."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dbq.deploy.engine import Net, load, whole
from dbq.deploy.pictures.images import fit_pixels, images_in, read_image, resize_rule
from dbq.errors import DataError, EngineError, closest
from dbq.support.facts import fact, fact_list


@dataclass(frozen=True)
class Guess:
    """A class that an image may be of: its name, its number, and its logit."""

    name: str
    index: int
    logit: float


def classify(net: Net, image: str | os.PathLike[str] | npt.ArrayLike, top: int = 5) -> list[Guess]:
    """The `top` classes of an image, best first; see `Net.classify`."""
    names = class_names(net) or list(map(str, range(net.output_shape[0])))
    length = resize_rule(net.facts, net.input_shape)
    if isinstance(image, str | os.PathLike):
        pixels = read_image(image, net.input_shape, length)
    else:
        pixels = fit_pixels(image, net.input_shape, length)
    logits = net(pixels)[0]
    best = np.argsort(-logits, kind="stable")[: whole(top, "classes", 1)]
    return [Guess(names[k], int(k), float(logits[k])) for k in best]


def class_names(net: Net) -> list[str]:
    """What `net` calls its classes; none if it does not say. An error if it has none to call."""
    if len(net.outputs) > 1:
        listed = ", ".join(map(repr, net.outputs))
        raise EngineError(
            f"{net.name} has {len(net.outputs)} outputs ({listed}), not one for classes"
        )
    classes, *pixels = net.output_shape
    if pixels != [1, 1]:
        raise EngineError(f"{net.name} has an output for each pixel, not for each image")
    return fact_list(net.facts, "classes", str, classes)


def evaluate_folder(file: Path, folder: Path, threads: int = 1) -> dict[str, Any]:
    """Top-1 and top-5 of a .dbq file on FOLDER/CLASS/*: a folder of image files for each class.

    Folders go by the names of the classes in the file. If it has none, they are the classes in the
    order of their names.
    """
    with load(file, threads) as net:
        labels = _labels(folder, class_names(net), net.output_shape[0])
        top1 = top5 = images = 0
        for place, label in labels.items():
            for path in images_in(place):
                best = [guess.index for guess in classify(net, path)]
                top1, top5, images = top1 + (best[0] == label), top5 + (label in best), images + 1
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
