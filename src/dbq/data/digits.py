"""Handwritten digits: 1,797 real 8x8 images that ship inside scikit-learn, so no download."""

from __future__ import annotations

from pathlib import Path

import torch

from dbq.data.options import DataOptions
from dbq.data.split import Split, TensorSplit
from dbq.errors import DataError
from dbq.support.progress import Progress, silent

TEST_EVERY = 5  # every fifth image is for testing: 360 of them, 1,437 for training
CLASSES = tuple("0123456789")
MEAN = STD = (0.5, 0.5, 0.5)


def load(options: DataOptions, device: torch.device) -> tuple[Split, Split]:
    """Train (shifted by up to one pixel) and test; grey levels as three equal channels."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError("the digits come with scikit-learn: pip install 'dbq[train]'") from None
    digits = load_digits()
    grey = torch.from_numpy(digits.images) * (255 / 16)  # levels 0 to 16
    images = grey.round().to(torch.uint8).unsqueeze(1).expand(-1, 3, -1, -1)
    labels = torch.from_numpy(digits.target).long()
    test = torch.arange(len(labels)) % TEST_EVERY == 0
    mean, std = options.statistics

    def split(name: str, chosen: torch.Tensor) -> Split:
        return TensorSplit(
            images[chosen], labels[chosen], name=name, classes=CLASSES,
            mean=mean or MEAN, std=std or STD, pad=0 if options.augment == "none" else 1,
            device=device,
        )  # fmt: skip

    return split("train", ~test), split("every fifth image", test)


def prepare(directory: Path, progress: Progress = silent) -> str:
    """Nothing to fetch."""
    train, test = load(DataOptions("digits"), torch.device("cpu"))
    return f"the digits come with scikit-learn: {len(train)} to train, {len(test)} to test"
