"""A user's own images: a folder for each class, named after it.

    DIR/train/CLASS/*    and DIR/val/CLASS/*, or DIR/valid or DIR/test; the first that exists
    DIR/CLASS/*          with data.split: the share of each class's images that is for testing

Classes are numbered in the order of their sorted names. Images may lie in folders inside of a class's.
Left out are hidden files, and those that are not named like an image (by a suffix that Pillow reads).
Links to folders inside of a class's folder are not followed: they might go round in circles.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

import torch

from dbq.data.files.file_split import FileSplit
from dbq.data.options import DataOptions
from dbq.data.split import Split
from dbq.deploy.pictures.images import require_pillow
from dbq.errors import DataError
from dbq.support.progress import Progress, silent
from dbq.support.text import counted

SIDE = 224
TESTS = ("val", "valid", "test")
LAYOUT = (
    "DIR/train/CLASS/* and DIR/val/CLASS/* (or DIR/valid, or DIR/test), any format that Pillow reads; "
    "or DIR/CLASS/* and data.split = 0.2, the share of each class that is for testing"
)
Files = dict[str, list[str]]  # of each class, relative to the directory


def load(options: DataOptions, device: torch.device) -> tuple[Split, Split]:
    """Train and test."""
    require_pillow()
    root = Path(options.directory)
    if options.split:
        train, test, test_name = _divided(root, options.split, options.split_seed)
    else:
        test_name = next((name for name in TESTS if (root / name).is_dir()), "")
        if not (test_name and (root / "train").is_dir()):
            found = ", ".join(class_folders(root)[:3]) or "no folders"
            raise DataError(
                f"{root} has no folder train with {', '.join(TESTS)} beside it (but {found}): expected "
                f"{LAYOUT}"
            )
        train, test = _classes(root, "train"), _classes(root, test_name)
        _require_same(root, train, test, test_name)

    if len(train) == 1:
        raise DataError(f"{root} has one class, {next(iter(train))}: expected two or more")

    def split(name: str, files: Files) -> Split:
        classes = tuple(files)
        labels = [label for label, kind in enumerate(classes) for _ in files[kind]]
        return FileSplit(
            root, [file for kind in classes for file in files[kind]], labels, name=name,
            classes=classes, side=options.image_size or SIDE, options=options, device=device,
        )  # fmt: skip

    return split("train", train), split(test_name, test)


def prepare(directory: Path, progress: Progress = silent) -> str:
    """Nothing to fetch."""
    raise DataError(f"a folder is made by hand; expected: {LAYOUT}; then dbq data check folder DIR")


def for_testing(names: list[str], share: float, seed: int) -> set[str]:
    """Which of a class's files are for testing: by a hash of seed and name, at least one and not all.

    >>> names = [f"cat/{i}.png" for i in range(10)]
    >>> sorted(for_testing(names, 0.2, seed=0)) == sorted(for_testing(names[::-1], 0.2, seed=0))
    True
    >>> len(for_testing(names, 0.2, seed=0)), len(for_testing(names[:2], 0.9, seed=0))
    (2, 1)
    """
    count = min(max(1, round(share * len(names))), len(names) - 1)

    def drawn(name: str) -> bytes:
        return hashlib.sha256(f"{seed}/{name}".encode(errors="surrogateescape")).digest()

    return set(sorted(names, key=drawn)[:count])


def _divided(root: Path, share: float, seed: int) -> tuple[Files, Files, str]:
    if not 0 < share < 1:
        raise DataError(f"data.split = {share}; expected a share of the images between 0 and 1")
    if (root / "train").is_dir() and any((root / name).is_dir() for name in TESTS):
        raise DataError(
            f"data.split = {share}, but {root} is divided already, into train and others: leave it out"
        )
    files = _classes(root, "")
    for kind, names in files.items():
        if len(names) < 2:
            raise DataError(
                f"{root / kind} has one image, expected two or more: data.split needs one to train on "
                "and one to test"
            )
    test = {kind: for_testing(names, share, seed) for kind, names in files.items()}
    return (
        {kind: [n for n in names if n not in test[kind]] for kind, names in files.items()},
        {kind: [n for n in names if n in test[kind]] for kind, names in files.items()},
        f"{share:g} of each class, seed {seed}",
    )


def _require_same(root: Path, train: Files, test: Files, test_name: str) -> None:
    for these, those, here, there in (
        (train, test, "train", test_name), (test, train, test_name, "train"),
    ):  # fmt: skip
        if missing := [kind for kind in these if kind not in those]:
            raise DataError(
                f"{root / there} has no folder {missing[0]}, which is in {root / here} "
                f"({len(missing)} such): expected the same classes in both"
            )


def _classes(root: Path, part: str) -> Files:
    """The images of each class, sorted."""
    kinds = class_folders(root / part)
    if not kinds:
        raise DataError(f"{root / part} has no class folders: expected {LAYOUT}")
    return {kind: images_below(root, os.path.join(part, kind)) for kind in kinds}


def images_below(root: Path, folder: str) -> list[str]:
    """Paths of the images in a folder and those inside of it, relative to `root`."""
    found: list[str] = []
    others: list[str] = []
    for place, folders, names in os.walk(root / folder, onerror=_cannot_read):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.startswith("."):
                continue
            is_image = os.path.splitext(name)[1].lower() in suffixes()
            file = os.path.relpath(os.path.join(place, name), root)
            (found if is_image else others).append(file)
    if not found:
        also = f" (but {counted(len(others), 'file')} such as {others[0]})" if others else ""
        raise DataError(f"{root / folder} has no image{also}: put some there, or remove the folder")
    return sorted(found)


@cache
def suffixes() -> frozenset[str]:
    """Of the files that Pillow reads, with their dots."""
    from PIL import Image

    known = Image.registered_extensions()  # loads its plugins
    return frozenset(suffix for suffix, kind in known.items() if kind in Image.OPEN)


def class_folders(directory: Path) -> list[str]:
    """Sorted names of folders; files among them, such as archives, are ignored."""
    return [name for name in listing(directory) if (directory / name).is_dir()]


def listing(directory: Path) -> list[str]:
    """Sorted names, without hidden ones."""
    try:
        return sorted(name for name in os.listdir(directory) if not name.startswith("."))
    except OSError as error:
        raise _unreadable(str(directory), error) from None


def _cannot_read(error: OSError) -> None:
    raise _unreadable(str(error.filename), error)


def _unreadable(directory: str, error: OSError) -> DataError:
    return DataError(
        f"cannot read {directory}: {error.strerror}; expected images there, see dbq data list"
    )
