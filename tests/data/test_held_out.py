"""Held-out images: which they are, that nothing else about an image changes, and what is refused."""

from __future__ import annotations

import pytest
import torch

from dbq.data.held_out import PartOfSplit
from dbq.data.options import DataOptions
from dbq.data.split import Batch, Split
from dbq.data.table import check_data, load_data
from dbq.errors import DataError


def parts(share: float, seed: int = 0) -> tuple[PartOfSplit, PartOfSplit]:
    rest, held_out = load_data(DataOptions("digits", held_out=share, split_seed=seed))
    assert isinstance(rest, PartOfSplit)
    assert isinstance(held_out, PartOfSplit)
    return rest, held_out


def everything(split: Split, draw: int | None = None) -> Batch:
    return next(iter(split.batches([torch.arange(len(split))], draw)))


def test_each_training_image_is_in_one_part() -> None:
    whole, _ = load_data(DataOptions("digits"))
    rest, held_out = parts(0.1)
    assert len(held_out) == round(0.1 * len(whole))
    both = torch.cat([rest.chosen, held_out.chosen])
    assert torch.equal(both.sort().values, torch.arange(len(whole)))
    assert rest.classes == held_out.classes == whole.classes


@pytest.mark.parametrize("draw", [None, 7])
def test_an_image_is_what_it_was_in_the_whole(draw: int | None) -> None:
    """Augmentation belongs to an image of the whole split, not to its place in a part."""
    whole = everything(load_data(DataOptions("digits"))[0], draw)
    for part in parts(0.3):
        found = everything(part, draw)
        assert torch.equal(found.images, whole.images[part.chosen])
        assert torch.equal(found.labels, whole.labels[part.chosen])


def test_the_seed_decides_which() -> None:
    assert torch.equal(parts(0.2)[1].chosen, parts(0.2)[1].chosen)
    assert not torch.equal(parts(0.2)[1].chosen, parts(0.2, seed=1)[1].chosen)


@pytest.mark.parametrize("share", [1.0, -0.1, 1e-6, 0.9999, float("nan")])
def test_a_part_without_images_is_refused(share: float) -> None:
    with pytest.raises(DataError, match="held_out"):
        load_data(DataOptions("digits", held_out=share))


def test_an_examination_is_of_all_images() -> None:
    with pytest.raises(DataError, match="held_out"):
        check_data("digits", settings={"held_out": 0.1})
