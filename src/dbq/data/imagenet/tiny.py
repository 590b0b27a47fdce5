"""Tiny-ImageNet: 200 of ImageNet's classes, 100,000 + 10,000 photographs scaled to 64x64.

All of it is decoded once and kept in memory, 1.4 GB: batches are then made as CIFAR-10's are.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dbq.data.files.folder import class_folders, images_below, listing
from dbq.data.options import DataOptions
from dbq.data.split import Split, TensorSplit
from dbq.data.views import MEAN, STD
from dbq.deploy.pictures.images import UnreadableImageError, decode, require_pillow
from dbq.errors import DataError
from dbq.support.progress import Progress, silent

SIDE, PAD = 64, 8
ANNOTATIONS = "val_annotations.txt"
LAYOUT = (
    "DIR/train/WNID/ and DIR/val/ as in tiny-imagenet-200.zip (DIR/val/images/* with their classes in "
    f"DIR/val/{ANNOTATIONS}), or with folders DIR/val/WNID/"
)


def load(options: DataOptions, device: torch.device) -> tuple[Split, Split]:
    """Train (pad 8, crop, flip) and val."""
    require_pillow()
    root = Path(options.directory)
    classes = class_folders(root / "train") if (root / "train").is_dir() else []
    if not classes:
        raise DataError(f"{root / 'train'} has no class folders: expected {LAYOUT}")
    mean, std = options.statistics

    def split(name: str, files: list[str], labels: list[int]) -> Split:
        return TensorSplit(
            _pixels(root, files), torch.tensor(labels), name=name, classes=tuple(classes),
            mean=mean or MEAN, std=std or STD, pad=0 if options.augment == "none" else PAD,
            flip=options.augment == "full", device=device,
        )  # fmt: skip

    return split("train", *_in_folders(root, "train", classes)), split("val", *_val(root, classes))


def prepare(directory: Path, progress: Progress = silent) -> str:
    """Check that it is there, or say what to download: ImageNet's terms forbid doing it for others."""
    try:
        train, val = load(DataOptions("tiny_imagenet", str(directory)), torch.device("cpu"))
    except DataError as error:
        raise DataError(
            f"{error}. Download tiny-imagenet-200.zip by hand, under ImageNet's terms, and unpack it; "
            f"expected: {LAYOUT}"
        ) from None
    return (
        f"Tiny-ImageNet is in {directory}: {len(train)} images of {len(train.classes)} classes to "
        f"train, {len(val)} to test"
    )


def _in_folders(root: Path, part: str, classes: list[str]) -> tuple[list[str], list[int]]:
    of_class = [images_below(root, f"{part}/{wnid}") for wnid in classes]
    labels = [label for label, files in enumerate(of_class) for _ in files]
    return [file for files in of_class for file in files], labels


def _val(root: Path, classes: list[str]) -> tuple[list[str], list[int]]:
    annotations = root / "val" / ANNOTATIONS
    if annotations.is_file():
        names = listing(root / "val" / "images")
        return [f"val/images/{name}" for name in names], _annotated(annotations, names, classes)
    found = class_folders(root / "val") if (root / "val").is_dir() else []
    if found != classes:
        raise DataError(
            f"{root / 'val'} has neither {ANNOTATIONS} nor the class folders of {root / 'train'}: "
            f"expected {LAYOUT}"
        )
    return _in_folders(root, "val", classes)


def _annotated(path: Path, names: list[str], classes: list[str]) -> list[int]:
    """Labels of files, from lines `FILE WNID` and what follows (a box)."""
    rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    wnid_of = {row[0]: row[1] for row in rows if len(row) > 1}
    places = {wnid: place for place, wnid in enumerate(classes)}
    for name in names:
        if wnid_of.get(name) not in places:
            raise DataError(
                f"{path} has no class for {name} that is in {path.parents[1] / 'train'}"
            )
    return [places[wnid_of[name]] for name in names]


def _pixels(root: Path, files: list[str]) -> Tensor:
    """All images, uint8 [N, 3, 64, 64]."""
    pixels = np.empty((len(files), SIDE, SIDE, 3), np.uint8)
    for image, file in zip(pixels, files, strict=True):
        try:
            picture = decode(str(root / file))
        except UnreadableImageError as error:
            raise DataError(f"cannot read {root / file}: {error}") from None
        if picture.size != (SIDE, SIDE):
            raise DataError(
                f"{root / file} is {picture.width}x{picture.height}: Tiny-ImageNet's images are "
                f"{SIDE}x{SIDE}; photographs of other sizes are data of the kind `imagenet`"
            )
        image[:] = np.asarray(picture)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
