"""Tiny-ImageNet in both layouts, and what is refused."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dbq.data.imagenet.tiny import SIDE
from dbq.data.options import DataOptions
from dbq.data.split import TensorSplit
from dbq.data.table import check_data, load_data, prepare_data
from dbq.errors import DataError
from tests.photographs import write_photograph

WNIDS = ("n01443537", "n01629819", "n02124075")
VAL_LABELS = [2, 0, 1, 2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """As the archive has it: three classes with 1, 2 and 3 training images, four to test."""
    for label, wnid in enumerate(WNIDS):
        for i in range(label + 1):
            file = tmp_path / "train" / wnid / "images" / f"{wnid}_{i}.JPEG"
            write_photograph(file, SIDE, SIDE, seed=10 * label + i)
        (tmp_path / "train" / wnid / f"{wnid}_boxes.txt").write_text("n_0.JPEG 0 0 62 62\n")
    for i in range(len(VAL_LABELS)):
        write_photograph(tmp_path / "val" / "images" / f"val_{i}.JPEG", SIDE, SIDE, seed=50 + i)
    lines = [f"val_{i}.JPEG\t{WNIDS[label]}\t0\t32\t44\t62" for i, label in enumerate(VAL_LABELS)]
    annotations = tmp_path / "val" / "val_annotations.txt"
    annotations.write_text("\n".join(lines[::-1]) + "\n")  # in another order than the names
    return tmp_path


def load(root: Path, augment: str = "full") -> tuple[TensorSplit, TensorSplit]:
    options = DataOptions("tiny_imagenet", str(root), augment=augment)  # type: ignore[arg-type]
    train, val = load_data(options)
    assert isinstance(train, TensorSplit)
    assert isinstance(val, TensorSplit)
    return train, val


def in_folders(root: Path) -> None:
    for i, label in enumerate(VAL_LABELS):
        (root / "val" / WNIDS[label]).mkdir(exist_ok=True)
        (root / "val" / "images" / f"val_{i}.JPEG").rename(
            root / "val" / WNIDS[label] / f"val_{i}.JPEG"
        )
    shutil.rmtree(root / "val" / "images")
    (root / "val" / "val_annotations.txt").unlink()


def test_the_archive_as_it_is(root: Path) -> None:
    train, val = load(root)
    assert train.classes == val.classes == WNIDS
    assert train.labels.tolist() == [0, 1, 1, 2, 2, 2]
    assert val.labels.tolist() == VAL_LABELS
    with Image.open(root / "val" / "images" / "val_3.JPEG") as image:
        expected = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    assert np.array_equal(val.images[3].numpy(), expected)


def test_test_images_in_class_folders(root: Path) -> None:
    in_folders(root)
    _, val = load(root)
    assert val.labels.tolist() == sorted(VAL_LABELS)


def test_augmentation_is_that_of_the_options(root: Path) -> None:
    assert (load(root)[0].pad, load(root)[0].flip) == (8, True)
    assert (load(root, "crop")[0].pad, load(root, "crop")[0].flip) == (8, False)
    assert (load(root, "none")[0].pad, load(root, "none")[0].flip) == (0, False)


def test_prepare_and_check(root: Path) -> None:
    assert "6 images of 3 classes to train, 4 to test" in prepare_data("tiny_imagenet", root)
    assert [part.images for part in check_data("tiny_imagenet", root).splits] == [6, 4]


def damage_size(root: Path) -> None:
    write_photograph(root / "train" / WNIDS[0] / "images" / f"{WNIDS[0]}_0.JPEG", 80, 60)


def damage_file(root: Path) -> None:
    (root / "val" / "images" / "val_1.JPEG").write_bytes(b"no image")


def damage_annotations(root: Path) -> None:
    (root / "val" / "val_annotations.txt").write_text("val_0.JPEG n01443537\nval_1.JPEG n09\n")


def remove_val(root: Path) -> None:
    shutil.rmtree(root / "val")


def remove_train(root: Path) -> None:
    shutil.rmtree(root / "train")


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (damage_size, "n01443537_0.JPEG is 80x60: Tiny-ImageNet's images are 64x64"),
        (damage_file, "val_1.JPEG: "),
        (damage_annotations, "val_annotations.txt has no class for val_1.JPEG"),
        (remove_val, "has neither val_annotations.txt nor the class folders"),
        (remove_train, "has no class folders: expected"),
    ],
)
def test_what_is_refused(root: Path, damage: object, named: str) -> None:
    assert callable(damage)
    damage(root)
    with pytest.raises(DataError, match=re.escape(named)):
        load(root)
    with pytest.raises(DataError, match=r"by hand, under ImageNet's terms"):
        prepare_data("tiny_imagenet", root)
