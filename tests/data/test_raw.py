"""Raw batches are the pixels that normalised ones are made of."""

from __future__ import annotations

from pathlib import Path

import torch

from dbq.data.options import DataOptions
from dbq.data.table import load_data, normalisation
from dbq.model.pixels import normalise
from tests.photographs import write_photograph


def check(options: DataOptions, groups: list[torch.Tensor], draw: int | None) -> None:
    train, _ = load_data(options)
    normalised, raw = train.batches(groups, draw), train.batches(groups, draw, raw=True)
    for batch, pixels in zip(normalised, raw, strict=True):
        assert pixels.images.dtype == torch.uint8
        assert torch.equal(normalise(pixels.images, *normalisation(options)), batch.images)
        assert torch.equal(pixels.labels, batch.labels)


def test_images_in_memory() -> None:
    for draw in (None, 3):
        check(DataOptions("digits"), [torch.arange(5), torch.arange(5, 7)], draw)


def test_image_files(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for wnid in ("n1", "n2"):
            write_photograph(tmp_path / part / wnid / "a.JPEG")
    options = DataOptions("imagenet", str(tmp_path), image_size=32, workers=0)
    for draw in (None, 3):
        check(options, [torch.arange(2)], draw)
