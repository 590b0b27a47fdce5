"""A folder of the user's own images: which files, which classes, which split, and what is refused."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dbq.data.files.file_split import FileSplit
from dbq.data.files.folder import for_testing, suffixes
from dbq.data.options import DataOptions
from dbq.data.table import check_data, load_data, prepare_data
from dbq.errors import DataError
from dbq.model.pixels import normalise
from tests.photographs import write_photograph

SIDE = 16


def load(root: Path, **settings: object) -> tuple[FileSplit, FileSplit]:
    options = DataOptions("folder", str(root), image_size=SIDE, workers=0, **settings)  # type: ignore[arg-type]
    train, test = load_data(options)
    assert isinstance(train, FileSplit)
    assert isinstance(test, FileSplit)
    return train, test


def names(split: FileSplit) -> list[str]:
    return [os.path.relpath(split.place(i), split.root) for i in range(len(split))]


@pytest.fixture
def two_parts(tmp_path: Path) -> Path:
    for part, count in (("train", 3), ("val", 2)):
        for kind in ("rose", "daisy"):
            for i in range(count):
                write_photograph(tmp_path / part / kind / f"{i}.jpg", 30 + i, 20, seed=i)
    return tmp_path


@pytest.fixture
def one_folder(tmp_path: Path) -> Path:
    for kind, count in (("rose", 10), ("daisy", 5)):
        for i in range(count):
            write_photograph(tmp_path / kind / f"{i}.png", 20, 20, seed=i)
    return tmp_path


def test_two_parts(two_parts: Path) -> None:
    train, test = load(two_parts)
    assert train.classes == test.classes == ("daisy", "rose")
    assert (train.name, test.name) == ("train", "val")
    assert names(test) == ["val/daisy/0.jpg", "val/daisy/1.jpg", "val/rose/0.jpg", "val/rose/1.jpg"]
    assert test.labels.tolist() == [0, 0, 1, 1]
    assert len(train) == 6
    (batch,) = test.batches([torch.arange(4)])
    assert batch.images.shape == (4, 3, SIDE, SIDE)
    assert batch.labels.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(("present", "chosen"), [
    (["valid"], "valid"), (["test"], "test"), (["test", "valid"], "valid"),
    (["test", "val", "valid"], "val"),
])  # fmt: skip
def test_names_of_the_test_part(two_parts: Path, present: list[str], chosen: str) -> None:
    (two_parts / "val").rename(two_parts / present[0])
    for other in present[1:]:
        for kind in ("rose", "daisy"):
            write_photograph(two_parts / other / kind / "0.jpg")
    assert load(two_parts)[1].name == chosen


def test_one_folder_is_divided_by_seed_and_name(one_folder: Path) -> None:
    train, test = load(one_folder, split=0.2)
    everything = {*names(train), *names(test)}
    assert len(everything) == len(train) + len(test) == 15
    assert Counter(test.labels.tolist()) == {0: 1, 1: 2}  # a fifth of each class
    assert "0.2" in test.name
    again = load(one_folder, split=0.2)
    assert names(again[1]) == names(test)
    others = [names(load(one_folder, split=0.2, split_seed=seed)[1]) for seed in range(1, 6)]
    assert any(other != names(test) for other in others)


def test_the_division_does_not_depend_on_other_classes(one_folder: Path) -> None:
    before = [name for name in names(load(one_folder, split=0.2)[1]) if name.startswith("rose")]
    write_photograph(one_folder / "tulip" / "0.png")
    write_photograph(one_folder / "tulip" / "1.png")
    after = [name for name in names(load(one_folder, split=0.2)[1]) if name.startswith("rose")]
    assert before == after


def test_every_class_is_trained_and_tested() -> None:
    files = ["a/0.png", "a/1.png"]
    for share in (0.001, 0.5, 0.999):
        assert len(for_testing(files, share, 0)) == 1


def test_images_in_folders_inside_of_a_class(two_parts: Path) -> None:
    write_photograph(two_parts / "train" / "rose" / "garden" / "old" / "9.webp")
    assert "train/rose/garden/old/9.webp" in names(load(two_parts)[0])


def test_other_files_are_left_out(two_parts: Path) -> None:
    for name in ("Thumbs.db", "notes.txt", ".hidden.jpg", ".DS_Store", "film.mp4"):
        (two_parts / "train" / "rose" / name).write_bytes(b"x")
    (two_parts / "train" / "readme.txt").write_text("no class")
    (two_parts / "train" / ".cache").mkdir()
    assert len(load(two_parts)[0]) == 6


def test_suffixes_are_those_that_pillow_reads() -> None:
    assert {".jpg", ".jpeg", ".png", ".gif", ".tif", ".tiff", ".webp", ".bmp"} <= suffixes()
    assert ".pdf" not in suffixes()  # which Pillow writes, and does not read


def change(root: Path, what: str) -> None:
    if what == "a class is missing in val":
        for file in (root / "val" / "rose").iterdir():
            file.unlink()
        (root / "val" / "rose").rmdir()
    elif what == "a class is only in val":
        write_photograph(root / "val" / "tulip" / "0.jpg")
    elif what == "a class without images":
        (root / "train" / "tulip").mkdir()
        (root / "train" / "tulip" / "notes.txt").write_text("soon")
    elif what == "no val":
        (root / "val").rename(root / "elsewhere")
    elif what == "no train":
        (root / "train").rename(root / "elsewhere")
    elif what == "one class":
        for part in ("train", "val"):
            (root / part / "rose").rename(root / f"{part}-rose")


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("a class is missing in val", ["val has no folder rose", "train", "1 such"]),
        ("a class is only in val", ["train has no folder tulip", "val"]),
        ("a class without images", ["tulip has no image", "1 file", "notes.txt"]),
        ("no val", ["no folder train with val, valid, test", "data.split"]),
        ("no train", ["no folder train", "elsewhere"]),
        ("one class", ["one class, daisy"]),
    ],
)
def test_layouts_that_are_refused(two_parts: Path, what: str, expected: list[str]) -> None:
    change(two_parts, what)
    with pytest.raises(DataError) as caught:
        load(two_parts)
    for words in expected:
        assert words in str(caught.value)


def test_divisions_that_are_refused(
    two_parts: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.raises(DataError, match=r"divided already.*leave it out"):
        load(two_parts, split=0.2)
    lone = tmp_path_factory.mktemp("lone")
    write_photograph(lone / "rose" / "0.jpg")
    write_photograph(lone / "daisy" / "0.jpg")
    with pytest.raises(DataError, match=r"daisy has one image"):
        load(lone, split=0.2)
    with pytest.raises(DataError, match=r"data.split = 1.5"):
        load(lone, split=1.5)
    with pytest.raises(DataError, match=r"cannot read .*absent"):
        load(lone / "absent", split=0.5)
    with pytest.raises(DataError, match=r"data.split is for folders"):
        load_data(DataOptions("digits", split=0.2))
    with pytest.raises(DataError, match="by hand"):
        prepare_data("folder", lone)


def colours(mode: str) -> np.ndarray:
    """What the centre of an image of one colour must become, by the rules of pictures/images.py."""
    expected = {
        "RGBA": (255, 255, 255),  # transparent red on white
        "I;16": (200, 200, 200),
        "CMYK": (255, 0, 0),
        "GIF": (0, 128, 0),
        "EXIF": (0, 0, 255),
    }[mode]
    return np.array(expected, np.uint8)


def write_mode(path: Path, mode: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if mode == "RGBA":
        Image.new("RGBA", (20, 20), (255, 0, 0, 0)).save(path.with_suffix(".png"))
    elif mode == "I;16":
        grey = np.full((20, 20), 200 * 256 + 77, np.uint16)
        Image.fromarray(grey).save(path.with_suffix(".png"))
    elif mode == "CMYK":
        Image.new("CMYK", (20, 20), (0, 255, 255, 0)).save(path.with_suffix(".tif"))
    elif mode == "GIF":
        frames = [Image.new("P", (20, 20)) for _ in range(2)]
        for frame, colour in zip(frames, ((0, 128, 0), (9, 9, 9)), strict=True):
            frame.putpalette([*colour] * 256)
        frames[0].save(path.with_suffix(".gif"), save_all=True, append_images=frames[1:])
    else:  # the left half of the upright image is blue; stored lying on its side
        upright = Image.new("RGB", (20, 20), (255, 255, 0))
        upright.paste((0, 0, 255), (0, 0, 10, 20))
        exif = Image.Exif()
        exif[0x0112] = 6  # to be turned by 90 degrees clockwise
        upright.transpose(Image.Transpose.ROTATE_90).save(path.with_suffix(".png"), exif=exif)


@pytest.mark.parametrize("mode", ["RGBA", "I;16", "CMYK", "GIF", "EXIF"])
def test_images_of_other_modes(two_parts: Path, mode: str) -> None:
    write_mode(two_parts / "val" / "daisy" / "a", mode)
    _, test = load(two_parts)
    place = next(i for i, name in enumerate(names(test)) if Path(name).stem == "a")
    (batch,) = test.batches([torch.tensor([place])], raw=True)
    pixel = batch.images[0, :, SIDE // 2, SIDE // 4].numpy()
    assert pixel.tolist() == colours(mode).tolist()


def test_damaged_and_empty_files_are_named(two_parts: Path) -> None:
    (two_parts / "val" / "rose" / "0.jpg").write_bytes(b"")
    with pytest.raises(DataError, match=r"val/rose/0\.jpg: not an image; .*skip_unreadable"):
        list(load(two_parts)[1].batches([torch.arange(4)]))
    (batch,) = load(two_parts, skip_unreadable=True)[1].batches([torch.arange(4)])
    assert batch.labels.tolist() == [0, 0, 1]


def test_normalisations(two_parts: Path) -> None:
    (pixels,) = load(two_parts)[1].batches([torch.arange(4)], raw=True)
    known = {
        "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        "none": ((0.0,) * 3, (1.0,) * 3),
        "": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    }
    for name, statistics in known.items():
        (batch,) = load(two_parts, normalise=name)[1].batches([torch.arange(4)])
        assert torch.equal(batch.images, normalise(pixels.images, *statistics))
    (batch,) = load(two_parts, normalise="tf")[1].batches([torch.arange(4)])
    assert torch.allclose(batch.images, pixels.images / 127.5 - 1, atol=1e-6)
    (batch,) = load(two_parts, normalise=[0.25, [0.5, 1, 2]])[1].batches([torch.arange(4)])
    assert torch.equal(batch.images, normalise(pixels.images, (0.25,) * 3, (0.5, 1.0, 2.0)))


@pytest.mark.parametrize(
    "value",
    ["imagnet", 3, [0.5], [0.5, 0.0], [[0.5, 0.5], 1], [0.5, float("nan")], ["a", "b"], [[], []]],
)
def test_normalisations_that_are_refused(value: object) -> None:
    with pytest.raises(DataError, match="normalise"):
        DataOptions("digits", normalise=value)
    with pytest.raises(DataError, match="one or the other"):
        DataOptions("digits", normalise="tf", mean=(0.5,) * 3)


def test_augmentation_can_be_limited(two_parts: Path) -> None:
    def views(augment: str, draw: int | None) -> torch.Tensor:
        train, _ = load(two_parts, augment=augment)
        return next(iter(train.batches([torch.arange(6)], draw, raw=True))).images

    assert torch.equal(views("none", 1), views("full", None))
    crops, full = views("crop", 1), views("full", 1)
    same = [torch.equal(a, b) for a, b in zip(crops, full, strict=True)]
    mirrored = [torch.equal(a, b.flip(-1)) for a, b in zip(crops, full, strict=True)]
    assert all(a or b for a, b in zip(same, mirrored, strict=True))
    assert any(mirrored)
    assert not torch.equal(crops, views("none", 1))


def test_check_measures(two_parts: Path) -> None:
    for part in ("train", "val"):
        for file in (two_parts / part).rglob("*.jpg"):
            file.unlink()
    black = Image.new("RGB", (40, 20))
    black.save(two_parts / "train" / "rose" / "black.png")
    half = Image.new("RGB", (10, 10), (255, 0, 51))
    half.paste((255, 255, 51), (0, 0, 10, 5))
    half.save(two_parts / "train" / "daisy" / "half.png")
    for kind in ("rose", "daisy"):
        write_photograph(two_parts / "val" / kind / "0.jpg", 30, 50)
    (two_parts / "val" / "rose" / "bad.jpg").write_bytes(b"bad")
    report = check_data("folder", two_parts, workers=0)
    train, val = report.splits
    assert train.per_class == {"daisy": 1, "rose": 1}
    assert train.sizes is not None
    assert (train.sizes.smallest, train.sizes.largest) == ((10, 10), (40, 20))
    assert val.sizes is not None
    assert val.sizes.median == (30, 50)
    # Two images of equal weight: black, and one of mean (1, 0.5, 0.2) and mean square (1, 0.5, 0.04)
    assert report.mean == pytest.approx((0.5, 0.25, 0.1))
    assert report.std == pytest.approx((0.5, (0.25 - 0.0625) ** 0.5, 0.1))
    assert [bad.path for bad in val.unreadable] == [str(two_parts / "val" / "rose" / "bad.jpg")]
    assert report.problems == [f"{two_parts / 'val' / 'rose' / 'bad.jpg'}: not an image"]


def test_check_of_a_folder_that_is_to_be_divided(one_folder: Path) -> None:
    report = check_data("folder", one_folder, workers=0, settings={"split": 0.4})
    assert [part.images for part in report.splits] == [9, 6]
    with pytest.raises(DataError, match=r"unknown key spilt; closest: split"):
        check_data("folder", one_folder, settings={"spilt": 0.4})
