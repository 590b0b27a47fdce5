"""Changed images are made of the pixels of their images, by the seed."""

from __future__ import annotations

import torch
from torch import nn

from dbq.posttraining.changes import PART, changed, changed_batches, changed_copies, usable_part


def numbered(count: int, side: int = 16) -> torch.Tensor:
    """Every pixel has a number of its own."""
    return torch.arange(count * side * side).float().reshape(count, 1, side, side)


def test_a_changed_image_is_a_part_of_its_own_perhaps_mirrored() -> None:
    x = numbered(8)
    made = changed(x, torch.Generator().manual_seed(0))
    assert made.shape == x.shape
    mirrored = 0
    for number, (image, result) in enumerate(zip(x[:, 0], made[:, 0], strict=True)):
        assert set(result.unique().tolist()) <= set(image.unique().tolist()), number
        steps = result.diff(dim=1)
        assert set(steps.unique().tolist()) <= {-1.0, 0.0, 1.0}  # 0: repeated at the border
        mirrored += bool((steps < 0).any())
    assert 0 < mirrored < 8


def test_large_images_are_cut() -> None:
    x = numbered(2, side=224)
    assert changed(x, torch.Generator().manual_seed(0), PART).shape == (2, 1, 160, 160)


def test_each_image_comes_once_before_any_comes_again() -> None:
    batches = changed_batches(numbered(8), 4, seed=0, part=1.0)
    seen = [int(image.min()) // 256 for _ in range(2) for image in next(batches)]
    assert sorted(seen) == list(range(8))


def test_judged_images_are_changed_copies_by_the_seed() -> None:
    x = numbered(6)
    judged = changed_copies(x, 4, seed=1)
    assert judged.shape == x.shape
    assert torch.equal(judged, changed_copies(x, 4, seed=1))
    assert not torch.equal(judged, x)
    assert not torch.equal(judged, changed_copies(x, 4, seed=2))
    flat = torch.randn(6, 10)
    assert torch.equal(changed_copies(flat, 4, seed=1), flat)


def test_networks_that_take_one_size_see_whole_images() -> None:
    images = numbered(1, side=128)
    assert usable_part(nn.Conv2d(1, 1, 3), images) == PART
    assert usable_part(nn.Sequential(nn.Flatten(), nn.Linear(128 * 128, 2)), images) == 1.0
    assert usable_part(nn.Conv2d(1, 1, 3), numbered(1, side=64)) == 1.0
