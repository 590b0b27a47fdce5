"""Handwritten digits: 1,797 real 8x8 images that ship inside scikit-learn, so no download."""

from __future__ import annotations

import torch
from torch import Tensor

from dbq.errors import DataError

TEST_EVERY = 5  # every fifth image is for testing: 360 of them, 1,437 for training


def load_digits() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """(images, labels) for training and for testing; images are float [N, 1, 8, 8] in [-1, 1].

    >>> (images, labels), test = load_digits()
    >>> tuple(images.shape), len(test[1])
    ((1437, 1, 8, 8), 360)
    """
    try:
        from sklearn.datasets import load_digits as read
    except ImportError:
        raise DataError("the digits come with scikit-learn: pip install scikit-learn") from None
    digits = read()
    images = torch.from_numpy(digits.images).float().unsqueeze(1) / 8 - 1  # grey levels 0 to 16
    labels = torch.from_numpy(digits.target).long()
    test = torch.arange(len(labels)) % TEST_EVERY == 0
    return (images[~test], labels[~test]), (images[test], labels[test])
