"""Visual Wake Words: labels from COCO's annotations, and which images are tested on."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dbq.data.coco.wake_words import in_hash_split
from dbq.data.files.file_split import FileSplit
from dbq.data.options import DataOptions
from dbq.data.table import check_data, load_data, prepare_data
from dbq.errors import DataError
from tests.photographs import write_photograph

PERSON, DOG = 7, 1  # not COCO's own ids: the name decides
# boxes in an image of 100 x 40 = 4,000 pixels, of which 0.5 % are 20
BOXES: dict[int, list[tuple[int, list[float]]]] = {
    9: [(PERSON, [0, 0, 5, 4])],  # 20: not more than 0.5 %
    25: [(PERSON, [0, 0, 5, 4.1])],  # 20.5
    30: [(DOG, [0, 0, 100, 40])],
    34: [],
    42: [(PERSON, [1, 1, 1, 1]), (DOG, [0, 0, 9, 9]), (PERSON, [0, 0, 60, 30])],
    73: [(PERSON, [0, 0, 3, 3]), (PERSON, [0, 0, 3, 5])],  # 9 + 15: none alone
}
LABELS = {9: 0, 25: 1, 30: 0, 34: 0, 42: 1, 73: 0}
TRAIN, VAL = (9, 25, 30, 34), (42, 73)


def instances(ids: tuple[int, ...], name: Callable[[int], str]) -> dict[str, Any]:
    boxes = [(i, category, box) for i in ids for category, box in BOXES[i]]
    return {
        "info": {"year": 2014},
        "images": [{"id": i, "file_name": name(i), "width": 100, "height": 40} for i in ids],
        "annotations": [
            {
                "id": number, "image_id": i, "category_id": category, "bbox": box, "area": 4000.0,
                "iscrowd": 0, "segmentation": [[0.0, 0.0, 1.0, 1.0]],
            }
            for number, (i, category, box) in enumerate(boxes)
        ],
        "categories": [{"id": DOG, "name": "dog"}, {"id": PERSON, "name": "person"}],
    }  # fmt: skip


@pytest.fixture(params=["2014", "2017"])
def root(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    year = request.param
    (tmp_path / "annotations").mkdir()
    for part, ids in (("train", TRAIN), ("val", VAL)):

        def name(i: int, part: str = part) -> str:
            return f"COCO_{part}2014_{i:012}.jpg" if year == "2014" else f"{i:012}.jpg"

        for i in ids:
            write_photograph(tmp_path / f"{part}{year}" / name(i), 100, 40, seed=i)
        path = tmp_path / "annotations" / f"instances_{part}{year}.json"
        path.write_text(json.dumps(instances(ids, name)))
    (tmp_path / "mscoco_minival_ids.txt").write_text("42\n34\n")
    return tmp_path


def training_annotations(root: Path) -> Path:
    return next((root / "annotations").glob("instances_train*.json"))


def load(root: Path, skip: bool = False) -> tuple[FileSplit, FileSplit]:
    options = DataOptions("visual_wake_words", str(root), workers=0, skip_unreadable=skip)
    train, test = load_data(options)
    assert isinstance(train, FileSplit)
    assert isinstance(test, FileSplit)
    return train, test


def found(split: FileSplit) -> dict[int, int]:
    """Image id, from the file's name, to label."""
    ids = [int(Path(split.place(i)).stem[-12:]) for i in range(len(split))]
    return dict(zip(ids, split.labels.tolist(), strict=True))


def test_labels_and_official_ids(root: Path) -> None:
    train, test = load(root)
    assert found(train) == {i: LABELS[i] for i in (9, 25, 30, 73)}
    assert found(test) == {i: LABELS[i] for i in (34, 42)}
    assert (train.name, test.name) == ("train (official ids)", "minival (official ids)")
    assert train.classes == ("no person", "person")
    (batch,) = test.batches([torch.tensor([0, 1])])
    assert batch.images.shape == (2, 3, 224, 224)


def test_official_training_ids(root: Path) -> None:
    (root / "mscoco_train_ids.txt").write_text("9\n25\n")
    train, _ = load(root)
    assert sorted(found(train)) == [9, 25]
    (root / "mscoco_train_ids.txt").write_text("9\n42\n")
    with pytest.raises(DataError, match=r"42 .*mscoco_train_ids\.txt.*mscoco_minival"):
        load(root)
    (root / "mscoco_minival_ids.txt").unlink()
    with pytest.raises(DataError, match=r"mscoco_train_ids\.txt.*mscoco_minival_ids\.txt"):
        load(root)


def test_hash_split(root: Path) -> None:
    def first_eight_bytes(i: int) -> int:
        return int(hashlib.sha256(str(i).encode()).hexdigest()[:16], 16)

    assert [i for i in range(3000) if in_hash_split(i)] == [
        i for i in range(3000) if first_eight_bytes(i) % 1000 < 65
    ]
    (root / "mscoco_minival_ids.txt").unlink()
    train, test = load(root)
    assert (train.name, test.name) == ("train (hash split 1)", "test (hash split 1)")
    chosen = [i for i in BOXES if first_eight_bytes(i) % 1000 < 65]
    assert list(found(test)) == chosen == [9]
    assert sorted(found(train)) == [25, 30, 34, 42, 73]
    path = training_annotations(root)
    path.write_text(re.sub(r'"(id|image_id)": 9,', r'"\1": 8,', path.read_text()))
    with pytest.raises(DataError, match="test"):
        load(root)


def test_missing_images(root: Path) -> None:
    victim = next(root.glob("train*/*0030.jpg"))
    victim.unlink()
    with pytest.raises(DataError, match=rf"{victim.name} .*\(1 such\)"):
        load(root)
    train, _ = load(root, skip=True)
    (batch,) = train.batches([torch.arange(4)])
    assert batch.skipped == (str(victim),)
    assert len(batch.labels) == 3
    (problem,) = check_data("visual_wake_words", root, workers=0).problems
    assert problem == f"{victim}: No such file or directory"
    victim.parent.rename(root / "elsewhere")
    with pytest.raises(DataError, match=r"0009\.jpg .*\(4 such\)"):
        load(root)


def test_damaged_ids(root: Path) -> None:
    (root / "mscoco_minival_ids.txt").write_text("42\n77\n")
    with pytest.raises(DataError, match=r"77, .*\(1 such\)"):
        load(root)
    (root / "mscoco_minival_ids.txt").write_text("42\nforty-three\n")
    with pytest.raises(DataError, match=r"minival_ids\.txt"):
        load(root)


def test_damaged_annotations(root: Path) -> None:
    path = training_annotations(root)
    whole = json.loads(path.read_text())
    changes: list[tuple[dict[str, Any], str]] = [
        ({"categories": [{"id": 1, "name": "dog"}]}, "person"),
        ({"images": []}, "instances_train"),
        ({"images": [], "annotations": []}, "instances_train"),
        ({"annotations": [{"image_id": 9, "category_id": PERSON}]}, "bbox"),
        ({"annotations": 3}, "instances_train.*TypeError"),
        ({"images": [{**whole["images"][0], "width": 0}], "annotations": whole["annotations"][:1]},
         "image 9 "),
    ]  # fmt: skip
    for change, message in changes:
        path.write_text(json.dumps({**whole, **change}))
        with pytest.raises(DataError, match=message):
            load(root)
    path.write_text(json.dumps(whole)[:-50])
    with pytest.raises(DataError, match="instances_train"):
        load(root)
    path.write_text("[1, 2]")
    with pytest.raises(DataError, match="annotations"):
        load(root)
    path.unlink()
    with pytest.raises(DataError, match=r"instances_train2014\.json"):
        load(root)


def test_an_annotation_cannot_point_outside(root: Path) -> None:
    path = training_annotations(root)
    path.write_text(path.read_text().replace('"file_name": "', '"file_name": "../../'))
    train, _ = load(root)
    assert all(Path(train.place(i)).resolve().is_relative_to(root.resolve()) for i in range(4))
    assert len(found(train)) == 4


def test_prepare(root: Path) -> None:
    said = prepare_data("visual_wake_words", root)
    assert "train (official ids), 4 images; minival (official ids), 2" in said
    with pytest.raises(DataError, match=r"instances_train2014\.json.*DIR/annotations"):
        prepare_data("visual_wake_words", root / "nowhere")
