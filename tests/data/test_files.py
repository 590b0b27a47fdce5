"""Image files in batches: the same for any number of workers, honest about damaged ones."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dbq.data.files import file_split
from dbq.data.files.file_split import FileSplit
from dbq.data.options import DataOptions
from dbq.data.views import MEAN, STD, centre_view, random_view
from dbq.errors import DataError
from dbq.model.pixels import normalise
from tests.photographs import write_photograph

COUNT, SIDE = 10, 16


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(COUNT):
        write_photograph(tmp_path / f"{i}.jpg", 40 + 3 * i, 60 - 2 * i, seed=i)
    return tmp_path


def split(folder: Path, workers: int = 0, skip: bool = False) -> FileSplit:
    return FileSplit(
        folder, [f"{i}.jpg" for i in range(COUNT)], [i % 3 for i in range(COUNT)],
        name="train", classes=tuple("abc"), side=SIDE,
        options=DataOptions("x", workers=workers, skip_unreadable=skip),
    )  # fmt: skip


def as_batch(views: list[np.ndarray]) -> torch.Tensor:
    return normalise(torch.from_numpy(np.stack(views)).permute(0, 3, 1, 2), MEAN, STD)


def test_values_and_labels(folder: Path) -> None:
    groups = [torch.tensor([3, 1]), torch.tensor([9])]
    first, second = split(folder).batches(groups)
    paths = [str(folder / f"{i}.jpg") for i in (3, 1)]
    assert torch.equal(first.images, as_batch([centre_view(path, SIDE) for path in paths]))
    assert first.images.is_contiguous()
    assert (first.labels.tolist(), second.labels.tolist()) == ([0, 1], [0])
    first, _ = split(folder).batches(groups, draw=8)
    views = [
        random_view(path, SIDE, np.random.default_rng([8, i]))
        for path, i in zip(paths, (3, 1), strict=True)
    ]
    assert torch.equal(first.images, as_batch(views))


def test_any_number_of_workers_and_any_grouping_give_the_same(folder: Path) -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    whole = next(split(folder).batches([torch.arange(COUNT)], draw=4)).images
    groups = torch.arange(COUNT).flip(0).split(3)
    for workers in (0, 1, 2):
        batches = list(split(folder, workers).batches(groups, draw=4))
        assert len(batches) == len(groups)
        for group, batch in zip(groups, batches, strict=True):
            assert torch.equal(batch.images, whole[group])
            assert batch.labels.tolist() == [int(i) % 3 for i in group]
    assert torch.equal(torch.get_rng_state(), state)  # training's own random numbers are not used


def test_an_empty_group_is_an_empty_batch(folder: Path) -> None:
    (batch,) = split(folder).batches([torch.arange(0)])
    assert batch.images.shape == (0, 3, SIDE, SIDE)
    assert batch.labels.shape == (0,)


def test_draws_differ(folder: Path) -> None:
    one, two = (next(split(folder).batches([torch.arange(COUNT)], draw=d)).images for d in (1, 2))
    assert not torch.equal(one, two)


def test_abandoned_half_way(folder: Path) -> None:
    ours = split(folder, workers=2)
    batches = ours.batches(torch.arange(COUNT).split(1), draw=1)
    next(batches)
    assert len(multiprocessing.active_children()) == 2
    del batches
    assert multiprocessing.active_children() == []
    assert len(list(ours.batches(torch.arange(COUNT).split(5)))) == 2


def test_no_more_workers_than_batches(folder: Path) -> None:
    batches = split(folder, workers=8).batches([torch.arange(COUNT)])
    next(batches)
    assert len(multiprocessing.active_children()) <= 1
    assert list(split(folder, workers=2).batches([])) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_file_is_named(folder: Path, workers: int) -> None:
    (folder / "4.jpg").write_bytes(b"damaged")
    groups = torch.arange(COUNT).split(2)
    batches = split(folder, workers).batches(groups, draw=1)
    next(batches), next(batches)
    with pytest.raises(DataError) as caught:
        next(batches)
    message = str(caught.value)
    assert multiprocessing.active_children() == []  # though `caught` holds on to the traceback
    assert message.startswith(f"cannot read {folder / '4.jpg'}: not an image; ")
    assert "data.skip_unreadable" in message
    assert "\n" not in message


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_file_is_skipped_if_wanted(folder: Path, workers: int) -> None:
    whole = next(split(folder).batches([torch.arange(COUNT)], draw=1)).images
    (folder / "1.jpg").unlink()
    first, second = split(folder, workers, skip=True).batches(torch.arange(COUNT).split(5), draw=1)
    assert first.skipped == (str(folder / "1.jpg"),)
    assert second.skipped == ()
    assert torch.equal(first.images, whole[[0, 2, 3, 4]])
    assert first.labels.tolist() == [0, 2, 0, 1]
    with pytest.raises(DataError, match=r"1\.jpg"):
        next(split(folder, workers, skip=True).batches([torch.tensor([1])]))


def test_a_worker_that_dies(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(path: str, side: int) -> None:
        threading.Event().wait()  # for ever: the worker waits, and we wait for the worker

    monkeypatch.setattr(file_split, "centre_view", wait)

    def kill() -> None:
        (worker,) = multiprocessing.active_children()
        worker.kill()

    batches = split(folder, workers=1).batches([torch.arange(COUNT)])
    timer = threading.Timer(0.5, kill)
    timer.start()
    with pytest.raises(DataError, match=r"data\.workers"):
        next(batches)
    timer.join()


def test_workers_leave_an_interrupt_to_the_main_process(folder: Path) -> None:
    batches = split(folder, workers=1).batches(torch.arange(COUNT).split(1))
    next(batches)
    (worker,) = multiprocessing.active_children()
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGINT)
    assert len(list(batches)) == COUNT - 1


def test_names_beyond_ascii(tmp_path: Path) -> None:
    Image.new("RGB", (20, 20)).save(tmp_path / "größe 1.jpg")
    ours = FileSplit(
        tmp_path, ["größe 1.jpg"], [0],
        name="train", classes=("a",), side=8, options=DataOptions("x", workers=0),
    )  # fmt: skip
    assert ours.place(0) == str(tmp_path / "größe 1.jpg")
    assert len(next(ours.batches([torch.tensor([0])])).labels) == 1
