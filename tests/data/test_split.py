"""Images in memory: crops and flips against a loop over images, and what a draw may depend on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from dbq.data.options import DataOptions
from dbq.data.split import TensorSplit
from dbq.data.table import load_data
from dbq.errors import DataError
from dbq.model.pixels import normalise

SIDE, PAD, COUNT = 6, 2, 200


@pytest.fixture
def images() -> Tensor:
    return torch.randint(1, 256, (COUNT, 3, SIDE, SIDE), dtype=torch.uint8)


def split(images: Tensor, pad: int = PAD, flip: bool = True) -> TensorSplit:
    labels = torch.arange(len(images)) % 4
    return TensorSplit(
        images, labels, name="train", classes=tuple("abcd"),
        mean=(0.0,) * 3, std=(1 / 255,) * 3, pad=pad, flip=flip,
    )  # fmt: skip


def all_views(image: np.ndarray) -> dict[bytes, tuple[int, int, bool]]:
    """Every crop of one image, by plain indexing: its bytes to (top, left, mirrored)."""
    framed = np.zeros((3, SIDE + 2 * PAD, SIDE + 2 * PAD), dtype=np.uint8)
    framed[:, PAD : PAD + SIDE, PAD : PAD + SIDE] = image
    views = {}
    for top in range(2 * PAD + 1):
        for left in range(2 * PAD + 1):
            crop = framed[:, top : top + SIDE, left : left + SIDE]
            views[crop.tobytes()] = (top, left, False)
            views[np.ascontiguousarray(crop[:, :, ::-1]).tobytes()] = (top, left, True)
    return views


def test_training_images_are_crops_of_the_padded_image(images: Tensor) -> None:
    (batch,) = split(images).batches([torch.arange(COUNT)], draw=3)
    seen = batch.images.round().to(torch.uint8).numpy()
    found = [
        all_views(image)[view.tobytes()] for image, view in zip(images.numpy(), seen, strict=True)
    ]
    # 200 draws of 5 places leave one out with probability 5 * 0.8**200 = 2e-19
    assert {top for top, _, _ in found} == set(range(2 * PAD + 1))
    assert {left for _, left, _ in found} == set(range(2 * PAD + 1))
    assert 60 < sum(mirrored for *_, mirrored in found) < 140  # 100 ± 5.7 standard deviations
    assert batch.labels.tolist() == [i % 4 for i in range(COUNT)]
    assert batch.skipped == ()


def test_a_view_depends_on_draw_and_sample_alone(images: Tensor) -> None:
    whole = next(split(images).batches([torch.arange(COUNT)], draw=5)).images
    groups = torch.randperm(COUNT).split(7)
    for group, batch in zip(groups, split(images).batches(groups, draw=5), strict=True):
        assert torch.equal(batch.images, whole[group])
    other = next(split(images).batches([torch.arange(COUNT)], draw=6)).images
    assert not torch.equal(other, whole)


def test_without_a_draw_images_are_as_they_are(images: Tensor) -> None:
    group = torch.tensor([4, 0, 199])
    (batch,) = split(images).batches([group])
    assert torch.equal(batch.images, normalise(images[group], (0.0,) * 3, (1 / 255,) * 3))
    assert batch.labels.tolist() == [0, 0, 3]


def test_no_flip_unless_asked(images: Tensor) -> None:
    (batch,) = split(images, pad=0, flip=False).batches([torch.arange(COUNT)], draw=1)
    assert torch.equal(batch.images.round().to(torch.uint8), images)


def test_normalise() -> None:
    images = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(-1, 2, -1, -1)
    scaled = normalise(images, mean=(0.5, 0.25), std=(0.5, 0.25))
    assert scaled.flatten().tolist() == [-1, -1, 1, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (DataOptions("cifar"), "'cifar'; closest: cifar10"),
        (DataOptions("imagenet"), "imagenet: .*data.directory"),
        (DataOptions("digits", image_size=16), "digits .* 8.*data.image_size is 16"),
        (DataOptions("imagenet", "x", image_size=-1), "data.image_size"),
        (DataOptions("digits", workers=-1), "data.workers"),
        (DataOptions("digits", mean=(0.5,)), "data.mean"),
        (DataOptions("digits", std=(1.0, 0.0, 1.0)), "data.std"),
    ],
)
def test_impossible_options(options: DataOptions, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_data(options)
