"""Labels of ImageNet's 50,000 validation images where they are in one flat folder.

The form of a file follows from its lines:

    ILSVRC2012_val_00000001.JPEG n01751748    a file and its wnid
    ILSVRC2012_val_00000001.JPEG 65           a file and the place of its class, sorted, from 0
    n01751748                                 wnids alone, in the order of file names
    490                                       the devkit's ids, in the order of file names

The devkit numbers its classes in an order of its own, so the last form needs synset_ids.txt as well.
"""

from __future__ import annotations

import os
from pathlib import Path

from dbq.errors import DataError

LABEL_FILES = ("val_labels.txt", "ILSVRC2012_validation_ground_truth.txt")
SYNSETS = "synset_ids.txt"


def read_labels(root: Path, images: list[str], classes: list[str]) -> tuple[list[str], list[int]]:
    """The files of root/val, relative to `root`, and their labels."""
    if not images:
        raise DataError(f"{root / 'val'} is empty: unpack ILSVRC2012_img_val.tar there")
    path = next((root / name for name in LABEL_FILES if (root / name).is_file()), None)
    if path is None:
        raise DataError(
            f"{root / 'val'} has {len(images)} files and no class folders: expected their labels in "
            f"{' or '.join(LABEL_FILES)} beside it, see dbq data list"
        )
    rows = _rows(path)
    places = {wnid: place for place, wnid in enumerate(classes)}
    if len(rows[0]) == 2:
        labels = _by_name(path, rows, images, places)
    elif len(rows) != len(images):
        raise DataError(
            f"{path} has {len(rows)} labels, but {root / 'val'} {len(images)} images: "
            "expected one for each"
        )
    else:
        ids = _synset_ids(root) if rows[0][0].isdecimal() else {}
        wnids = (ids.get(word, word) for (word,) in rows)
        labels = [_place(path, line, wnid, places) for line, wnid in enumerate(wnids, 1)]
    return [os.path.join("val", name) for name in images], labels


def _rows(path: Path) -> list[list[str]]:
    """Words of every line: one each, or two each."""
    try:
        rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}; expected lines of text") from None
    if not rows:
        raise DataError(f"{path} is empty, expected a line for every image")
    for line, row in enumerate(rows, 1):
        if len(row) not in (1, 2) or len(row) != len(rows[0]):
            raise DataError(
                f"{path}, line {line} has {len(row)} words: expected `FILE LABEL` in every line, or "
                "one label in every line"
            )
    return rows


def _by_name(
    path: Path, rows: list[list[str]], images: list[str], places: dict[str, int]
) -> list[int]:
    label_of = {}
    for line, (name, word) in enumerate(rows, 1):
        label_of[name] = int(word) if word.isdecimal() else _place(path, line, word, places)
        if label_of[name] >= len(places):
            raise DataError(f"{path}, line {line}: label {word}, expected 0 to {len(places) - 1}")
    if missing := [name for name in images if name not in label_of]:
        raise DataError(f"{path} has no label for {missing[0]} ({len(missing)} missing)")
    if absent := sorted(label_of.keys() - set(images)):
        raise DataError(
            f"{path} names {absent[0]}, which is not in {path.parent / 'val'} ({len(absent)} such)"
        )
    return [label_of[name] for name in images]


def _place(path: Path, line: int, wnid: str, places: dict[str, int]) -> int:
    if wnid not in places:
        raise DataError(
            f"{path}, line {line}: label {wnid} is not a class folder of {path.parent / 'train'}"
        )
    return places[wnid]


def _synset_ids(root: Path) -> dict[str, str]:
    """The devkit's ids, as written, and their wnids."""
    path = root / SYNSETS
    if not path.is_file():
        raise DataError(
            f"labels that are bare numbers are the devkit's ids and need {path}: lines `ID WNID`, "
            "the columns ILSVRC2012_ID and WNID of the devkit's meta.mat"
        )
    rows = _rows(path)
    if len(rows[0]) != 2:
        raise DataError(f"{path} has lines of one word, expected `ID WNID`")
    return {row[0]: row[1] for row in rows}
