"""COCO's annotations: the file of every image, and whether it shows a category at a certain size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dbq.errors import DataError, first_line

YEARS = ("2014", "2017")  # the same 123,287 images, divided differently
KEPT = {
    "images", "annotations", "categories", "id", "name", "file_name", "width", "height",
    "image_id", "category_id", "bbox",
}  # fmt: skip


class Labelled(NamedTuple):
    """An image's file, relative to the data set's directory, and its label."""

    file: str
    label: int


def annotation_files(directory: Path) -> list[Path]:
    """instances_train and instances_val of one year, in `directory` or its annotations/."""
    wanted = [f"instances_{part}{{}}.json" for part in ("train", "val")]
    for year in YEARS:
        for folder in (directory / "annotations", directory):
            paths = [folder / name.format(year) for name in wanted]
            if all(path.is_file() for path in paths):
                return paths
    raise DataError(
        f"no COCO annotations in {directory}: expected annotations/instances_train2014.json and "
        "instances_val2014.json (or both of 2017) there, from annotations_trainval2014.zip"
    )


def label_images(path: Path, category: str, least_share: float) -> dict[int, Labelled]:
    """Image id to file and label: 1 if a box of `category` covers more than `least_share` of it."""
    parsed = _parse(path)
    folder = path.stem.removeprefix("instances_")
    try:
        wanted = {kind["id"] for kind in parsed["categories"] if kind["name"] == category}
        images = {image["id"]: image for image in parsed["images"]}
        large = {
            one["image_id"]
            for one in parsed["annotations"]
            if one["category_id"] in wanted and _share(one, images[one["image_id"]]) > least_share
        }
        labelled = {
            number: Labelled(f"{folder}/{Path(image['file_name']).name}", int(number in large))
            for number, image in images.items()
        }
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is not a file of COCO instances ({type(error).__name__}: {first_line(error)}): "
            "fetch it again"
        ) from None
    if not wanted:
        raise DataError(f"{path} has no category {category!r}, expected COCO's 80")
    if not images:
        raise DataError(f"{path} lists no images: fetch it again")
    return labelled


def _parse(path: Path) -> Mapping[str, Any]:
    """The file without the outlines of objects, nearly all of its 450 MB, dropped while reading."""
    try:
        with path.open(encoding="utf-8") as file:
            parsed = json.load(file, object_hook=_keep)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read {path}: {first_line(error)}; fetch it again") from None
    if not isinstance(parsed, dict) or not parsed.keys() >= {"images", "annotations", "categories"}:
        raise DataError(
            f"{path} is not a file of COCO instances: expected images, annotations and categories"
        )
    return parsed


def _keep(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key in KEPT}


def _share(annotation: Mapping[str, Any], image: Mapping[str, Any]) -> float:
    _, _, width, height = annotation["bbox"]
    area = image["width"] * image["height"]
    if not area > 0:
        raise ValueError(f"image {image['id']} has no area")
    return float(width * height / area)
