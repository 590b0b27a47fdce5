"""ImageNet's layouts: class folders, flat validation images with every form of labels, and damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from dbq.data.files.file_split import FileSplit
from dbq.data.options import DataOptions
from dbq.data.table import check_data, load_data, prepare_data
from dbq.errors import DataError
from tests.photographs import write_photograph

WNIDS = ["n01440764", "n01443537", "n02119789"]
VAL = [f"ILSVRC2012_val_0000000{i}.JPEG" for i in range(1, 5)]
VAL_LABELS = [2, 0, 1, 2]
DEVKIT_IDS = "1 n02119789\n2 n01443537\n3 n01440764\n"  # not in the order of wnids


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three classes with 1, 2 and 3 training images; four validation images, flat, no labels."""
    for label, wnid in enumerate(reversed(WNIDS)):  # made in another order than the sorted one
        for i in range(3 - label):
            write_photograph(tmp_path / "train" / wnid / f"{wnid}_{i}.JPEG", seed=label)
    for i, name in enumerate(VAL):
        write_photograph(tmp_path / "val" / name, seed=10 + i)
    return tmp_path


def in_folders(root: Path) -> None:
    for name, label in zip(VAL, VAL_LABELS, strict=True):
        (root / "val" / WNIDS[label]).mkdir(exist_ok=True)
        (root / "val" / name).rename(root / "val" / WNIDS[label] / name)


def load(root: Path, image_size: int = 0) -> tuple[FileSplit, FileSplit]:
    train, test = load_data(DataOptions("imagenet", str(root), image_size=image_size, workers=0))
    assert isinstance(train, FileSplit)
    assert isinstance(test, FileSplit)
    return train, test


def named_labels(split: FileSplit) -> dict[str, int]:
    return {Path(split.place(i)).name: int(split.labels[i]) for i in range(len(split))}


def test_class_folders(root: Path) -> None:
    in_folders(root)
    (root / "train" / "n01440764.tar").write_bytes(b"an archive left behind")
    (root / "train" / WNIDS[0] / ".hidden").write_bytes(b"")
    train, test = load(root)
    assert train.classes == test.classes == tuple(WNIDS)
    assert train.labels.tolist() == [0, 1, 1, 2, 2, 2]
    assert [Path(train.place(i)).parent.name for i in range(6)] == [WNIDS[i] for i in train.labels]
    assert named_labels(test) == dict(zip(VAL, VAL_LABELS, strict=True))
    assert (train.name, test.name) == ("train", "val")
    (batch,) = train.batches([torch.tensor([0, 5])], draw=0)
    assert batch.images.shape == (2, 3, 224, 224)
    small, _ = load(root, image_size=32)
    assert next(small.batches([torch.tensor([0])])).images.shape == (1, 3, 32, 32)


@pytest.mark.parametrize(
    ("file", "lines"),
    [
        ("val_labels.txt", [f"{n} {WNIDS[i]}" for n, i in zip(VAL, VAL_LABELS, strict=True)][::-1]),
        ("val_labels.txt", [f"{n} {i}" for n, i in zip(VAL, VAL_LABELS, strict=True)][::-1]),
        ("val_labels.txt", [WNIDS[i] for i in VAL_LABELS]),
        ("ILSVRC2012_validation_ground_truth.txt", ["1", "3", "2", "1"]),
    ],
)
def test_flat_with_labels(root: Path, file: str, lines: list[str]) -> None:
    (root / file).write_text("\n".join(lines) + "\n")
    (root / "synset_ids.txt").write_text(DEVKIT_IDS)
    _, test = load(root)
    assert named_labels(test) == dict(zip(VAL, VAL_LABELS, strict=True))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", r"val_labels\.txt"),
        (f"{VAL[0]} 0\n{VAL[1]} 3", "line 2: label 3"),
        (f"{VAL[0]} n99999999", r"line 1: label n99999999 .*train"),
        (f"{VAL[0]} 0", rf"{VAL[1]} \(3 missing\)"),
        ("".join(f"{n} 0\n" for n in VAL) + "x.JPEG 0", r"x\.JPEG.*val"),
        (f"{VAL[0]} 0 1", r"line 1 has 3 words"),
        (f"{VAL[0]} 0\n{VAL[1]}", r"line 2 has 1 words"),
        (f"{VAL[0]} 0\n\n{VAL[1]} 0", r"line 2 has 0 words"),
        ("\n".join([WNIDS[0]] * 3), r"val_labels\.txt has 3 .* 4 "),
        ("1\n2\n3\n1", r"synset_ids\.txt"),
    ],
)
def test_damaged_labels(root: Path, lines: str, message: str) -> None:
    (root / "val_labels.txt").write_text(lines)
    with pytest.raises(DataError, match=message):
        load(root)


def test_devkit_ids_that_are_not_mapped(root: Path) -> None:
    (root / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n2\n7\n1\n")
    (root / "synset_ids.txt").write_text(DEVKIT_IDS)
    with pytest.raises(DataError, match="line 3: label 7"):
        load(root)
    (root / "synset_ids.txt").write_text("n02119789\nn01443537\n")
    with pytest.raises(DataError, match=r"synset_ids\.txt"):
        load(root)


def test_damaged_layouts(root: Path) -> None:
    with pytest.raises(DataError, match=r"val_labels\.txt"):
        load(root)
    in_folders(root)
    write_photograph(root / "val" / "n99999999" / "a.JPEG")
    with pytest.raises(DataError, match="n99999999"):
        load(root)
    shutil.rmtree(root / "val" / "n99999999")
    shutil.rmtree(root / "val" / WNIDS[1])
    with pytest.raises(DataError, match=rf"{WNIDS[1]}.*\(1 missing\)"):
        load(root)
    (root / "val" / WNIDS[1]).mkdir()
    with pytest.raises(DataError, match=rf"val/{WNIDS[1]}"):
        load(root)
    shutil.rmtree(root / "val")
    with pytest.raises(DataError, match="val: No such file"):
        load(root)
    (root / "val").mkdir()
    with pytest.raises(DataError, match=r"val .*ILSVRC2012_img_val"):
        load(root)
    shutil.rmtree(root / "train")
    (root / "train").mkdir()
    with pytest.raises(DataError, match=r"/train "):
        load(root)
    with pytest.raises(DataError, match=r"nowhere/train: No such file"):
        load(root / "nowhere")


def test_prepare_says_what_is_missing_or_what_is_there(root: Path) -> None:
    with pytest.raises(DataError) as caught:
        prepare_data("imagenet", root)
    message = str(caught.value)
    assert "DIR/train/WNID" in message
    assert "\n" not in message
    in_folders(root)
    assert "6 images of 3 classes to train, 4 to test" in prepare_data("imagenet", root)


@pytest.mark.parametrize("workers", [0, 2])
def test_check(root: Path, workers: int) -> None:
    in_folders(root)
    seen: list[tuple[str, int, int]] = []
    sound = check_data("imagenet", root, lambda *step: seen.append(step), workers)
    assert sound.problems == []
    assert sound.splits[0].per_class == dict(zip(WNIDS, (1, 2, 3), strict=True))
    assert [part.images for part in sound.splits] == [6, 4]
    assert seen == [("train", 6, 6), ("val", 4, 4)]
    assert check_data("imagenet", root, workers=0).sha256 == sound.sha256

    victim = root / "train" / WNIDS[2] / f"{WNIDS[2]}_1.JPEG"
    victim.write_bytes(victim.read_bytes()[:-300])
    damaged = check_data("imagenet", root, workers=workers)
    assert damaged.sha256 != sound.sha256
    (problem,) = damaged.problems
    assert problem.startswith(f"{victim}: ")
    assert "truncated" in problem
    assert damaged.to_json()["splits"][0]["unreadable"][0]["path"] == str(victim)


def test_the_checksum_sees_labels_and_names(root: Path) -> None:
    in_folders(root)
    before = check_data("imagenet", root, workers=0).sha256
    moved = root / "train" / WNIDS[2] / f"{WNIDS[2]}_0.JPEG"
    moved.rename(root / "train" / WNIDS[1] / "n_9.JPEG")
    assert check_data("imagenet", root, workers=0).sha256 != before
