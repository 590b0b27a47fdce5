"""Data of the user's own: what a function may return, how items are read, and every mistake by name."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset

from dbq.data.options import DataOptions
from dbq.data.own import DatasetSplit
from dbq.data.table import check_data, load_data, normalisation, prepare_data
from dbq.data.views import centre_view, random_view
from dbq.errors import DataError, UserCodeError
from dbq.model.pixels import normalise

NAME = "own_data_of_tests"
SIDE = 8


class Items(Dataset[Any]):
    """`count` items made by a function of the index."""

    classes = ["cat", "dog", "emu"]  # noqa: RUF012

    def __init__(self, make: Callable[[int], Any], count: int = 7) -> None:
        self.make, self.count = make, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def picture(index: int) -> Image.Image:
    pixels = np.random.default_rng(index).integers(0, 256, (12, 17, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def pil(index: int) -> tuple[Image.Image, int]:
    return picture(index), index % 3


def floats(index: int) -> tuple[torch.Tensor, int]:
    return torch.full((3, SIDE, SIDE), index / 10), index % 3


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Callable[..., DataOptions]:
    """Makes a function importable, and the options that name it."""

    def make(function: Callable[..., Any], **settings: Any) -> DataOptions:
        module = ModuleType(NAME)
        module.data = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, NAME, module)
        return DataOptions(f"{NAME}:data", **{"image_size": SIDE, "workers": 0, **settings})

    return make


def both(make: Callable[[int], Any]) -> Callable[[], tuple[Items, Items]]:
    return lambda: (Items(make), Items(make, 3))


def test_pictures_are_seen_as_those_of_files(define: Callable[..., DataOptions]) -> None:
    train, test = load_data(define(both(pil)))
    assert train.classes == test.classes == ("cat", "dog", "emu")
    assert (len(train), len(test)) == (7, 3)
    (batch,) = test.batches([torch.tensor([2, 0])], raw=True)
    expected = np.stack([centre_view(picture(i), SIDE) for i in (2, 0)])
    assert np.array_equal(batch.images.permute(0, 2, 3, 1), expected)
    assert batch.labels.tolist() == [2, 0]
    (batch,) = train.batches([torch.tensor([5])], draw=9, raw=True)
    assert np.array_equal(
        batch.images[0].permute(1, 2, 0),
        random_view(picture(5), SIDE, np.random.default_rng([9, 5])),
    )
    assert train.resize_length == round(256 * SIDE / 224)


def test_uint8_tensors(define: Callable[..., DataOptions]) -> None:
    def colour(index: int) -> tuple[torch.Tensor, torch.Tensor]:
        pixels = torch.from_numpy(np.array(picture(index))).permute(2, 0, 1)
        return pixels, torch.tensor(index % 3)

    (batch,) = load_data(define(both(colour)))[1].batches([torch.arange(3)], raw=True)
    (same,) = load_data(define(both(pil)))[1].batches([torch.arange(3)], raw=True)
    assert torch.equal(batch.images, same.images)
    assert batch.labels.tolist() == [0, 1, 2]
    grey = load_data(define(both(lambda i: (torch.full((1, 9, 9), 77).byte(), 0))))[1]
    assert next(iter(grey.batches([torch.arange(1)], raw=True))).images.unique().tolist() == [77]


def test_float_tensors_are_left_alone(define: Callable[..., DataOptions]) -> None:
    train, _ = load_data(define(both(floats), normalise="tf"))
    for draw in (None, 3):
        (batch,) = train.batches([torch.tensor([4, 6])], draw)
        assert torch.equal(batch.images, torch.stack([floats(4)[0], floats(6)[0]]))
    (raw,) = train.batches([torch.tensor([4])], raw=True)
    assert torch.allclose(normalise(raw.images, (0.5,) * 3, (0.5,) * 3), floats(4)[0], atol=1 / 255)
    assert train.resize_length == 0


def test_normalisation_of_float_tensors_must_be_stated(define: Callable[..., DataOptions]) -> None:
    with pytest.raises(DataError, match=r"float tensors: say by data\.normalise"):
        load_data(define(both(floats)))
    options = define(both(floats), normalise=[0.1, 0.2])
    assert normalisation(options) == ((0.1,) * 3, (0.2,) * 3)
    load_data(options)


def test_arguments(define: Callable[..., DataOptions]) -> None:
    given: list[Any] = []

    def data(directory: str = "none", year: int = 0) -> tuple[Items, Items]:
        given.append((directory, year))
        return Items(pil), Items(pil)

    load_data(define(data))
    load_data(define(data, directory="there", options={"year": 3}))
    assert given == [("none", 0), ("there", 3)]
    with pytest.raises(UserCodeError, match=r"takes no yaer \(data\.options\); closest: year"):
        load_data(define(data, options={"yaer": 3}))
    with pytest.raises(UserCodeError, match="takes no directory"):
        load_data(define(both(pil), directory="there"))
    with pytest.raises(DataError, match=r"data\.options are for a function"):
        load_data(DataOptions("digits", options={"year": 3}))


def test_classes_of_a_subset(define: Callable[..., DataOptions]) -> None:
    def data() -> tuple[Subset[Any], Subset[Any]]:
        whole = Items(pil)
        return Subset(whole, [0, 1]), Subset(whole, [2])

    train, test = load_data(define(data))
    assert train.classes == ("cat", "dog", "emu")
    assert next(iter(test.batches([torch.arange(1)]))).labels.tolist() == [2]


def random_item(index: int) -> tuple[torch.Tensor, int]:
    noise = torch.rand(3, SIDE, SIDE)
    return noise + random.random() + float(np.random.rand()), 0  # noqa: NPY002


def test_random_numbers_depend_on_epoch_and_index_alone(define: Callable[..., DataOptions]) -> None:
    train, _ = load_data(define(both(random_item), normalise="none", workers=2))
    assert isinstance(train, DatasetSplit)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index] # noqa: NPY002
    (whole,) = train.batches([torch.arange(7)], draw=5)
    for workers in (0, 1):
        train.workers = workers
        parts = list(train.batches(torch.arange(7).flip(0).split(2), draw=5))
        assert torch.equal(torch.cat([part.images for part in parts]).flip(0), whole.images)
    (other,) = train.batches([torch.arange(7)], draw=6)
    assert not torch.equal(other.images, whole.images)
    assert not torch.equal(whole.images[0], whole.images[1])
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.random.get_state()[1].tolist() == states[2]  # type: ignore[index] # noqa: NPY002


def fails(index: int) -> Any:
    if index == 4:
        raise KeyError("no file 4")
    return pil(index)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_item_that_fails_is_named(define: Callable[..., DataOptions], workers: int) -> None:
    train, _ = load_data(define(both(fails), workers=workers))
    with pytest.raises(DataError) as caught:
        list(train.batches([torch.arange(7)]))
    for words in ("item 4", NAME, "train", "KeyError", "no file 4", "test_own.py, line"):
        assert words in str(caught.value)
    train, _ = load_data(define(both(fails), workers=workers, skip_unreadable=True))
    (batch,) = train.batches([torch.arange(7)])
    assert len(batch.labels) == 6
    assert len(batch.skipped) == 1


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ((picture(0), 3), "label 3, expected 0 to 2"),
        ((picture(0), -1), "label -1"),
        ((picture(0), "cat"), "label 'cat'"),
        ((picture(0), 0.5), "label 0.5"),
        (picture(0), "expected a pair"),
        ((picture(0), 0, 0), "expected a pair"),
        ((np.zeros((8, 8, 3), np.uint8), 0), "a ndarray, expected a PIL image or a tensor"),
        ((torch.zeros(2, 8, 8).byte(), 0), "uint8 [2, 8, 8], expected uint8"),
        ((torch.zeros(3, 8, 8).long(), 0), "int64 [3, 8, 8]"),
        ((torch.zeros(3, 8, 8), 0), "a float tensor, where item 0 holds pixels"),
    ],
)
def test_items_that_are_refused(
    define: Callable[..., DataOptions], item: Any, message: str
) -> None:
    train, _ = load_data(define(both(lambda index: item if index else pil(0))))
    with pytest.raises(DataError) as caught:
        list(train.batches([torch.tensor([1])]))
    assert message in str(caught.value)


def test_float_tensors_of_another_size(define: Callable[..., DataOptions]) -> None:
    train, _ = load_data(define(both(floats), normalise="tf", image_size=9))
    with pytest.raises(DataError, match=r"a tensor \[3, 8, 8\], expected \[3, 9, 9\].*image_size"):
        list(train.batches([torch.tensor([1])]))
    mixed = both(lambda index: pil(1) if index else floats(0))
    with pytest.raises(DataError, match="no float tensor, where item 0 is one"):
        list(load_data(define(mixed, normalise="tf"))[0].batches([torch.tensor([1])]))


class Nameless(Items):
    classes = None  # type: ignore[assignment]


class Twice(Items):
    classes = ["cat", "dog", "cat"]  # noqa: RUF012


class Numbers(Items):
    classes = [0, 1, 2]  # type: ignore[list-item] # noqa: RUF012


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: Items(pil), "returned a Items; expected two Datasets"),
        (lambda: None, "returned nothing"),
        (lambda: (Items(pil), None), "returned nothing among its Datasets"),
        (lambda: (Items(pil), iter([])), "len() and indexing"),
        (lambda: (Nameless(pil), Nameless(pil)), "no attribute `classes`"),
        (lambda: (Numbers(pil), Numbers(pil)), "`classes` is [0, 1, 2]"),
        (lambda: (Twice(pil), Twice(pil)), "`classes` has 'cat' more than once"),
        (lambda: (Items(pil), Items(pil, 0)), "its test Dataset is empty"),
        (lambda: (Items(lambda i: 1 / 0), Items(pil)), "item 0 of"),
        (lambda: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_functions_that_do_not_do_their_part(
    define: Callable[..., DataOptions], function: Callable[[], Any], message: str
) -> None:
    with pytest.raises(UserCodeError) as caught:
        load_data(define(function))
    assert message in str(caught.value)
    assert NAME in str(caught.value)


def test_names(define: Callable[..., DataOptions]) -> None:
    define(both(pil))
    with pytest.raises(UserCodeError, match=f"{NAME} has no daat; closest: data"):
        load_data(DataOptions(f"{NAME}:daat"))
    with pytest.raises(DataError, match=r"package.module:function"):
        load_data(DataOptions("a:b:c"))
    with pytest.raises(DataError, match="comes from a function"):
        prepare_data(f"{NAME}:data")


def test_check(define: Callable[..., DataOptions]) -> None:
    define(both(fails))
    report = check_data(f"{NAME}:data", workers=0, settings={"image_size": SIDE})
    train, test = report.splits
    assert train.images == 7
    assert train.per_class == {
        "cat": 3,
        "dog": 1,
        "emu": 2,
    }  # without item 4, whose label is unknown
    assert [bad.path for bad in train.unreadable] == [f"item 4 of {NAME}:data's train Dataset"]
    assert test.unreadable == ()
    views = np.stack([centre_view(picture(i), SIDE) for i in (0, 1, 2, 3, 5, 6)]) / 255
    assert report.mean == pytest.approx(views.mean((0, 1, 2)))
    assert report.std == pytest.approx(views.std((0, 1, 2)))
