"""ImageNet (ILSVRC2012): class folders for training; for testing class folders or a flat folder.

Subsets of the classes work too; classes are numbered in the order of the sorted folder names.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

from dbq.data.files.file_split import FileSplit
from dbq.data.files.folder import class_folders, listing
from dbq.data.imagenet.labels import read_labels
from dbq.data.options import DataOptions
from dbq.data.split import Split
from dbq.errors import DataError
from dbq.support.progress import Progress, silent

SIDE = 224
LAYOUT = (
    "DIR/train/WNID/*.JPEG from ILSVRC2012_img_train.tar and the tar of every class in it; "
    "DIR/val/*.JPEG from ILSVRC2012_img_val.tar, moved into folders DIR/val/WNID/ or flat, with "
    "DIR/val_labels.txt (lines `FILE WNID`, or `FILE NUMBER` counting sorted WNIDs from 0, or only a "
    "WNID, in the order of file names) or the devkit's ILSVRC2012_validation_ground_truth.txt and "
    "DIR/synset_ids.txt (lines `ID WNID`, from the devkit's meta.mat)"
)


def load(options: DataOptions, device: torch.device) -> tuple[Split, Split]:
    """Train and val."""
    root = Path(options.directory)
    classes = class_folders(root / "train")
    if not classes:
        raise DataError(
            f"{root / 'train'} has no class folders (n01440764, ...): expected DIR/train/WNID/*.JPEG; "
            "unpack the tar of every class into a folder of its name"
        )

    def split(name: str, files: list[str], labels: list[int]) -> Split:
        return FileSplit(
            root, files, labels, name=name, classes=tuple(classes),
            side=options.image_size or SIDE, options=options, device=device,
        )  # fmt: skip

    return split("train", *_in_folders(root, "train", classes)), split("val", *_val(root, classes))


def prepare(directory: Path, progress: Progress = silent) -> str:
    """Check that ImageNet is there, or say what to download: its terms forbid doing it for others."""
    try:
        train, test = load(DataOptions("imagenet", str(directory)), torch.device("cpu"))
    except DataError as error:
        advice = "Download ImageNet by hand from image-net.org, under its terms"
        raise DataError(f"{error}. {advice}; expected: {LAYOUT}") from None
    return (
        f"ImageNet is in {directory}: {len(train)} images of {len(train.classes)} classes to train, "
        f"{len(test)} to test"
    )


def _val(root: Path, classes: list[str]) -> tuple[list[str], list[int]]:
    folders = class_folders(root / "val")
    if not folders:
        return read_labels(root, listing(root / "val"), classes)
    train, val = root / "train", root / "val"
    problem = ""
    if missing := sorted(set(classes) - set(folders)):
        problem = f"{val} has no folder {missing[0]}, which is in {train} ({len(missing)} missing)"
    elif foreign := sorted(set(folders) - set(classes)):
        problem = f"{val} has a folder {foreign[0]}, which is not in {train} ({len(foreign)} such)"
    if problem:
        raise DataError(f"{problem}: expected the same classes in both")
    return _in_folders(root, "val", classes)


def _in_folders(root: Path, part: str, classes: list[str]) -> tuple[list[str], list[int]]:
    files: list[str] = []
    labels: list[int] = []
    for label, wnid in enumerate(classes):
        found = listing(root / part / wnid)
        if not found:
            raise DataError(
                f"{root / part / wnid} is empty, expected its images: unpack {wnid}.tar there"
            )
        files += [os.path.join(part, wnid, name) for name in found]
        labels += [label] * len(found)
    return files, labels
