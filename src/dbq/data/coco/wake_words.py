"""Visual Wake Words (Chowdhery et al. 2019): is there a person in this COCO photograph?

Yes if the box of at least one person covers more than 0.5 % of the image. This is the paper's rule;
some converters use the area of the outline inside the box. If mscoco_minival_ids.txt exists, its 8,059
images are the test set and all others the training set. Without it images are divided by a hash of
their id, and the names of the splits say so: accuracies on the two test sets are not comparable.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import torch

from dbq.data.coco.annotations import Labelled, annotation_files, label_images
from dbq.data.files.file_split import FileSplit
from dbq.data.options import DataOptions
from dbq.data.split import Split
from dbq.errors import DataError
from dbq.support.progress import Progress, silent

SIDE = 224
LEAST_SHARE = 0.005
CLASSES = ("no person", "person")
TRAIN_IDS, MINIVAL_IDS = "mscoco_train_ids.txt", "mscoco_minival_ids.txt"
TEST_PER_MILLE = 65  # of the hash split: about 8,000 of 123,287, as in minival
LAYOUT = (
    "DIR/annotations/instances_train2014.json and instances_val2014.json with the images in "
    "DIR/train2014/ and DIR/val2014/ (or all of 2017), from cocodataset.org; for the official test "
    "images DIR/mscoco_minival_ids.txt, one image id a line, and if wanted mscoco_train_ids.txt alike"
)


def load(options: DataOptions, device: torch.device) -> tuple[Split, Split]:
    """Train and test."""
    root = Path(options.directory)
    images: dict[int, Labelled] = {}
    for path in annotation_files(root):
        images |= label_images(path, "person", LEAST_SHARE)
    if not options.skip_unreadable:
        _require_files(root, images)
    train, test, how = _divide(root, images)

    def split(name: str, chosen: list[int]) -> Split:
        if not chosen:
            raise DataError(f"{root}: no images for {name}, expected COCO's 123,287 in all")
        return FileSplit(
            root, [images[i].file for i in chosen], [images[i].label for i in chosen],
            name=f"{name} ({how})", classes=CLASSES,
            side=options.image_size or SIDE, options=options, device=device,
        )  # fmt: skip

    return split("train", train), split("minival" if how == "official ids" else "test", test)


def prepare(directory: Path, progress: Progress = silent) -> str:
    """Check that COCO is there, or say what to download: 25 GB, under terms of their own."""
    try:
        train, test = load(DataOptions("visual_wake_words", str(directory)), torch.device("cpu"))
    except DataError as error:
        raise DataError(f"{error}. Download COCO by hand; expected: {LAYOUT}") from None
    return f"COCO is in {directory}: {train.name}, {len(train)} images; {test.name}, {len(test)}"


def in_hash_split(image: int) -> bool:
    """Whether an image is for testing in "hash split 1". Must never change under that name.

    >>> sum(map(in_hash_split, range(100_000)))
    6483
    """
    digest = hashlib.sha256(str(image).encode()).digest()
    return int.from_bytes(digest[:8], "big") % 1000 < TEST_PER_MILLE


def _divide(root: Path, images: dict[int, Labelled]) -> tuple[list[int], list[int], str]:
    """Ids for training, ids for testing, and the name of this division."""
    minival = _read_ids(root, MINIVAL_IDS, images)
    train = _read_ids(root, TRAIN_IDS, images)
    if minival is None:
        if train is not None:
            raise DataError(
                f"{root} has {TRAIN_IDS} without {MINIVAL_IDS}: expected both or neither"
            )
        test = {i for i in images if in_hash_split(i)}
        return sorted(images.keys() - test), sorted(test), "hash split 1"
    if train is None:
        train = images.keys() - minival
    if both := train & minival:
        raise DataError(
            f"image {min(both)} is in {TRAIN_IDS} and in {MINIVAL_IDS} ({len(both)} such): "
            "expected to train and to test on different images"
        )
    return sorted(train), sorted(minival), "official ids"


def _read_ids(root: Path, name: str, images: dict[int, Labelled]) -> set[int] | None:
    """The ids in a file of the data set's directory or its annotations/; None without that file."""
    path = next((p for p in (root / name, root / "annotations" / name) if p.is_file()), None)
    if path is None:
        return None
    try:
        ids = {int(word) for word in path.read_text(encoding="utf-8").split()}
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}; expected one image id a line") from None
    if unknown := ids - images.keys():
        raise DataError(
            f"{path} has image {min(unknown)}, which no annotation file lists ({len(unknown)} such): "
            "expected ids of COCO train and val"
        )
    return ids


def _require_files(root: Path, images: dict[int, Labelled]) -> None:
    """Raise before hours of training, not in the middle of them."""
    wanted = [image.file for image in images.values()]
    folders = {file.partition("/")[0] for file in wanted}
    present = {f"{folder}/{name}" for folder in folders if (root / folder).is_dir()
               for name in os.listdir(root / folder)}  # fmt: skip
    if missing := [file for file in wanted if file not in present]:
        raise DataError(
            f"{root / missing[0]} is missing, but listed in the annotations ({len(missing)} such): "
            "download it, or set data.skip_unreadable = true"
        )
