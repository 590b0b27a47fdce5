"""Photographs of a folder as the input of a network, without labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dbq.data.views import MEAN, STD, resize_length
from dbq.deploy.pictures.images import SUFFIXES, read_image
from dbq.errors import DataError
from dbq.model.pixels import normalise
from dbq.support.progress import Progress, silent


def read_images(
    folder: str | Path,
    side: int,
    mean: Sequence[float] = MEAN,
    std: Sequence[float] = STD,
    *,
    most: int = 1280,
    seed: int = 0,
    progress: Progress = silent,
) -> Tensor:
    """Images of a folder and its subfolders, [N, 3, side, side], normalised; chosen by seed if there
    are more than `most`.

    Resized and cut as for a test: the shorter side to 8/7 of `side`, then the middle.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("RGB", (60, 40)).save(f"{folder}/one.png")
    ...     read_images(folder, 32).shape
    torch.Size([1, 3, 32, 32])
    """
    if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
        raise DataError("mean and std are three numbers each, for red, green and blue; std over 0")
    paths = _files(Path(folder))
    order = torch.randperm(len(paths), generator=torch.Generator().manual_seed(seed))
    chosen = [paths[i] for i in order[:most].tolist()]
    pixels = np.empty((len(chosen), side, side, 3), np.uint8)
    for done, path in enumerate(chosen):
        progress("images", done, len(chosen))
        pixels[done] = read_image(path, (side, side, 3), resize_length(side))
    progress("images", len(chosen), len(chosen))
    return normalise(torch.from_numpy(pixels).permute(0, 3, 1, 2), mean, std)


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder of images")
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not found:
        raise DataError(f"{folder}: no image in this folder; expected files {', '.join(SUFFIXES)}")
    return found
